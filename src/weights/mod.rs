//! Model weights on disk: one `model.safetensors`, or shards that `model.safetensors.index.json`
//! lists, or a GGUF file. Files are mapped into memory, so opening a checkpoint reads only its
//! headers. Everything in a file is checked before it is used.
//!
//! Tensors have the names of Hugging Face models, whatever the file calls them. A matrix that is
//! quantized in the file becomes a [`QuantizedMatrix`](playhouse_kernels::QuantizedMatrix),
//! whatever its format. `quantized` reads GPTQ, AWQ and compressed-tensors, and `gguf` reads the
//! blocks of ggml.
//!
//! The format: <https://github.com/huggingface/safetensors#format>.

mod cache;
mod checkpoint;
mod dummy;
mod error;
mod gguf;
mod header;
mod matrix;
mod quantized;
mod stack;
mod tensor;

pub(crate) use cache::{READER_VERSION, WeightsCache};
pub use checkpoint::{Checkpoint, GgufName, MergedAdapter, TaskAdapters, UnitVectors};
pub use error::WeightsError;
pub use matrix::{MatrixElements, StoredMatrix};
pub use quantized::{GptqFormat, Quantization, ScaleSharing};
pub use stack::Stack;
pub use tensor::{StoredDtype, StoredTensor, TensorValues};

pub use crate::gguf::GgufError;
pub use crate::model_files::ModelFileError;
