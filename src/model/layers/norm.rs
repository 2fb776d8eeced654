//! Root mean square norm (HF `LlamaRMSNorm`; <https://arxiv.org/abs/1910.07467>).

use burn::tensor::Tensor;
use playhouse_kernels::{WeightVector, add_rms_norm, profile::timed};

use crate::model::ModelError;
use crate::model::weight_loader::WeightLoader;

/// `x / sqrt(mean(x²) + eps) · weight` over the last dimension.
#[derive(Debug)]
pub(in crate::model) struct RmsNorm {
    weight: WeightVector,
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
        let weight = loader.vector(&format!("{module}.weight"), size)?;
        Ok(Self { weight, eps })
    }

    /// Returns the norm of `x + residual`, and that sum, both `[rows, size]`.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        residual: Option<Tensor<2>>,
    ) -> (Tensor<2>, Tensor<2>) {
        timed("norm", || add_rms_norm(x, residual, &self.weight, self.eps))
    }
}
