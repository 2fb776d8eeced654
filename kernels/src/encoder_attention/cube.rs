//! The version for GPUs: the kernels of the paged cache, over an arena that lives for one call.

use burn_cubecl::tensor::CubeTensor;

use super::{in_blocks, shape};
use crate::cube::Rows;
use crate::kv_cache::cube::{CubeKv, reshape_and_cache};
use crate::kv_cache::{KvLayer, KvStorage};
use crate::paged_attention::cube::paged_attention;
use crate::profile::timed;
use crate::qk_norm_rope::cube::qk_norm_rope;
use crate::{AttentionMetadata, AttentionParams, KvDtype, QkvHeads, RotaryTable};

/// Computes attention on GPU tensors.
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
    in_blocks(meta, |meta| over_rows([q, k, v], [num_kv_heads, head_dim], meta, params))
}

/// Computes attention of the heads of qkv.
pub(crate) fn encoder_self_attention(
    qkv: CubeTensor,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> CubeTensor {
    let (q, k, v) = timed("qk_norm_rope", || qk_norm_rope(qkv, heads, positions, table));
    timed("attention", || encoder_attention(q, k, v, heads.num_kv_heads, meta, params))
}

/// Computes attention of the rows q over the rows k and v, whose places in blocks `meta` has.
#[expect(clippy::panic, reason = "a step that lacks memory fails alone")]
pub(crate) fn over_rows(
    [q, k, v]: [CubeTensor; 3],
    [num_kv_heads, head_dim]: [usize; 2],
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> CubeTensor {
    let shape = shape(meta, num_kv_heads, head_dim);
    let kv = CubeKv::new(&shape, KvDtype::F32, Rows::new(q.clone()).device());
    let kv = kv.unwrap_or_else(|error| panic!("{error}"));
    let mut layer = KvLayer::new(KvStorage::Cube(Box::new(kv)));
    reshape_and_cache(k, v, &mut layer, &meta.slot_mapping);
    paged_attention(q, &layer, meta, params)
}
