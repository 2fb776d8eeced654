//! The GPU's version.

use burn_cubecl::tensor::CubeTensor;

use crate::WeightVector;
use crate::cube::{self, Norm};

/// Normalises each row of `x`. Returns the result and x.
pub(crate) fn layer_norm(
    x: CubeTensor,
    weight: Option<&WeightVector>,
    bias: Option<&WeightVector>,
    eps: f32,
) -> (CubeTensor, CubeTensor) {
    super::check(x.meta.shape().dims::<2>()[1], weight, bias);
    (normed(x.clone(), weight, bias, eps), x)
}

/// Normalises each row of `x`. The weight may be as long as several rows, which then take turns.
pub(crate) fn normed(
    x: CubeTensor,
    weight: Option<&WeightVector>,
    bias: Option<&WeightVector>,
    eps: f32,
) -> CubeTensor {
    cube::normed(x, Norm { weight, bias, eps, is_centered: true })
}

/// Adds, then normalises. Returns the result and the sums.
pub(crate) fn add_layer_norm(
    x: CubeTensor,
    residual: CubeTensor,
    weight: Option<&WeightVector>,
    bias: Option<&WeightVector>,
    eps: f32,
) -> (CubeTensor, CubeTensor) {
    super::check(x.meta.shape().dims::<2>()[1], weight, bias);
    let norm = Norm { weight, bias, eps, is_centered: true };
    cube::add_normed(x, residual, norm, "add_layer_norm")
}
