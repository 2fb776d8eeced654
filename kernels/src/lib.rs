//! Playhouse's hot operations.
//!
//! Activations are burn `Tensor<2>` in f32, row-major `[num_tokens, features]`; weights and the KV
//! arena are opaque types of this crate, so that a device can keep them in the layout it likes.
//! Each operation is a folder: `mod.rs` states the maths and holds the public function, `cpu.rs` is
//! the native version, `cube.rs` that of GPUs (feature `wgpu`), `reference.rs` the straight loops that
//! the tests hold both against.
//!
//! Two promises hold for every operation here, on every instruction set and every GPU:
//! - a row's result depends on that row alone: not on the number of rows, its place among them, or
//!   the threads they are spread over. The bytes are equal;
//! - a query token's attention depends on its position, its query and the keys and values that it
//!   may see: not on chunking, batch neighbours or the blocks that hold them.
//!
//! Products that were asked to go through a GPU's tensor cores ([`TensorCores`]) promise neither.

mod aligned;
mod allocator;
mod ceilings;
#[cfg(feature = "gpu")]
mod cube;
mod device;
mod dtype;
mod embedding;
mod error;
mod hot_ops;
mod kv_cache;
mod linear;
mod mapped_file;
mod paged_attention;
pub mod profile;
mod qk_norm_rope;
mod quantized;
mod rms_norm;
mod rope;
pub mod sampling;
mod select_rows;
mod simd;
mod step_graphs;
mod stream;
mod swiglu;
mod tensors;
mod threads;
mod weight_vector;
mod workspace;

pub use allocator::{EXIT_OUT_OF_MEMORY, ReportingAllocator, fallible, try_zeroed};
pub use ceilings::Ceilings;
pub use device::{ComputeDevice, DeviceKind, DeviceMemory, device_memory, devices, trim_memory};
pub use dtype::{WeightDtype, WeightView};
pub use embedding::{EmbeddingTable, embedding, tied_embedding};
pub use error::KernelError;
pub use kv_cache::{KvCache, KvCacheShape, KvDtype, KvLayer, reshape_and_cache};
pub use linear::{
    ActivationDtype, LinearWeight, PackedSections, QuantizationScheme, TensorCores, TunedProduct,
    adopt_tuned_products, has_tensor_cores, linear, linear_swiglu, packed_layout, tuned_products,
};
pub use mapped_file::{EXIT_FILE_LOST, MappedFile, MappedRange, open_regular, require_regular};
pub use paged_attention::{AttentionMetadata, AttentionParams, paged_attention};
pub use qk_norm_rope::{QkvHeads, qk_norm_rope};
pub use quantized::{Codes, Offsets, QuantizedMatrix};
pub use rms_norm::{add_rms_norm, rms_norm};
pub use rope::{RotaryTable, rope};
pub use select_rows::select_rows;
pub use simd::cpu_isa;
pub use step_graphs::{StepGraphStats, StepGraphs};
pub use stream::DeviceStream;
pub use swiglu::swiglu;
pub use threads::ThreadPool;
pub use weight_vector::WeightVector;
pub use workspace::recycle;
