//! Linear attention: a state of a fixed size for each head in place of keys and values.
//!
//! The state `S` of a head is a matrix `[key_dim, value_dim]`, 0 before the first token.
//!
//! - [`gated_delta_rule`] (HF `torch_recurrent_gated_delta_rule` of Qwen3-Next,
//!   <https://arxiv.org/abs/2412.06464>): q and k are divided by `√(Σx² + 1e-6)`, and q by
//!   `√key_dim`. With `β = β_max · σ(b)` and `d = exp(−exp(A_log) · softplus(a + dt_bias))`:
//!   `S ← d·S + k·(β·(v − d·Sᵀk))ᵀ`, and the output is `Sᵀq`.
//! - [`kimi_delta_rule`] (HF `recurrent_kimi_delta_attention`,
//!   <https://arxiv.org/abs/2510.26692>): the same with a decay of each row of the state,
//!   `S ← diag(d)·S + k·(β·(v − (diag(d)·S)ᵀk))ᵀ`. On the CPU only.
//! - [`lightning_attention`] (HF `MiniMaxLightningAttention`, <https://arxiv.org/abs/2501.08313>):
//!   `S ← exp(−slope)·S + k·vᵀ`, and the output is `Sᵀq`.
//!
//! Each key head serves `num_heads / num_key_heads` neighbouring heads. All f32. The tokens of a
//! sequence are taken one by one in any step, so a token's bytes do not depend on chunks. Bytes
//! moved: the state of each sequence once in and once out for each page written, and the inputs and
//! outputs of tokens. Tolerance: `1e-5` relative to the largest output of a token against f64, and
//! `5e-5` on a GPU, whose exponentials are less exact.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
mod kimi;
mod prepare;
mod recurrence;
#[cfg(test)]
mod reference;
mod shape;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

pub use self::kimi::{KimiDecay, KimiDeltaRule};
pub use self::shape::LinearHeads;
use crate::hot_ops::HotOps;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::{KernelError, WeightVector};

const WHAT: &str = "linear attention";

/// The heads and the weights of the gated delta rule.
#[derive(Debug)]
pub struct GatedDeltaRule {
    heads: LinearHeads,
    a_log: WeightVector,
    dt_bias: WeightVector,
    /// The limit of the factors of changes.
    beta_max: f32,
    /// The factors of normalised queries, then of keys, of all key heads. Only on a GPU.
    #[cfg(feature = "gpu")]
    key_scales: WeightVector,
    /// The place of the heads' states in the state of the layer.
    state_at: usize,
}

impl GatedDeltaRule {
    /// Returns a rule with the weights `a_log` and `dt_bias`, `[num_heads]` each. The states of its
    /// heads begin at the number `state_at` of the layer's state.
    ///
    /// # Errors
    /// Heads that do not fit together, weights of other lengths, or a device without kernels.
    pub fn new(
        heads: LinearHeads,
        a_log: Vec<f32>,
        dt_bias: Vec<f32>,
        state_at: usize,
        device: &Device,
    ) -> Result<Self, KernelError> {
        heads.check()?;
        for (field, vector) in [("A_log", &a_log), ("dt_bias", &dt_bias)] {
            KernelError::require_len(WHAT, field, vector.len(), heads.num_heads)?;
        }
        let keep = |values| WeightVector::new(values, device);
        Ok(Self {
            heads,
            a_log: keep(a_log)?,
            dt_bias: keep(dt_bias)?,
            beta_max: 1.0,
            #[cfg(feature = "gpu")]
            key_scales: keep(heads.key_scales())?,
            state_at,
        })
    }

    /// Returns the same rule with another limit of the factors of changes, which is 1. With 2, a
    /// change may turn a state around.
    #[must_use]
    pub fn with_beta_max(self, beta_max: f32) -> Self {
        Self { beta_max, ..self }
    }
}

/// Takes the states over the tokens of a step. `qkv` is `[num_tokens, columns]`: the queries of all
/// key heads, their keys, then the values of all heads. `gates` is `[num_tokens, 2 · num_heads]`: b
/// of all heads, then a. Returns `[num_tokens, num_heads · value_dim]`.
///
/// # Panics
/// If a shape disagrees with the rule, or `meta` with the rows or with `layer`.
#[must_use]
pub fn gated_delta_rule(
    qkv: Tensor<2>,
    gates: Tensor<2>,
    rule: &GatedDeltaRule,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> Tensor<2> {
    let (qkv, gates) = (qkv.into_dispatch(), gates.into_dispatch());
    Tensor::from_dispatch(Dispatch::gated_delta_rule(qkv, gates, rule, layer, meta))
}

/// Takes the states over the tokens of a step. `qkv` is as for [`gated_delta_rule`]. `gates` is
/// `[num_tokens, num_heads · key_dim]`: the gates of the rows of states, without `dt_bias`. `b` is
/// `[num_tokens, num_heads]`, with `β = σ(b)`. Returns `[num_tokens, num_heads · value_dim]`.
///
/// # Panics
/// If a shape disagrees with the rule, or `meta` with the rows or with `layer`.
#[must_use]
pub fn kimi_delta_rule(
    qkv: Tensor<2>,
    gates: Tensor<2>,
    b: Tensor<2>,
    rule: &KimiDeltaRule,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> Tensor<2> {
    let (qkv, gates, b) = (qkv.into_dispatch(), gates.into_dispatch(), b.into_dispatch());
    Tensor::from_dispatch(Dispatch::kimi_delta_rule(qkv, gates, b, rule, layer, meta))
}

/// The heads of lightning attention.
#[derive(Debug)]
pub struct LightningAttention {
    heads: LinearHeads,
    /// The factor of the state and that of the change, which is 1, of each head: `[num_heads, 2]`.
    factors: WeightVector,
    /// The place of the heads' states in the state of the layer.
    state_at: usize,
}

impl LightningAttention {
    /// Returns heads of `head_dim` elements, one for each of `slopes`. The state of a head shrinks
    /// by `exp(−slope)` with each token. The states begin at the number `state_at` of the layer's
    /// state.
    ///
    /// # Errors
    /// No heads, heads without elements, or a device without kernels.
    pub fn new(
        head_dim: usize,
        slopes: &[f32],
        state_at: usize,
        device: &Device,
    ) -> Result<Self, KernelError> {
        let heads = LinearHeads {
            num_key_heads: slopes.len(),
            num_heads: slopes.len(),
            key_dim: head_dim,
            value_dim: head_dim,
        };
        heads.check()?;
        let factors = slopes.iter().flat_map(|slope| [(-slope).exp(), 1.0]).collect();
        Ok(Self { heads, factors: WeightVector::new(factors, device)?, state_at })
    }
}

/// Takes the states over the tokens of a step. `qkv` is `[num_tokens, 3 · num_heads · head_dim]`:
/// the queries of all heads, their keys, then their values. Returns
/// `[num_tokens, num_heads · head_dim]`.
///
/// # Panics
/// If a shape disagrees with the heads, or `meta` with the rows or with `layer`.
#[must_use]
pub fn lightning_attention(
    qkv: Tensor<2>,
    attention: &LightningAttention,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> Tensor<2> {
    let qkv = qkv.into_dispatch();
    Tensor::from_dispatch(Dispatch::lightning_attention(qkv, attention, layer, meta))
}
