//! Mamba's selective scan (<https://arxiv.org/abs/2312.00752>; HF `mamba_selective_scan`).
//!
//! For each channel `c`, with B and C `[state_size]` of the token, which all channels share:
//!
//! - `Δ = softplus(dt[c] + dt_bias[c])`
//! - `S[n] = S[n] · exp(Δ · a[c, n]) + Δ · x[c] · B[n]`
//! - `y[c] = Σ_n S[n] · C[n] + d[c] · x[c]`
//!
//! All f32. The state of a layer is that of pieces of 64 channels, `[state_size, channels]` each,
//! rounded up to whole vectors. On a GPU all channels are one piece. One token is taken after
//! another, so the cuts of a prompt do not matter. Bytes moved: the state of each sequence twice,
//! whatever the number of tokens is. Tolerance `1e-5` relative to `Σ |S · C|`, and `5e-5` on a GPU,
//! whose exponentials are less exact.

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

use crate::device::Place;
use crate::hot_ops::HotOps;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::simd::LANES;
use crate::{KernelError, WeightVector};

/// Channels of a piece of work.
const PART: usize = 4 * LANES;

const WHAT: &str = "selective scan";

/// The sizes and weights of a selective scan.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectiveScanConfig {
    /// Channels.
    pub channels: usize,
    /// Elements of B and C.
    pub state_size: usize,
    /// `a`, below 0: `[channels, state_size]`.
    pub a: Vec<f32>,
    /// The factor of x: `[channels]`.
    pub d: Vec<f32>,
    /// The bias of dt: `[channels]`.
    pub dt_bias: Vec<f32>,
    /// The place of the scan's state in the state of the layer.
    pub state_at: usize,
}

/// A selective scan.
#[derive(Debug)]
pub struct SelectiveScan {
    sizes: Sizes,
    /// In the order of the state.
    a: WeightVector,
    /// Padded to whole vectors with zeros.
    d: WeightVector,
    /// Padded to whole vectors with zeros.
    dt_bias: WeightVector,
    state_at: usize,
}

impl SelectiveScan {
    /// Returns a scan.
    ///
    /// # Errors
    /// A size of 0, lengths that disagree, or a device without kernels.
    pub fn new(config: &SelectiveScanConfig, device: &Device) -> Result<Self, KernelError> {
        let SelectiveScanConfig { channels, state_size, ref a, ref d, ref dt_bias, state_at } =
            *config;
        for (field, size) in [("channels", channels), ("state_size", state_size)] {
            KernelError::require(size > 0, WHAT, field, 0, "at least 1")?;
        }
        KernelError::require_len(WHAT, "a", a.len(), channels * state_size)?;
        KernelError::require_len(WHAT, "d", d.len(), channels)?;
        KernelError::require_len(WHAT, "dt_bias", dt_bias.len(), channels)?;
        let a = match Place::of(device, WHAT)? {
            Place::Cpu => in_parts(a, Sizes { channels, state_size }),
            #[cfg(feature = "gpu")]
            Place::Cube(_) => {
                let of_element = |n| a.iter().skip(n).step_by(state_size);
                (0..state_size).flat_map(of_element).copied().collect()
            }
        };
        let padded = |values: &[f32]| {
            let mut padded = values.to_vec();
            padded.resize(channels.next_multiple_of(LANES), 0.0);
            WeightVector::new(padded, device)
        };
        Ok(Self {
            sizes: Sizes { channels, state_size },
            a: WeightVector::new(a, device)?,
            d: padded(d)?,
            dt_bias: padded(dt_bias)?,
            state_at,
        })
    }

    /// Returns the numbers of a state that a scan of this size takes.
    #[must_use]
    pub fn state_len(channels: usize, state_size: usize) -> usize {
        channels.next_multiple_of(LANES) * state_size
    }
}

/// The sizes of a scan, and the order of its state on the CPU.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    channels: usize,
    state_size: usize,
}

impl Sizes {
    fn num_parts(&self) -> usize {
        self.channels.div_ceil(PART)
    }

    fn channels_of(&self, part: usize) -> Range<usize> {
        part * PART..((part + 1) * PART).min(self.channels)
    }

    /// Returns the place of a part in the scan's state.
    fn place(&self, part: usize) -> Range<usize> {
        let Range { start, end } = self.channels_of(part);
        start * self.state_size..end.next_multiple_of(LANES) * self.state_size
    }
}

/// Returns `a`, `[channels, state_size]`, in the order of the state on the CPU.
fn in_parts(a: &[f32], sizes: Sizes) -> Vec<f32> {
    let mut arranged = vec![0.0; SelectiveScan::state_len(sizes.channels, sizes.state_size)];
    for part in 0..sizes.num_parts() {
        let (channels, start) = (sizes.channels_of(part), sizes.place(part).start);
        let width = channels.len().next_multiple_of(LANES);
        for (lane, channel) in channels.enumerate() {
            for n in 0..sizes.state_size {
                arranged[start + n * width + lane] = a[channel * sizes.state_size + n];
            }
        }
    }
    arranged
}

/// Takes the states over the tokens of a step. x and dt are `[num_tokens, channels]`, b and c
/// `[num_tokens, state_size]`. Returns y `[num_tokens, channels]`.
///
/// # Panics
/// If a shape disagrees with the scan, or `meta` with the rows or with `layer`.
#[must_use]
pub fn selective_scan(
    x: Tensor<2>,
    dt: Tensor<2>,
    [b, c]: [Tensor<2>; 2],
    scan: &SelectiveScan,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> Tensor<2> {
    let [x, dt, b, c] = [x, dt, b, c].map(Tensor::into_dispatch);
    Tensor::from_dispatch(Dispatch::selective_scan(x, dt, b, c, scan, layer, meta))
}
