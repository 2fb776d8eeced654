//! Attention of whole sequences to both sides, for a ragged batch without padding. No later step
//! reads their keys and values, so there is no KV cache.
//!
//! The maths, the tolerance and the promises are those of
//! [`paged_attention`](super::paged_attention). The mask is
//! [`AttentionMask::Both`](super::AttentionMask::Both) or
//! [`AttentionMask::Around`](super::AttentionMask::Around). Keys and values are laid out as in the
//! cache, in f32, in memory that the next call reuses: one vector then holds the same dimension of
//! sixteen keys. Every sequence begins a block, so the spans of its sums do not depend on its place
//! in the batch.
//!
//! With [`AttentionParams::rounds_to_bf16`], CPUs that multiply bfloat16 in vectors round q, k, v
//! and the weights to it ([`paired`]). The sums of a sequence do not depend on its batch there,
//! either.
//!
//! | | |
//! |---|---|
//! | shapes | q, o `[num_tokens, num_heads · head_dim]`, k, v `[num_tokens, num_kv_heads · head_dim]` f32 |
//! | bytes moved | k and v twice to lay them out, and then as in the cache: `16 · num_tokens · num_kv_heads · head_dim`, and each key and value once a tile of 24 queries |

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
mod paired;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;
use crate::{AttentionMetadata, AttentionParams, KvCacheShape, QkvHeads, RotaryTable};

/// Tokens of a block: a vector of lanes, so that short sequences leave little room unused.
pub(crate) const BLOCK_SIZE: usize = 16;

/// Computes attention of q `[num_tokens, num_heads * head_dim]` over k and v,
/// `[num_tokens, num_kv_heads * head_dim]`. Of `meta`, only the sequences and the positions are
/// read. Returns `[num_tokens, num_heads * head_dim]`.
///
/// # Panics
/// If the shapes disagree, or `num_heads` is not a multiple of `num_kv_heads`. Also if the mask's
/// width is 0, or a sequence is not whole: its positions are `0 .. seq_lens`.
#[must_use]
pub fn encoder_attention(
    q: Tensor<2>,
    k: Tensor<2>,
    v: Tensor<2>,
    num_kv_heads: usize,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> Tensor<2> {
    let [q, k, v] = [q, k, v].map(Tensor::into_dispatch);
    Tensor::from_dispatch(Dispatch::encoder_attention(q, k, v, num_kv_heads, meta, params))
}

/// Computes [`encoder_attention`] of the queries, keys and values that
/// [`qk_norm_rope`](crate::qk_norm_rope()) returns for qkv, `[num_tokens, q_size + 2 * kv_size]`.
/// Returns `[num_tokens, q_size]`, with the same bytes. Where a layer changes no heads, and their
/// products are of bfloat16, the heads are read where they are. Recordings of times have both parts
/// by their names `qk_norm_rope` and `attention`, or the second name alone.
///
/// # Panics
/// Where one of the two operations panics.
#[must_use]
pub fn encoder_self_attention(
    qkv: Tensor<2>,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> Tensor<2> {
    let qkv = qkv.into_dispatch();
    let o = Dispatch::encoder_self_attention(qkv, heads, positions, table, meta, params);
    Tensor::from_dispatch(o)
}

thread_local! {
    /// The last batch in blocks, which the other layers of its step take over.
    static LAID_OUT: RefCell<AttentionMetadata> = RefCell::default();
}

/// Calls `f` with the batch of `meta` in blocks. Each sequence has blocks of its own, in order.
fn in_blocks<T>(meta: &AttentionMetadata, f: impl FnOnce(&AttentionMetadata) -> T) -> T {
    LAID_OUT.with_borrow_mut(|laid_out| {
        if laid_out.query_start_loc != meta.query_start_loc {
            lay_out(meta, laid_out);
        }
        f(laid_out)
    })
}

fn lay_out(meta: &AttentionMetadata, out: &mut AttentionMetadata) {
    out.query_start_loc.clone_from(&meta.query_start_loc);
    out.positions.clone_from(&meta.positions);
    out.seq_lens.clone_from(&meta.seq_lens);
    out.slot_mapping.clear();
    out.block_tables.clear();
    let mut first_block = 0;
    for (seq, &len) in meta.seq_lens.iter().enumerate() {
        let tokens = meta.tokens_of(seq);
        let is_whole = meta.positions[tokens].iter().copied().eq(0..len);
        assert!(is_whole, "encoder_attention: sequence {seq} of {len} tokens is not whole");
        let first_slot = first_block * BLOCK_SIZE as u32;
        out.slot_mapping.extend(first_slot..first_slot + len);
        let end = first_block + len.div_ceil(BLOCK_SIZE as u32);
        out.block_tables.push((first_block..end).collect());
        first_block = end;
    }
}

/// Returns the shape of keys and values of a batch in blocks.
fn shape(meta: &AttentionMetadata, num_kv_heads: usize, head_dim: usize) -> KvCacheShape {
    KvCacheShape {
        num_layers: 1,
        num_blocks: meta.block_tables.iter().map(Vec::len).sum::<usize>().max(1),
        block_size: BLOCK_SIZE,
        num_kv_heads,
        head_dim,
        value_head_dim: head_dim,
        values_in_keys: false,
        state_len: 0,
    }
}
