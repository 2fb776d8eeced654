//! Attention of a decoder's tokens to all states of an encoder, which no step changes.
//!
//! The maths, the tolerance and the promises are those of
//! [`paged_attention`](super::paged_attention) with the mask
//! [`AttentionMask::Both`](super::AttentionMask::Both). Each query sees every key, so its own
//! position does not matter. Keys and values are laid out as in
//! [`encoder_attention`](super::encoder_attention), once a call.
//!
//! | | |
//! |---|---|
//! | shapes | q, o `[num_tokens, num_heads · head_dim]`, k, v `[num_keys, num_kv_heads · head_dim]` f32 |
//! | bytes moved | `16 · num_keys · num_kv_heads · head_dim` to lay them out, and each key and value once a tile of 24 queries |

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::encoder_attention::BLOCK_SIZE;
use crate::hot_ops::HotOps;
use crate::{AttentionMask, AttentionMetadata, AttentionParams};

/// Computes attention of q `[num_tokens, num_heads * head_dim]` over all of k and v,
/// `[num_keys, num_kv_heads * head_dim]`. The tokens are those of one sequence. Returns
/// `[num_tokens, num_heads * head_dim]`.
///
/// # Panics
/// If the shapes disagree, there are no keys, or `num_heads` is not a multiple of `num_kv_heads`.
/// Also if the mask is not [`AttentionMask::Both`], or a score depends on a position.
#[must_use]
pub fn cross_attention(
    q: Tensor<2>,
    k: Tensor<2>,
    v: Tensor<2>,
    num_kv_heads: usize,
    params: &AttentionParams,
) -> Tensor<2> {
    let [q, k, v] = [q, k, v].map(Tensor::into_dispatch);
    Tensor::from_dispatch(Dispatch::cross_attention(q, k, v, num_kv_heads, params))
}

/// Returns a batch of one sequence: queries at the last of the keys, which fill blocks in order.
fn batch(num_tokens: usize, num_keys: usize) -> AttentionMetadata {
    let (tokens, keys) = (num_tokens as u32, num_keys as u32);
    AttentionMetadata {
        query_start_loc: vec![0, tokens],
        seq_lens: vec![keys],
        block_tables: vec![(0..keys.div_ceil(BLOCK_SIZE as u32)).collect()],
        slot_mapping: (0..keys).collect(),
        positions: vec![keys - 1; num_tokens],
        visible_ends: Vec::new(),
        num_guesses: Vec::new(),
    }
}

/// # Panics
/// As [`cross_attention`].
fn check(params: &AttentionParams, num_kv_heads: usize, num_keys: usize) {
    params.check(num_kv_heads);
    assert!(num_keys > 0, "cross_attention: no keys");
    let is_even = params.alibi_slopes.is_none() && params.distance_biases.is_none();
    assert!(params.mask == AttentionMask::Both && is_even, "cross_attention: positions matter");
}
