//! Functions of rows `[rows, width]` that need the mean of each row. A row's bytes depend on that
//! row alone, because the mean is a product of [`linear`].

use burn::tensor::Tensor;
use playhouse_kernels::{KernelError, LinearWeight, WeightDtype, WeightView, linear};

use crate::model::ModelError;
use crate::model::weight_loader::{WeightLoader, refused};

/// The least mean square that a row is divided by: HF `Gemma3nTextModel`.
const MEAN_SQUARE_MIN: f32 = 1e-5;

/// The mean of rows of one width, as a product with a vector.
#[derive(Debug)]
pub(in crate::model) struct RowMean {
    weight: LinearWeight,
}

impl RowMean {
    /// Makes the mean of rows of `width`.
    pub(in crate::model) fn new(
        loader: &WeightLoader<'_>,
        width: usize,
    ) -> Result<Self, ModelError> {
        let values = vec![1.0 / width as f32; width];
        let pack = |values: &[f32]| -> Result<LinearWeight, KernelError> {
            LinearWeight::pack(&[WeightView::F32(values)], width, WeightDtype::F32, loader.device())
        };
        Ok(Self { weight: pack(&values).map_err(refused("the means of rows"))? })
    }

    /// Returns the mean of each row of `x`, `[rows, 1]`.
    pub(in crate::model) fn of(&self, x: Tensor<2>) -> Tensor<2> {
        linear(x, &self.weight, None)
    }

    /// Returns the root of the mean square of each row of `x`, `[rows, 1]`.
    pub(in crate::model) fn magnitude(&self, x: &Tensor<2>) -> Tensor<2> {
        self.of(x.clone().mul(x.clone())).sqrt()
    }

    /// Returns `x` with rows of the magnitudes `target`, `[rows, 1]`.
    pub(in crate::model) fn with_magnitude(&self, x: Tensor<2>, target: &Tensor<2>) -> Tensor<2> {
        let square = self.of(x.clone().mul(x.clone())).clamp_min(MEAN_SQUARE_MIN);
        x.mul(target.clone().div(square.sqrt()))
    }

    /// Returns `max(x - mean - factor · deviation, 0)`, with the mean and the standard deviation of
    /// each row: HF `Gemma3nTextMLP`.
    pub(in crate::model) fn above(&self, x: Tensor<2>, factor: f32) -> Tensor<2> {
        let x = x.clone().sub(self.of(x));
        let deviation = self.magnitude(&x);
        x.sub(deviation.mul_scalar(factor)).clamp_min(0.0)
    }
}

/// Returns the number below which a share `p` of a standard normal distribution lies.
pub(in crate::model) fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if normal_share(middle) < p { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

/// Returns the share of a standard normal distribution below `x`, by a series of positive terms.
pub(in crate::model) fn normal_share(x: f64) -> f64 {
    let (mut term, mut sum, mut divisor) = (x, x, 1.0);
    while term.abs() > 1e-18 * sum.abs() {
        divisor += 2.0;
        term *= x * x / divisor;
        sum += term;
    }
    let density = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    0.5 + density * sum
}

#[cfg(test)]
mod tests {
    use super::normal_quantile;

    /// The values of `torch.distributions.Normal.icdf` in float64.
    #[test]
    fn quantiles_are_those_of_the_normal_distribution() {
        for (p, expected) in [(0.5, 0.0), (0.95, 1.644_853_626_951_472_7), (0.01, -2.326_347_874)] {
            assert!((normal_quantile(p) - expected).abs() < 1e-9, "{p}");
        }
    }
}
