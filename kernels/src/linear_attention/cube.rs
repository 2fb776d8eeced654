//! GPUs have no version: the constructors of the weights refuse a GPU.

use burn_cubecl::tensor::CubeTensor;

use super::{GatedDeltaRule, LightningAttention};
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;

/// Is never called.
pub(crate) fn gated_delta_rule(
    _: CubeTensor,
    _: CubeTensor,
    _: &GatedDeltaRule,
    _: &mut KvLayer,
    _: &AttentionMetadata,
) -> CubeTensor {
    unreachable!("gated_delta_rule: states are on the CPU only")
}

/// Is never called.
pub(crate) fn lightning_attention(
    _: CubeTensor,
    _: &LightningAttention,
    _: &mut KvLayer,
    _: &AttentionMetadata,
) -> CubeTensor {
    unreachable!("lightning_attention: states are on the CPU only")
}
