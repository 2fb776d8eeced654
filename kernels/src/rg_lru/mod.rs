//! The real-gated linear recurrent unit of Griffin (<https://arxiv.org/abs/2402.19427>; HF
//! `RecurrentGemmaRglru`).
//!
//! For each channel `c`, with the gates of the token:
//!
//! - `i = σ(input_gate[c] + bias)`, `r = σ(recurrence_gate[c] + bias)`
//! - `ln a = −rate[c] · r`
//! - `h[c] = a · h[c] + √(1 − a²) · i · x[c]`
//!
//! The first token of a sequence has 1 in place of `√(1 − a²)`. The result is `h`.
//!
//! All f32. Channels are in heads. The gates of a token are those of head after head: first the
//! input gates of a head, then its recurrence gates. The state of a layer is `h`, in the order of
//! the channels. One token is taken after another, so the cuts of a prompt do not matter. Bytes
//! moved: the rows once, and the state of each sequence twice. Tolerance `1e-5` for x within ±1,
//! and `5e-5` on a GPU, whose exponentials are less exact.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use crate::hot_ops::HotOps;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::{KernelError, WeightVector};

const WHAT: &str = "RG-LRU";

/// The sizes and weights of a recurrent unit.
#[derive(Debug, Clone, PartialEq)]
pub struct RgLruConfig {
    /// Heads.
    pub num_heads: usize,
    /// The rate of each channel, above 0: `[num_heads * head_dim]`.
    pub rates: Vec<f32>,
    /// The biases of gates: `[num_heads, 2, head_dim]`, those of input gates first.
    pub gate_biases: Vec<f32>,
    /// The place of the unit's state in the state of the layer.
    pub state_at: usize,
}

/// A recurrent unit.
#[derive(Debug)]
pub struct RgLru {
    num_heads: usize,
    head_dim: usize,
    rates: WeightVector,
    gate_biases: WeightVector,
    state_at: usize,
}

impl RgLru {
    /// Returns a unit.
    ///
    /// # Errors
    /// A size of 0, lengths that disagree, or a device without kernels.
    pub fn new(config: &RgLruConfig, device: &Device) -> Result<Self, KernelError> {
        let RgLruConfig { num_heads, ref rates, ref gate_biases, state_at } = *config;
        KernelError::require(num_heads > 0, WHAT, "num_heads", 0, "at least 1")?;
        let head_dim = rates.len() / num_heads;
        KernelError::require(head_dim > 0, WHAT, "rates", rates.len() as u64, "one a channel")?;
        KernelError::require_len(WHAT, "rates", rates.len(), num_heads * head_dim)?;
        KernelError::require_len(WHAT, "gate_biases", gate_biases.len(), 2 * rates.len())?;
        Ok(Self {
            num_heads,
            head_dim,
            rates: WeightVector::new(rates.clone(), device)?,
            gate_biases: WeightVector::new(gate_biases.clone(), device)?,
            state_at,
        })
    }

    /// Returns the number of channels, which is that of the numbers of its state.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.num_heads * self.head_dim
    }
}

/// Takes the states over the tokens of a step. x is `[num_tokens, channels]`, and the gates are
/// `[num_tokens, num_heads * 2 * head_dim]`. Returns h, `[num_tokens, channels]`.
///
/// # Panics
/// If a shape disagrees with the unit, or `meta` with the rows or with `layer`.
#[must_use]
pub fn rg_lru(
    x: Tensor<2>,
    gates: Tensor<2>,
    unit: &RgLru,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> Tensor<2> {
    let (x, gates) = (x.into_dispatch(), gates.into_dispatch());
    Tensor::from_dispatch(Dispatch::rg_lru(x, gates, unit, layer, meta))
}
