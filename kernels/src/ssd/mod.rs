//! Mamba 2's state-space model (<https://arxiv.org/abs/2405.21060>; HF `mamba2_chunk_scan`).
//!
//! For each head, `x` `[head_dim]` and `dt` of a token, and the token's `B` and `C`
//! `[state_size]`, which the heads of a group share:
//!
//! - `Δ = clamp(softplus(dt_scale · dt + dt_bias), limit)`
//! - `S[n, p] = S[n, p] · exp(Δ · a) + Δ · x[p] · B[n]`
//! - `y[p] = Σ_n S[n, p] · C[n] + d · x[p]`
//!
//! All f32. The state of a layer is `[num_heads, state_size, head_dim]`, with `head_dim` rounded up
//! to whole vectors. One token is taken after another, so the cuts of a prompt do not matter. Bytes
//! moved: the state of each sequence twice, whatever the number of tokens is. Tolerance `1e-5`
//! relative to `Σ |S · C|`, and `5e-5` on a GPU, whose exponentials are less exact.

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

use crate::hot_ops::HotOps;
use crate::kv_cache::KvLayer;
use crate::paged_attention::AttentionMetadata;
use crate::simd::LANES;
use crate::{KernelError, WeightVector};

const WHAT: &str = "state-space model";

/// The sizes and weights of a state-space model.
#[derive(Debug, Clone, PartialEq)]
pub struct SsdConfig {
    /// Heads; a multiple of the groups.
    pub num_heads: usize,
    /// Elements of x in a head.
    pub head_dim: usize,
    /// Elements of B and C in a group.
    pub state_size: usize,
    /// Groups of heads that share B and C.
    pub num_groups: usize,
    /// `a` of each head, below 0: `[num_heads]`.
    pub a: Vec<f32>,
    /// The factor of x in each head: `[num_heads]`.
    pub d: Vec<f32>,
    /// The bias of dt in each head: `[num_heads]`.
    pub dt_bias: Vec<f32>,
    /// The factor of dt before its bias.
    pub dt_scale: f32,
    /// The least and the largest Δ.
    pub dt_limit: [f32; 2],
    /// The place of the model's state in the state of the layer.
    pub state_at: usize,
}

/// A state-space model. Its fields are those of [`SsdConfig`].
#[derive(Debug)]
pub struct Ssd {
    sizes: SsdSizes,
    a: WeightVector,
    d: WeightVector,
    dt_bias: WeightVector,
    dt_scale: f32,
    dt_limit: [f32; 2],
    state_at: usize,
}

/// The sizes of a [`SsdConfig`].
#[derive(Debug, Clone, Copy)]
struct SsdSizes {
    num_heads: usize,
    head_dim: usize,
    state_size: usize,
    num_groups: usize,
}

impl Ssd {
    /// Returns a model.
    ///
    /// # Errors
    /// A size of 0, heads that groups do not divide, lengths that disagree, or a device without
    /// kernels.
    pub fn new(config: SsdConfig, device: &Device) -> Result<Self, KernelError> {
        let SsdConfig { num_heads, head_dim, state_size, num_groups, .. } = config;
        let sizes = [
            ("num_heads", num_heads),
            ("head_dim", head_dim),
            ("state_size", state_size),
            ("num_groups", num_groups),
        ];
        for (field, size) in sizes {
            KernelError::require(size > 0, WHAT, field, 0, "at least 1")?;
        }
        let divides = num_heads.is_multiple_of(num_groups);
        let accepted = format!("a divisor of num_heads, {num_heads}");
        KernelError::require(divides, WHAT, "num_groups", num_groups as u64, accepted)?;
        for (field, values) in [("a", &config.a), ("d", &config.d), ("dt_bias", &config.dt_bias)] {
            KernelError::require_len(WHAT, field, values.len(), num_heads)?;
        }
        let keep = |values| WeightVector::new(values, device);
        let SsdConfig { dt_scale, dt_limit, state_at, .. } = config;
        Ok(Self {
            sizes: SsdSizes { num_heads, head_dim, state_size, num_groups },
            a: keep(config.a)?,
            d: keep(config.d)?,
            dt_bias: keep(config.dt_bias)?,
            dt_scale,
            dt_limit,
            state_at,
        })
    }

    /// Returns the numbers of a state that a model of this size takes.
    #[must_use]
    pub fn state_len(num_heads: usize, head_dim: usize, state_size: usize) -> usize {
        num_heads * state_size * head_dim.next_multiple_of(LANES)
    }

    /// Returns the elements of a token's x in all heads.
    #[must_use]
    pub fn width(&self) -> usize {
        self.sizes.num_heads * self.sizes.head_dim
    }

    /// Returns the columns of x, B and C together.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.width() + 2 * self.sizes.num_groups * self.sizes.state_size
    }

    fn state_of(&self, head: usize) -> Range<usize> {
        let SsdSizes { head_dim, state_size, .. } = self.sizes;
        let (state_at, len) = (self.state_at, Self::state_len(1, head_dim, state_size));
        state_at + head * len..state_at + (head + 1) * len
    }
}

/// Takes the states over the tokens of a step. `xbc` is `[num_tokens, columns]`: x of all heads, B
/// of all groups, then C of all groups. dt of the heads are the columns of `dt` from `column` on,
/// and `dt` is `[num_tokens, any]`. Returns y `[num_tokens, num_heads · head_dim]`.
///
/// # Panics
/// If a width disagrees with the model, or `meta` with the rows or with `layer`.
#[must_use]
pub fn ssd(
    xbc: Tensor<2>,
    dt: Tensor<2>,
    column: usize,
    model: &Ssd,
    layer: &mut KvLayer,
    meta: &AttentionMetadata,
) -> Tensor<2> {
    let (xbc, dt) = (xbc.into_dispatch(), dt.into_dispatch());
    Tensor::from_dispatch(Dispatch::ssd(xbc, dt, column, model, layer, meta))
}
