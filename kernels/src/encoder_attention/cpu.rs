//! The native version. Where it may round to bfloat16, and the processor multiplies that, it is
//! [`paired`]. Otherwise keys and values are laid out in the memory of the call before.

use std::cell::Cell;

use burn_flex::FlexTensor;

use super::paired::{self, Heads};
use super::{in_blocks, shape};
use crate::kv_cache::cpu::CpuKv;
use crate::paged_attention::cpu::attention;
use crate::profile::timed;
use crate::qk_norm_rope::cpu::qk_norm_rope;
use crate::simd::Isa;
use crate::tensors::{dense, dims2, values, values_mut};
use crate::workspace::{give_back, tensor};
use crate::{AttentionMetadata, AttentionParams, KvCacheShape, KvDtype, QkvHeads, RotaryTable};

thread_local! {
    /// Memory of keys and values.
    static KEPT: Cell<Option<CpuKv>> = const { Cell::new(None) };
}

/// Computes attention on CPU tensors.
pub(crate) fn encoder_attention(
    q: FlexTensor,
    k: FlexTensor,
    v: FlexTensor,
    num_kv_heads: usize,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> FlexTensor {
    let [tokens, width] = dims2(&q);
    let head_dim = width / params.num_heads;
    let of_keys = [tokens, num_kv_heads * head_dim];
    assert_eq!([meta.num_tokens(), params.num_heads * head_dim], dims2(&q), "encoder_attention: q");
    assert_eq!([of_keys; 2], [dims2(&k), dims2(&v)], "encoder_attention: shapes of k and v");
    params.check(num_kv_heads);
    let [q, k, v] = [q, k, v].map(dense);
    let mut o = tensor(tokens, width);
    let rows = [values(&q), values(&k), values(&v)];
    attend(Isa::active(), rows, [num_kv_heads, head_dim], meta, params, values_mut(&mut o));
    [q, k, v].into_iter().for_each(give_back);
    o
}

/// Computes attention of the heads of qkv.
pub(crate) fn encoder_self_attention(
    qkv: FlexTensor,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> FlexTensor {
    let isa = Isa::active();
    if !heads.are_ready(table) || !paired::takes(isa, params) {
        let (q, k, v) = timed("qk_norm_rope", || qk_norm_rope(qkv, heads, positions, table));
        let num_kv_heads = heads.num_kv_heads;
        return timed("attention", || encoder_attention(q, k, v, num_kv_heads, meta, params));
    }
    let [tokens, stride] = dims2(&qkv);
    heads.check([tokens, stride], positions, table);
    assert_eq!(meta.num_tokens(), tokens, "encoder_self_attention: tokens of the batch");
    assert_eq!(params.num_heads, heads.num_heads, "encoder_self_attention: heads");
    params.check(heads.num_kv_heads);
    let qkv = dense(qkv);
    let mut o = tensor(tokens, heads.q_size());
    let parts =
        heads.columns().map(|columns| Heads { data: values(&qkv), first: columns.start, stride });
    let sizes = [heads.num_kv_heads, heads.head_dim];
    timed("attention", || {
        paired::attention(isa, parts, sizes, meta, params, values_mut(&mut o));
    });
    give_back(qkv);
    o
}

/// Computes attention of the rows q, k and v on one instruction set.
pub(super) fn attend(
    isa: Isa,
    rows: [&[f32]; 3],
    heads: [usize; 2],
    meta: &AttentionMetadata,
    params: &AttentionParams,
    o: &mut [f32],
) {
    if paired::takes(isa, params) {
        let [num_kv_heads, head_dim] = heads;
        let [q, k, v] = rows;
        let of = |data, num_heads: usize| Heads { data, first: 0, stride: num_heads * head_dim };
        let heads_of = [of(q, params.num_heads), of(k, num_kv_heads), of(v, num_kv_heads)];
        return paired::attention(isa, heads_of, heads, meta, params, o);
    }
    in_blocks(meta, |meta| over_rows(isa, rows, heads, meta, params, o));
}

/// Computes attention of the rows q over the rows k and v, whose places in blocks `meta` has.
pub(crate) fn over_rows(
    isa: Isa,
    [q, k, v]: [&[f32]; 3],
    [num_kv_heads, head_dim]: [usize; 2],
    meta: &AttentionMetadata,
    params: &AttentionParams,
    o: &mut [f32],
) {
    let mut kv = memory(&shape(meta, num_kv_heads, head_dim));
    kv.write([k, v], &meta.slot_mapping);
    attention(isa, q, &kv, meta, params, o);
    KEPT.set(Some(kv));
}

/// Returns memory for keys and values of `shape`, or of more blocks: that of the call before, if it
/// fits. Operations return tensors and no errors, so a lack of memory panics as that for
/// activations does.
#[expect(clippy::panic, reason = "a step that lacks memory fails alone")]
fn memory(shape: &KvCacheShape) -> CpuKv {
    let kept = KEPT.take().filter(|kv| {
        let layout = &kv.layout;
        let heads = [layout.num_kv_heads, layout.head_dim];
        heads == [shape.num_kv_heads, shape.head_dim] && layout.num_blocks >= shape.num_blocks
    });
    kept.unwrap_or_else(|| {
        // Batches differ a little in length.
        let num_blocks = shape.num_blocks.next_multiple_of(32);
        let shape = KvCacheShape { num_blocks, ..*shape };
        CpuKv::new(&shape, KvDtype::F32, None).unwrap_or_else(|error| panic!("{error}"))
    })
}
