//! The version for GPUs: the kernels of the paged cache, over an arena that lives for one call.

use burn_cubecl::tensor::CubeTensor;

use super::{batch, check};
use crate::AttentionParams;
use crate::cube::Rows;
use crate::encoder_attention::cube::over_rows;

/// Computes attention on GPU tensors.
pub(crate) fn cross_attention(
    q: CubeTensor,
    k: CubeTensor,
    v: CubeTensor,
    num_kv_heads: usize,
    params: &AttentionParams,
) -> CubeTensor {
    let (queries, keys) = (Rows::new(q.clone()), Rows::new(k.clone()));
    check(params, num_kv_heads, keys.rows);
    if queries.rows == 0 {
        return q;
    }
    let head_dim = queries.cols / params.num_heads;
    let meta = batch(queries.rows, keys.rows);
    over_rows([q, k, v], [num_kv_heads, head_dim], &meta, params)
}
