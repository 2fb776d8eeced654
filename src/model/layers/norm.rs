//! Norms of hidden states: HF `LlamaRMSNorm` (<https://arxiv.org/abs/1910.07467>), `nn.LayerNorm`
//! (<https://arxiv.org/abs/1607.06450>), and their variants whose weight is added to one.

use burn::tensor::Tensor;
use playhouse_kernels::{
    WeightVector, add_layer_norm, add_rms_norm, layer_norm, profile::timed, rms_norm,
};

use crate::model::ModelError;
use crate::model::config::NormConfig;
use crate::model::family::NormKind;
use crate::model::weight_loader::WeightLoader;

/// A norm over the last dimension.
#[derive(Debug)]
pub(in crate::model) struct Norm {
    /// A norm without the mean has a weight.
    weight: Option<WeightVector>,
    bias: Option<WeightVector>,
    is_rms: bool,
    eps: f32,
}

impl Norm {
    /// Loads `{module}.weight`, and `{module}.bias` where the formula has one, `[size]` each.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        module: &str,
        size: usize,
        config: NormConfig,
    ) -> Result<Self, ModelError> {
        let NormConfig { kind, eps } = config;
        let weight = format!("{module}.weight");
        let weight = match kind {
            NormKind::Length => {
                return Self::of_length(loader, &weight, vec![1.0; size], eps);
            }
            NormKind::LayerUnweighted => None,
            // The kernel has a weight.
            NormKind::RmsUnweighted => Some(loader.on_device(&weight, vec![1.0; size])?),
            NormKind::Rms | NormKind::Layer { .. } => Some(loader.vector(&weight, size)?),
            NormKind::RmsPlusOne | NormKind::LayerPlusOne => {
                Some(loader.vector_plus_one(&weight, size)?)
            }
        };
        let bias = kind.has_bias().then(|| loader.vector(&format!("{module}.bias"), size));
        let is_rms = matches!(kind, NormKind::Rms | NormKind::RmsPlusOne | NormKind::RmsUnweighted);
        Ok(Self { weight, is_rms, bias: bias.transpose()?, eps })
    }

    /// Returns the norm `x / ‖x‖` times `factors`, `[size]`. `eps` is added to the sum of squares.
    /// Errors name it `name`.
    pub(in crate::model) fn of_length(
        loader: &WeightLoader<'_>,
        name: &str,
        factors: Vec<f32>,
        eps: f32,
    ) -> Result<Self, ModelError> {
        // The kernel divides by the root of the mean.
        let size = factors.len() as f32;
        let weight = factors.into_iter().map(|factor| factor / size.sqrt()).collect();
        let weight = Some(loader.on_device(name, weight)?);
        Ok(Self { weight, bias: None, is_rms: true, eps: eps / size })
    }

    /// Returns the norm of `x`, `[rows, size]`.
    pub(in crate::model) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        timed("norm", || match &self.weight {
            Some(weight) if self.is_rms => rms_norm(x, weight, self.eps),
            weight => layer_norm(x, weight.as_ref(), self.bias.as_ref(), self.eps),
        })
    }

    /// Returns the norm of `x + residual`, and that sum, both `[rows, size]`.
    pub(in crate::model) fn add_forward(
        &self,
        x: Tensor<2>,
        residual: Option<Tensor<2>>,
    ) -> (Tensor<2>, Tensor<2>) {
        timed("norm", || match &self.weight {
            Some(weight) if self.is_rms => add_rms_norm(x, residual, weight, self.eps),
            weight => add_layer_norm(x, residual, weight.as_ref(), self.bias.as_ref(), self.eps),
        })
    }
}
