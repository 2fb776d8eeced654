//! Model weights on disk: one `model.safetensors`, or shards that `model.safetensors.index.json`
//! lists. Files are mapped into memory, so opening a checkpoint reads only its headers, and nothing
//! in a file is trusted before it is checked.
//!
//! The format: <https://github.com/huggingface/safetensors#format>.

mod cache;
mod checkpoint;
mod error;
mod header;
mod tensor;

pub(crate) use cache::WeightsCache;
pub use checkpoint::Checkpoint;
pub use error::WeightsError;
pub use tensor::{StoredDtype, StoredTensor, TensorValues};
