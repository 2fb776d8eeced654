//! Attention over a paged KV cache, for a ragged batch of prefill chunks and decode tokens.
//!
//! Let token `t` be a query at position `i` of its sequence. Query head `h` has the key-value head
//! `g = h · num_kv_heads / num_heads`. Key `j` is visible as [`AttentionMask`] says: in causal
//! attention if `j <= i`, and `j > i − window` where there is a sliding window, and
//! `⌊j / chunk⌋ = ⌊i / chunk⌋` where there are chunks. A batch may let a query see further keys
//! after its own ([`AttentionMetadata::visible_ends`]). Over the visible keys
//!
//! ```text
//! s_j = cap(scale · q·k_j) + slope_h · (j − i) + bias_h(j − i)     cap(s) = c · tanh(s / c)
//! p_j = exp(s_j − m) / (exp(sink_h − m) + Σ_j exp(s_j − m))
//! o   = Σ_j p_j v_j
//! ```
//!
//! for any m; the largest score, sink included, is taken. A layer may have a soft cap c (Gemma 2),
//! slopes (ALiBi, Press et al. 2021), biases of distances (T5) and sinks (gpt-oss), in any
//! combination. A feature that it
//! does not have is left out of these formulas. BLOOM adds `slope_h · j`, and MPT
//! `slope_h · (j − n + 1)` for n keys. These differ from the bias here by a constant of the query,
//! so the softmax is the same.
//!
//! | | |
//! |---|---|
//! | shapes | q `[num_tokens, num_heads · head_dim]`, o `[num_tokens, num_heads · value_head_dim]` f32; slopes, sinks `[num_heads]` f32; the layer's keys and values f32, bf16 or int8 with a scale each |
//! | values | stored beside keys, or the first elements of keys (multi-head latent attention, DeepSeek-AI 2024): then a key is read for its score and for the sum, and no value is stored |
//! | bytes moved | each visible key and value once a tile of queries; for a decode token `visible · num_kv_heads · (head_dim + value_head_dim) · sizeof(dtype)`, for all query heads of a key-value head together |
//! | order of a sum | keys are cut in spans of [`span::SPAN_TOKENS`] at absolute positions; a span is summed in order from zero, relative to its own maximum, and spans are joined in their order (Milakov & Gimelshein 2018; Dao et al. 2023, "Flash-Decoding"); a sink joins last, like a span of one key whose value is zero |
//! | threads | a batch is cut in tiles of queries and, where those are few, in spans ([`plan`]): the cut decides which thread computes a span, never the result of the span |
//! | tolerance | `4e-6 · max|v|` against f64 over the stored keys and values; with bf16 keys AVX-512 bf16 (not AMX) rounds q to bf16, and the bound holds for the rounded q |
//! | slopes | a bias is rounded once, when it is added; distances below 2²⁴ are exact |
//! | int8 against f32 | stored elements are within `a/253` of the row's own, a its largest: with `e = scale · max_j(Σ|q| · a(k_j)) / 253` the result is within `(exp(2 e) − 1) · max|v| + max|v| / 253` |

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
mod distance_biases;
mod mask;
mod metadata;
mod params;
mod plan;
#[cfg(test)]
pub(crate) mod reference;
mod scores;
mod softmax;
mod span;
#[cfg(test)]
mod tests;
mod tile;
mod weighted_key_sum;
mod weighted_sum;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;
use crate::kv_cache::KvLayer;
pub use distance_biases::DistanceBiases;
pub use mask::AttentionMask;
pub use metadata::AttentionMetadata;
pub use params::AttentionParams;

/// Computes attention of q `[num_tokens, num_heads * head_dim]` over the sequences that `meta`
/// describes. The keys and values of this step must have been written. Returns
/// `[num_tokens, num_heads * value_head_dim]`.
///
/// # Panics
/// If the shapes disagree, or `num_heads` is not a multiple of the layer's key-value heads. Also if
/// the mask's width is 0, or `meta` fails [`AttentionMetadata::validate`] in a way that would read
/// outside the arena.
#[must_use]
pub fn paged_attention(
    q: Tensor<2>,
    layer: &KvLayer,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::paged_attention(q.into_dispatch(), layer, meta, params))
}
