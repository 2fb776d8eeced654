//! Playhouse's hot operations.
//!
//! Activations are burn `Tensor<2>` in f32, row-major `[num_tokens, features]`. Weights and the KV
//! arena are opaque types of this crate, so that a device can keep them in the layout that suits
//! it.
//!
//! Each operation is a folder. `mod.rs` states the maths and holds the public function. `cpu.rs` is
//! the native version, and `cube.rs` that of GPUs (feature `wgpu`). `reference.rs` has straight
//! loops, with which the tests compare both.
//!
//! Two promises hold for every operation here, on every instruction set and every GPU:
//! - a row's result depends on that row alone. The number of rows, its place among them and the
//!   threads do not matter. The bytes are equal;
//! - a query token's attention depends on its position, its query, and the keys and values that it
//!   may see. Chunking, batch neighbours and the choice of blocks do not matter.
//!
//! Products that were asked to use a GPU's tensor cores ([`TensorCores`]) keep neither promise.

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
