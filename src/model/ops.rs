//! The operations and types that a [`Backbone`](super::Backbone) is made of, for families outside
//! this crate.
//!
//! Activations are [`Tensor`]s of f32, `[num_tokens, features]`. Each operation promises that a row
//! of its result depends on that row alone, and attention on a token's own sequence alone. This
//! does not hold for weights that were loaded for a GPU's tensor cores. A backbone keeps the
//! promise of [`Backbone`](super::Backbone) if it mixes tokens by [`paged_attention`],
//! [`encoder_attention`], [`encoder_self_attention`], [`disentangled_attention`] or
//! [`cross_attention`] only.

pub use burn::tensor::{Device, Tensor};
pub use playhouse_kernels::{
    Activation, ActivationDtype, AttentionMask, AttentionMetadata, AttentionParams,
    DisentangledAttention, DisentangledShape, DistanceBiases, EmbeddingTable, HeadNorm,
    KernelError, KvCache, KvCacheShape, KvLayer, LinearWeight, QkvHeads, QuantizationScheme,
    RotaryTable, TensorCores, WeightDtype, WeightVector, activate, add, add_layer_norm,
    add_rms_norm, add_scaled, cache_keys, clamp, cross_attention, disentangled_attention,
    embedding, encoder_attention, encoder_self_attention, gated, layer_norm, linear,
    paged_attention, qk_norm_rope, reshape_and_cache, rms_norm, scale, scale_rows, select_rows,
    soft_cap, swiglu,
};
