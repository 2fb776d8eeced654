//! A gate over the output of a state-space model, with a norm before or after it (HF
//! `MambaRMSNormGated`; <https://arxiv.org/abs/2405.21060>).
//!
//! `y = norm(x · f(scale · gate))`, or `y = norm(x) · f(scale · gate)`, or `y = x · f(scale ·
//! gate)`. The norm is `x / sqrt(mean(x²) + eps) · weight` over each group of features. All f32; x
//! and y `[rows, features]`. Bytes moved: `rows · features · 12`. Tolerance `2e-6` relative to the
//! largest |y|, and `2e-5` on a GPU.

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
use burn::tensor::Tensor;

use crate::WeightVector;
use crate::activation::Activation;
use crate::hot_ops::HotOps;

/// A gate, and the norm beside it.
#[derive(Debug)]
pub struct GatedNorm {
    /// The norm, if there is one.
    pub norm: Option<GroupNorm>,
    /// Whether x is normalised before it is gated. Otherwise the product is.
    pub norm_before_gate: bool,
    /// The function of the gate.
    pub activation: Activation,
    /// The factor of the gate.
    pub gate_scale: f32,
}

/// A norm of root mean squares over groups of neighbouring features.
#[derive(Debug)]
pub struct GroupNorm {
    /// The factors: one a feature, or those of one group, which all groups share.
    pub weight: WeightVector,
    /// Groups; a divisor of the features.
    pub num_groups: usize,
    /// The number added to the mean square.
    pub eps: f32,
}

/// Gates and normalises the rows of x `[rows, features]`. Their gates are the columns of `gate`,
/// `[rows, any]`, from `column` on.
///
/// # Panics
/// If `gate` has other rows or too few columns, or the norm does not fit the features.
#[must_use]
pub fn gated_norm(x: Tensor<2>, gate: Tensor<2>, column: usize, norm: &GatedNorm) -> Tensor<2> {
    let (x, gate) = (x.into_dispatch(), gate.into_dispatch());
    Tensor::from_dispatch(Dispatch::gated_norm(x, gate, column, norm))
}
