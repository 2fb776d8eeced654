//! Layer normalisation (<https://arxiv.org/abs/1607.06450>; HF `nn.LayerNorm`, `CohereLayerNorm`
//! without a bias, `OlmoLayerNorm` without both), alone or after the addition of a residual.
//!
//! `y = (x − mean) / sqrt(var + eps) · weight + bias` over the last dimension, where `var` is the
//! mean of the squared deviations. All f32; x, y `[rows, features]`, weight and bias `[features]`.
//! Bytes moved: `rows · features · 8`, and twice that with the residual. Tolerance `2e-6` relative
//! to the largest |y|: sums run in 32 lanes and are folded in one fixed tree. The deviations are
//! summed after the mean is known, because a difference of sums of squares would lose digits.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;
use crate::{WeightVector, recycle};

/// Normalises each row of x `[rows, features]`. A missing weight is 1, and a missing bias is 0.
///
/// # Panics
/// If the width of `x` is not the length of `weight` or of `bias`.
#[must_use]
pub fn layer_norm(
    x: Tensor<2>,
    weight: Option<&WeightVector>,
    bias: Option<&WeightVector>,
    eps: f32,
) -> Tensor<2> {
    let (normed, x) = Dispatch::layer_norm(x.into_dispatch(), weight, bias, eps);
    recycle(Tensor::from_dispatch(x));
    Tensor::from_dispatch(normed)
}

/// Computes `h = x + residual`, or `h = x` where there is no residual yet. Returns
/// `(layer_norm(h), h)`, both `[rows, features]`.
///
/// # Panics
/// If the shapes of `x` and `residual` disagree. Also where [`layer_norm`] panics.
#[must_use]
pub fn add_layer_norm(
    x: Tensor<2>,
    residual: Option<Tensor<2>>,
    weight: Option<&WeightVector>,
    bias: Option<&WeightVector>,
    eps: f32,
) -> (Tensor<2>, Tensor<2>) {
    let x = x.into_dispatch();
    let (normed, sum) = match residual.map(Tensor::into_dispatch) {
        Some(residual) => Dispatch::add_layer_norm(x, residual, weight, bias, eps),
        None => Dispatch::layer_norm(x, weight, bias, eps),
    };
    (Tensor::from_dispatch(normed), Tensor::from_dispatch(sum))
}

/// Asserts that weight and bias, if there are any, have one element for each feature.
fn check(features: usize, weight: Option<&WeightVector>, bias: Option<&WeightVector>) {
    for (name, vector) in [("weight", weight), ("bias", bias)] {
        if let Some(vector) = vector {
            assert_eq!(vector.len(), features, "layer_norm: length of the {name}");
        }
    }
}
