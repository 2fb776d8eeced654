//! GPUs have no version: [`CausalConv::new`] refuses them.

use burn_cubecl::tensor::CubeTensor;

use super::CausalConv;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;

/// Is never called.
pub(crate) fn causal_conv(
    _: CubeTensor,
    _: usize,
    _: &CausalConv,
    _: &mut KvLayer,
    _: &AttentionMetadata,
) -> CubeTensor {
    unreachable!("causal_conv: convolutions run on the CPU only")
}
