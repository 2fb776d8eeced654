//! Causal attention over a paged KV cache, for a ragged batch of prefill chunks and decode tokens.
//!
//! For query token `t` at position `i` of its sequence and query head `h`, with `g = h · num_kv_heads
//! / num_heads` its key-value head: `s_j = cap(scale · q·k_j)` over the visible keys `j` (`j <= i`,
//! and `j > i − window` where there is one), `p = softmax(s)`, `o = Σ_j p_j v_j`; `cap(s) =
//! c·tanh(s / c)` where a soft cap `c` is set.
//!
//! | | |
//! |---|---|
//! | shapes | q, o `[num_tokens, num_heads · head_dim]` f32; the layer's keys and values f32, bf16 or int8 with a scale each |
//! | bytes moved | each visible key and value once a tile of queries; for a decode token `2 · seq_len · num_kv_heads · head_dim · sizeof(dtype)`, for all query heads of a key-value head together |
//! | order of a sum | keys are cut in spans of [`span::SPAN_TOKENS`] at absolute positions; a span is summed in order from zero, relative to its own maximum, and spans are joined in their order (Milakov & Gimelshein 2018; Dao et al. 2023, "Flash-Decoding") |
//! | threads | a batch is cut in tiles of queries and, where those are few, in spans ([`plan`]): what depends on it is who computes a span, never what it comes to |
//! | tolerance | `4e-6 · max|v|` against f64 over the stored keys and values; with bf16 keys AVX-512 bf16 (not AMX) rounds q to bf16, and the bound holds for the rounded q |
//! | int8 against f32 | stored elements are within `a/253` of the row's own, a its largest: with `e = scale · max_j(Σ|q| · a(k_j)) / 253` the result is within `(exp(2 e) − 1) · max|v| + max|v| / 253` |

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
mod metadata;
mod plan;
#[cfg(test)]
mod reference;
mod scores;
mod softmax;
mod span;
#[cfg(test)]
mod tests;
mod tile;
mod weighted_sum;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::TensorCores;
use crate::hot_ops::HotOps;
use crate::kv_cache::KvLayer;
pub use metadata::AttentionMetadata;

/// What of attention depends on the model's layer rather than on the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionParams {
    /// Query heads; a multiple of the cache's `num_kv_heads`.
    pub num_heads: usize,
    /// Factor on `q·k`, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Key `j` is visible to query `i` iff `i - window < j <= i` (HF's semantics).
    pub sliding_window: Option<u32>,
    /// `c` of `c · tanh(s / c)`, applied to scaled scores.
    pub soft_cap: Option<f32>,
    /// Whether long chunks may go through a GPU's tensor cores, which round to float16 and whose sums
    /// depend on how a prompt is cut.
    pub tensor_cores: TensorCores,
}

/// Attention of q `[num_tokens, num_heads * head_dim]` over the sequences that `meta` describes;
/// the keys and values of this step must have been written. Result shaped as `q`.
///
/// # Panics
/// If the shapes disagree, `num_heads` is no multiple of the layer's key-value heads, or `meta`
/// fails [`AttentionMetadata::validate`] in a way that would read outside the arena.
#[must_use]
pub fn paged_attention(
    q: Tensor<2>,
    layer: &KvLayer,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::paged_attention(q.into_dispatch(), layer, meta, params))
}
