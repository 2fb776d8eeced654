//! The version for GPUs: the kernels of the paged cache, over an arena that lives for one call.

use burn_cubecl::tensor::CubeTensor;

use super::{in_blocks, shape};
use crate::cube::Rows;
use crate::kv_cache::cube::{CubeKv, reshape_and_cache};
use crate::kv_cache::{KvLayer, KvStorage};
use crate::paged_attention::cube::paged_attention;
use crate::{AttentionMetadata, AttentionParams, KvDtype};

/// Computes attention on GPU tensors.
#[expect(clippy::panic, reason = "a step that lacks memory fails alone")]
pub(crate) fn encoder_attention(
    q: CubeTensor,
    k: CubeTensor,
    v: CubeTensor,
    num_kv_heads: usize,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> CubeTensor {
    let queries = Rows::new(q.clone());
    let head_dim = queries.cols / params.num_heads;
    if queries.rows == 0 {
        return q;
    }
    in_blocks(meta, |meta| {
        let shape = shape(meta, num_kv_heads, head_dim);
        let kv = CubeKv::new(&shape, KvDtype::F32, queries.device());
        let kv = kv.unwrap_or_else(|error| panic!("{error}"));
        let mut layer = KvLayer::new(KvStorage::Cube(Box::new(kv)));
        reshape_and_cache(k, v, &mut layer, &meta.slot_mapping);
        paged_attention(q, &layer, meta, params)
    })
}
