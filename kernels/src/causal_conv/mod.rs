//! A causal convolution over the tokens of each sequence, for each channel apart (HF
//! `causal_conv1d_fn`; <https://arxiv.org/abs/2312.00752>).
//!
//! `y[t, c] = f(bias[c] + Σ_j weight[c, j] · x[t − kernel + 1 + j, c])`, where tokens before the
//! first are 0. All f32. The `kernel − 1` tokens before a step are the state of the layer. Taps are
//! added from the oldest to the newest. Bytes moved: `num_tokens · channels · 8`, and the window
//! twice. Tolerance `1e-6` relative to `Σ |weight · x|`.

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

use std::ops::Range;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use crate::activation::Activation;
use crate::device::Place;
use crate::hot_ops::HotOps;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::simd::LANES;
use crate::{KernelError, WeightVector};

/// Channels that one piece of work has.
const PART: usize = 4 * LANES;

const WHAT: &str = "causal convolution";

/// The weights of a convolution.
#[derive(Debug)]
pub struct CausalConv {
    channels: usize,
    kernel: usize,
    /// `[part][kernel][PART]`, padded with zeros. On a GPU `[kernel][channels]`.
    weight: WeightVector,
    /// `[part][PART]`, padded with zeros. On a GPU `[channels]`.
    bias: WeightVector,
    activation: Option<Activation>,
    /// The place of the window in the state of the layer.
    state_at: usize,
}

impl CausalConv {
    /// Returns a convolution with `weight` `[channels, kernel]` and `bias` `[channels]`. Its window
    /// begins at the number `state_at` of the layer's state.
    ///
    /// # Errors
    /// No channels, no taps, lengths that disagree, or a device without kernels.
    pub fn new(
        weight: &[f32],
        bias: Option<&[f32]>,
        kernel: usize,
        activation: Option<Activation>,
        state_at: usize,
        device: &Device,
    ) -> Result<Self, KernelError> {
        KernelError::require(kernel > 0, WHAT, "kernel", 0, "at least 1")?;
        let channels = weight.len() / kernel;
        KernelError::require(channels > 0, WHAT, "channels", 0, "at least 1")?;
        KernelError::require_len(WHAT, "weight", weight.len(), channels * kernel)?;
        if let Some(bias) = bias {
            KernelError::require_len(WHAT, "bias", bias.len(), channels)?;
        }
        let part = match Place::of(device, WHAT)? {
            Place::Cpu => PART,
            #[cfg(feature = "gpu")]
            Place::Cube(_) => channels,
        };
        let parts = channels.div_ceil(part);
        let mut arranged = vec![0.0; parts * kernel * part];
        let mut padded = vec![0.0; parts * part];
        for channel in 0..channels {
            let (index, lane) = (channel / part, channel % part);
            for tap in 0..kernel {
                arranged[(index * kernel + tap) * part + lane] = weight[channel * kernel + tap];
            }
            padded[channel] = bias.map_or(0.0, |bias| bias[channel]);
        }
        let weight = WeightVector::new(arranged, device)?;
        let bias = WeightVector::new(padded, device)?;
        Ok(Self { channels, kernel, weight, bias, activation, state_at })
    }

    /// Returns the numbers of a state that a window of so many channels takes.
    #[must_use]
    pub fn state_len(channels: usize, kernel: usize) -> usize {
        channels * kernel.saturating_sub(1)
    }

    /// Returns the number of channels.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.channels
    }

    fn num_parts(&self) -> usize {
        self.channels.div_ceil(PART)
    }

    fn channels_of(&self, part: usize) -> Range<usize> {
        part * PART..((part + 1) * PART).min(self.channels)
    }
}

/// Convolves the channels of x that begin at column `column`: x is `[num_tokens, columns]`, the
/// result `[num_tokens, channels]`. Reads and writes the windows of the sequences in `layer`.
///
/// # Panics
/// If x has too few columns, or `meta` disagrees with x or `layer`.
#[must_use]
pub fn causal_conv(
    x: Tensor<2>,
    column: usize,
    conv: &CausalConv,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> Tensor<2> {
    let x = x.into_dispatch();
    Tensor::from_dispatch(Dispatch::causal_conv(x, column, conv, layer, meta))
}
