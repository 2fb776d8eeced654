//! GPUs have no version: [`SelectiveScan::new`] refuses them.

use burn_cubecl::tensor::CubeTensor;

use super::SelectiveScan;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;

/// Is never called.
pub(crate) fn selective_scan(
    _: CubeTensor,
    _: CubeTensor,
    _: CubeTensor,
    _: CubeTensor,
    _: &SelectiveScan,
    _: &mut KvLayer,
    _: &AttentionMetadata,
) -> CubeTensor {
    unreachable!("selective_scan: scans run on the CPU only")
}
