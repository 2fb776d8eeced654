//! Playhouse's hot operations.
//!
//! Activations are burn `Tensor<2>` in f32, row-major `[num_tokens, features]`. Weights and the KV
//! arena are opaque types of this crate, so that a device can keep them in the layout that suits
//! it.
//!
//! Each operation is a folder. `mod.rs` states the maths and holds the public function. `cpu.rs` is
//! the native version, and `cube.rs` that of GPUs (feature `gpu`). `reference.rs` has straight
//! loops, with which the tests compare both.
//!
//! Two promises hold for every operation here, on every instruction set and every GPU:
//! - a row's result depends on that row alone. The number of rows, its place among them and the
//!   threads do not matter. The bytes are equal;
//! - a query token's attention depends on its position, its query, and the keys and values that it
//!   may see. Chunking, batch neighbours and the choice of blocks do not matter.
//!
//! Products that were asked to use a GPU's tensor cores ([`TensorCores`]) keep neither promise.

mod activation;
mod aligned;
mod allocator;
mod causal_conv;
mod ceilings;
mod cross_attention;
#[cfg(feature = "gpu")]
mod cube;
mod device;
mod disentangled_attention;
mod dtype;
mod elementwise;
mod embedding;
mod encoder_attention;
mod error;
mod experts;
mod gated_norm;
mod hot_ops;
mod kv_cache;
mod latent;
mod layer_norm;
mod linear;
mod linear_attention;
mod lora;
mod mapped_file;
mod paged_attention;
pub mod profile;
mod qk_norm_rope;
mod quantized;
mod rg_lru;
mod rms_norm;
mod rope;
mod router;
pub mod sampling;
mod select_rows;
mod selective_scan;
mod shared_memory;
mod simd;
mod ssd;
mod states;
mod step_graphs;
mod stream;
mod tensors;
mod threads;
mod weight_vector;
mod workspace;

pub use activation::{Activation, activate, gated, swiglu};
pub use allocator::{EXIT_OUT_OF_MEMORY, ReportingAllocator, fallible, try_zeroed};
pub use causal_conv::{CausalConv, causal_conv};
pub use ceilings::Ceilings;
pub use cross_attention::cross_attention;
pub use device::{ComputeDevice, DeviceKind, DeviceMemory, device_memory, devices, trim_memory};
pub use disentangled_attention::{
    DisentangledAttention, DisentangledShape, disentangled_attention,
};
pub use dtype::{WeightDtype, WeightView};
pub use elementwise::{add, add_scaled, clamp, gate_rows, scale, scale_rows, soft_cap};
pub use embedding::{EmbeddingTable, embedding, tied_embedding};
pub use encoder_attention::{encoder_attention, encoder_self_attention};
pub use error::KernelError;
pub use experts::{
    ExpertActivation, ExpertLora, ExpertSegment, ExpertWeights, Experts, experts, experts_with_lora,
};
pub use gated_norm::{GatedNorm, GroupNorm, gated_norm};
pub use kv_cache::{KvCache, KvCacheShape, KvDtype, KvLayer, cache_keys, reshape_and_cache};
pub use latent::{LatentNorm, LatentProjections, latent_keys, latent_queries, latent_values};
pub use layer_norm::{add_layer_norm, layer_norm};
pub use linear::{
    ActivationDtype, LinearWeight, PackedSections, QuantizationScheme, TensorCores, TunedProduct,
    adopt_tuned_products, has_tensor_cores, linear, linear_activated, linear_swiglu, packed_layout,
    tuned_products,
};
pub use linear_attention::{
    GatedDeltaRule, KimiDecay, KimiDeltaRule, LightningAttention, LinearHeads, gated_delta_rule,
    kimi_delta_rule, lightning_attention,
};
pub use lora::{LoraPair, LoraSegment, LoraWeights, add_lora, set_rows};
pub use mapped_file::{EXIT_FILE_LOST, MappedFile, MappedRange, open_regular, require_regular};
pub use paged_attention::{
    AttentionMask, AttentionMetadata, AttentionParams, DistanceBiases, paged_attention,
};
pub use qk_norm_rope::{HeadNorm, QkvHeads, qk_norm_rope, qk_norm_rope_and_cache};
pub use quantized::{Codes, Offsets, QuantizedMatrix};
pub use rg_lru::{RgLru, RgLruConfig, rg_lru};
pub use rms_norm::{add_rms_norm, rms_norm};
pub use rope::{RotaryTable, rope};
pub use router::{Choice, ExpertGroups, GroupScore, Router, RouterConfig, Routing, Scoring, route};
pub use select_rows::select_rows;
pub use selective_scan::{SelectiveScan, SelectiveScanConfig, selective_scan};
pub use shared_memory::{SharedArena, SharedMemory};
pub use simd::cpu_isa;
pub use ssd::{Ssd, SsdConfig, ssd};
pub use step_graphs::{StepGraphStats, StepGraphs};
pub use stream::DeviceStream;
pub use threads::ThreadPool;
pub use weight_vector::WeightVector;
pub use workspace::recycle;
