//! Root mean square norm (HF `LlamaRMSNorm`; <https://arxiv.org/abs/1910.07467>).

use burn::tensor::Tensor;
use playhouse_kernels::{add_rms_norm, profile::timed, rms_norm};

use crate::model::ModelError;
use crate::model::load::WeightLoader;

/// `x / sqrt(mean(x²) + eps) · weight` over the last dimension.
#[derive(Debug)]
pub(in crate::model) struct RmsNorm {
    weight: Tensor<1>,
    eps: f32,
}

impl RmsNorm {
    /// Loads `{module}.weight`, `[size]`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        size: usize,
        eps: f32,
    ) -> Result<Self, ModelError> {
        let weight = loader.vector(&[(format!("{module}.weight"), size)])?;
        Ok(Self { weight, eps })
    }

    /// The norm of `x + residual`, and that sum; both `[rows, size]`.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        residual: Option<Tensor<2>>,
    ) -> (Tensor<2>, Tensor<2>) {
        timed("norm", || match residual {
            Some(residual) => add_rms_norm(x, residual, &self.weight, self.eps),
            None => (rms_norm(x.clone(), &self.weight, self.eps), x),
        })
    }

    /// The norm of each head of `x`, `[rows, heads * size]`.
    pub(in crate::model) fn forward_heads(&self, x: Tensor<2>) -> Tensor<2> {
        let ([rows, width], [size]) = (x.dims(), self.weight.dims());
        let heads = x.reshape([rows * width / size, size]);
        timed("qk_norm", || rms_norm(heads, &self.weight, self.eps)).reshape([rows, width])
    }
}
