//! GPUs have no version: [`Ssd::new`] refuses them.

use burn_cubecl::tensor::CubeTensor;

use super::Ssd;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;

/// Is never called.
pub(crate) fn ssd(
    _: CubeTensor,
    _: CubeTensor,
    _: usize,
    _: &Ssd,
    _: &mut KvLayer,
    _: &AttentionMetadata,
) -> CubeTensor {
    unreachable!("ssd: state-space models run on the CPU only")
}
