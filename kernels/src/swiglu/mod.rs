//! The gated activation of Llama-family MLPs (Shazeer 2020; HF `LlamaMLP` with `silu`).
//!
//! `y = gate · σ(gate) · up`. gate_up `[num_tokens, 2 · intermediate]`, gate first; y
//! `[num_tokens, intermediate]`; all f32. Bytes moved: `12 · y.len()`. Tolerance `1e-6` relative:
//! the exponential is a polynomial of error below 2 ulp.

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

use crate::hot_ops::HotOps;

/// Computes `silu(gate) * up` of gate_up `[num_tokens, 2 * intermediate]`, gate first.
///
/// # Panics
/// If the width is odd.
#[must_use]
pub fn swiglu(gate_up: Tensor<2>) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::swiglu(gate_up.into_dispatch()))
}
