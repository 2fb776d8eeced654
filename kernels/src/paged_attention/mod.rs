//! Causal attention over a paged KV cache, for a ragged batch of prefill chunks and decode tokens.
//!
//! Let token `t` be a query at position `i` of its sequence. Query head `h` has the key-value head
//! `g = h · num_kv_heads / num_heads`. Key `j` is visible if `j <= i`, and `j > i − window` where
//! there is a window. Over the visible keys, `s_j = cap(scale · q·k_j)`, `p = softmax(s)` and
//! `o = Σ_j p_j v_j`. Where a soft cap `c` is set, `cap(s) = c·tanh(s / c)`.
//!
//! | | |
//! |---|---|
//! | shapes | q, o `[num_tokens, num_heads · head_dim]` f32; the layer's keys and values f32, bf16 or int8 with a scale each |
//! | bytes moved | each visible key and value once a tile of queries; for a decode token `2 · seq_len · num_kv_heads · head_dim · sizeof(dtype)`, for all query heads of a key-value head together |
//! | order of a sum | keys are cut in spans of [`span::SPAN_TOKENS`] at absolute positions; a span is summed in order from zero, relative to its own maximum, and spans are joined in their order (Milakov & Gimelshein 2018; Dao et al. 2023, "Flash-Decoding") |
//! | threads | a batch is cut in tiles of queries and, where those are few, in spans ([`plan`]): the cut decides which thread computes a span, never the result of the span |
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

/// The parameters of attention that depend on the model's layer rather than on the batch.
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
    /// Whether long chunks may use a GPU's tensor cores. Those round to float16, and their sums
    /// depend on how a prompt is cut.
    pub tensor_cores: TensorCores,
}

/// Computes attention of q `[num_tokens, num_heads * head_dim]` over the sequences that `meta`
/// describes. The keys and values of this step must have been written. Returns a tensor of the
/// shape of `q`.
///
/// # Panics
/// If the shapes disagree, or `num_heads` is not a multiple of the layer's key-value heads. Also if
/// `meta` fails [`AttentionMetadata::validate`] in a way that would read outside the arena.
#[must_use]
pub fn paged_attention(
    q: Tensor<2>,
    layer: &KvLayer,
    meta: &AttentionMetadata,
    params: &AttentionParams,
) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::paged_attention(q.into_dispatch(), layer, meta, params))
}
