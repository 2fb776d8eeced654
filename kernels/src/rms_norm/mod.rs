//! Root-mean-square normalisation (Zhang & Sennrich 2019; HF `LlamaRMSNorm`), alone or after the
//! addition of a residual.
//!
//! `y = x / sqrt(mean(x²) + eps) · weight` over the last dimension. All f32; x, y
//! `[rows, features]`, weight `[features]`. Bytes moved: `rows · features · 8`, and twice that with
//! the residual. Tolerance `1e-6` relative to the largest |y|: sums run in 32 lanes and are folded
//! in one fixed tree.

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
use crate::{WeightVector, recycle};

/// Normalises each row of x `[rows, features]`. A norm per head takes the view
/// `[num_tokens * num_heads, head_dim]`.
///
/// # Panics
/// If the width of `x` is not the length of `weight`.
#[must_use]
pub fn rms_norm(x: Tensor<2>, weight: &WeightVector, eps: f32) -> Tensor<2> {
    let (normed, x) = Dispatch::rms_norm(x.into_dispatch(), weight, eps);
    recycle(Tensor::from_dispatch(x));
    Tensor::from_dispatch(normed)
}

/// Computes `h = x + residual`, or `h = x` if there is no residual yet. Returns `(rms_norm(h), h)`,
/// both `[rows, features]`.
///
/// # Panics
/// If the shapes of `x` and `residual`, or their width and the length of `weight`, disagree.
#[must_use]
pub fn add_rms_norm(
    x: Tensor<2>,
    residual: Option<Tensor<2>>,
    weight: &WeightVector,
    eps: f32,
) -> (Tensor<2>, Tensor<2>) {
    let x = x.into_dispatch();
    let (normed, sum) = match residual.map(Tensor::into_dispatch) {
        Some(residual) => Dispatch::add_rms_norm(x, residual, weight, eps),
        None => Dispatch::rms_norm(x, weight, eps),
    };
    (Tensor::from_dispatch(normed), Tensor::from_dispatch(sum))
}
