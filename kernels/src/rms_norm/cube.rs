//! The GPU's version.

use burn_cubecl::tensor::CubeTensor;

use crate::WeightVector;
use crate::cube::{self, Norm};

/// Normalises each row of `x`. Returns the result and x.
pub(crate) fn rms_norm(x: CubeTensor, weight: &WeightVector, eps: f32) -> (CubeTensor, CubeTensor) {
    (normed(x.clone(), Some(weight), eps), x)
}

/// Normalises each row of `x`. A missing weight is 1.
pub(crate) fn normed(x: CubeTensor, weight: Option<&WeightVector>, eps: f32) -> CubeTensor {
    if let Some(weight) = weight {
        check(&x, weight);
    }
    cube::normed(x, Norm { weight, bias: None, eps, is_centered: false })
}

/// Adds, then normalises. Returns the result and the sums.
pub(crate) fn add_rms_norm(
    x: CubeTensor,
    residual: CubeTensor,
    weight: &WeightVector,
    eps: f32,
) -> (CubeTensor, CubeTensor) {
    check(&x, weight);
    let norm = Norm { weight: Some(weight), bias: None, eps, is_centered: false };
    cube::add_normed(x, residual, norm, "add_rms_norm")
}

/// Checks the width of x.
fn check(x: &CubeTensor, weight: &WeightVector) {
    let [rows, features] = x.meta.shape().dims::<2>();
    assert_eq!(features, weight.len(), "rms_norm: width of x [{rows}, {features}]");
}
