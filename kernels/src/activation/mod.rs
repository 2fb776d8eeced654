//! The activations of MLPs: alone, or as the gate of a second half of the row (Shazeer 2020,
//! <https://arxiv.org/abs/2002.05202>; HF `ACT2FN`).
//!
//! `y = f(x)`, or `y = f(gate) · up`. All f32. x and y `[num_tokens, intermediate]`; gate_up
//! `[num_tokens, 2 · intermediate]`, gate first. Bytes moved: `8 · y.len()` alone, `12 · y.len()`
//! with a gate. Alone, a result on the CPU takes the memory of x if x has no other owner.
//!
//! Tolerance on the CPU:
//! - [`Activation::Silu`], [`Activation::Sigmoid`], [`Activation::Mish`], [`Activation::Tanh`] and
//!   [`Activation::Softplus`]: `1e-6 · |y|`. Their exponential has an error below 2 ulp.
//! - [`Activation::Gelu`], [`Activation::GeluClipped`]: `5e-7 · |x|`. They are a polynomial and an
//!   exponential.
//! - [`Activation::HardSwish`], [`Activation::Laplace`]: `2e-6 · max(|y|, 1)`. Sums round.
//! - [`Activation::GeluTanh`], [`Activation::QuickGelu`]: `1e-6 · |x|`. The exponents are rounded.
//! - [`Activation::XIelu`]: `2e-6 · max(|x|, |y|)`. It adds terms of both signs.
//!
//! GPUs: `2e-5 · max(|x|, |y|)`, because their exponentials are less exact.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
mod functions;
#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;

/// A function of one element. σ is the logistic function `1 / (1 + e^−x)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// `x · σ(x)`: HF's `silu`, `swish`.
    Silu,
    /// `x / 2 · (1 + erf(x / √2))`: HF's `gelu`.
    Gelu,
    /// `x / 2 · (1 + tanh(√(2 / π) · (x + 0.044715 · x³)))`: HF's `gelu_new`, `gelu_fast`,
    /// `gelu_pytorch_tanh`.
    GeluTanh,
    /// `x · σ(1.702 · x)`: HF's `quick_gelu`.
    QuickGelu,
    /// `max(x, 0)`: HF's `relu`.
    Relu,
    /// `max(x, 0)²`: HF's `relu2`.
    ReluSquared,
    /// `σ(x)`: HF's `sigmoid`.
    Sigmoid,
    /// x itself: HF's `linear`.
    Identity,
    /// [`Activation::Gelu`], at most 10: HF's `gelu_10`.
    GeluClipped,
    /// `max(x, x / 100)`: HF's `leaky_relu`.
    LeakyRelu,
    /// `min(max(x, 0), 6)`: HF's `relu6`.
    Relu6,
    /// `x / 6 · min(max(x + 3, 0), 6)`: HF's `hardswish`.
    HardSwish,
    /// `x · tanh(ln(1 + e^x))`: HF's `mish` (<https://arxiv.org/abs/1908.08681>).
    Mish,
    /// `tanh x`: HF's `tanh`.
    Tanh,
    /// `ln(1 + e^x)`.
    Softplus,
    /// `(1 + erf((x − 0.707107) / (0.282095 · √2))) / 2`: HF's `laplace`
    /// (<https://arxiv.org/abs/2209.10655>).
    Laplace,
    /// HF's `xielu` (`XIELUActivation`, <https://arxiv.org/abs/2411.13010>):
    /// `alpha_p · x² + beta · x` above 0, else
    /// `alpha_n · (e^min(x, eps) − 1 − x) + beta · x`.
    XIelu {
        /// The factor of squares: the softplus of the checkpoint's `alpha_p`.
        alpha_p: f32,
        /// The factor below 0: `beta` plus the softplus of the checkpoint's `alpha_n`.
        alpha_n: f32,
        /// The slope at 0.
        beta: f32,
        /// The largest exponent, slightly below 0.
        eps: f32,
    },
}

/// Returns `f(x)`, `[num_tokens, intermediate]`.
#[must_use]
pub fn activate(x: Tensor<2>, activation: Activation) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::activate(x.into_dispatch(), activation))
}

/// Computes `f(gate) * up` of gate_up `[num_tokens, 2 * intermediate]`, gate first.
///
/// # Panics
/// If the width is odd.
#[must_use]
pub fn gated(gate_up: Tensor<2>, activation: Activation) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::gated(gate_up.into_dispatch(), activation))
}

/// Computes `silu(gate) * up`: [`gated`] with [`Activation::Silu`], as in Llama-family MLPs.
///
/// # Panics
/// If the width is odd.
#[must_use]
pub fn swiglu(gate_up: Tensor<2>) -> Tensor<2> {
    gated(gate_up, Activation::Silu)
}
