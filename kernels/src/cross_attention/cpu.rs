//! The native version: keys and values are laid out in the memory of the call before.

use burn_flex::FlexTensor;

use super::{batch, check};
use crate::AttentionParams;
use crate::encoder_attention::cpu::over_rows;
use crate::simd::Isa;
use crate::tensors::{dense, dims2, values, values_mut};
use crate::workspace::{give_back, tensor};

/// Computes attention on CPU tensors.
pub(crate) fn cross_attention(
    q: FlexTensor,
    k: FlexTensor,
    v: FlexTensor,
    num_kv_heads: usize,
    params: &AttentionParams,
) -> FlexTensor {
    let ([tokens, width], [keys, of_keys]) = (dims2(&q), dims2(&k));
    let head_dim = width / params.num_heads;
    assert_eq!(width, params.num_heads * head_dim, "cross_attention: width of q");
    assert_eq!([keys, num_kv_heads * head_dim], [keys, of_keys], "cross_attention: shape of k");
    assert_eq!(dims2(&v), [keys, of_keys], "cross_attention: shape of v");
    check(params, num_kv_heads, keys);
    let [q, k, v] = [q, k, v].map(dense);
    let mut o = tensor(tokens, width);
    let rows = [values(&q), values(&k), values(&v)];
    attend(Isa::active(), rows, [num_kv_heads, head_dim], params, values_mut(&mut o));
    // Later steps read the keys and values again.
    give_back(q);
    o
}

/// Computes attention of the rows q over the rows k and v on one instruction set.
pub(super) fn attend(
    isa: Isa,
    rows: [&[f32]; 3],
    [num_kv_heads, head_dim]: [usize; 2],
    params: &AttentionParams,
    o: &mut [f32],
) {
    let num_tokens = rows[0].len() / (params.num_heads * head_dim);
    let meta = batch(num_tokens, rows[1].len() / (num_kv_heads * head_dim));
    over_rows(isa, rows, [num_kv_heads, head_dim], &meta, params, o);
}
