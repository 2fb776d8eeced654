//! The activation of a feed-forward part, with the weights that it may have.

use playhouse_kernels::Activation;

use super::LayerPlace;
use crate::model::ModelError;
use crate::model::config::ActivationName;
use crate::model::weight_loader::WeightLoader;

/// The weights of xIELU with their shapes, one number each: HF `XIELUActivation`.
pub(in crate::model) const XIELU_WEIGHTS: [(&str, &[usize]); 4] = [
    ("mlp.act_fn.alpha_p", &[1]),
    ("mlp.act_fn.alpha_n", &[1]),
    ("mlp.act_fn.beta", &[]),
    ("mlp.act_fn.eps", &[]),
];

/// Returns the activation `name`, unless it has weights of its own.
pub(in crate::model) fn plain(name: ActivationName) -> Option<Activation> {
    Some(match name {
        ActivationName::Silu => Activation::Silu,
        ActivationName::Gelu => Activation::Gelu,
        ActivationName::GeluTanh => Activation::GeluTanh,
        ActivationName::QuickGelu => Activation::QuickGelu,
        ActivationName::Relu => Activation::Relu,
        ActivationName::ReluSquared => Activation::ReluSquared,
        ActivationName::GeluClipped => Activation::GeluClipped,
        ActivationName::LeakyRelu => Activation::LeakyRelu,
        ActivationName::Relu6 => Activation::Relu6,
        ActivationName::HardSwish => Activation::HardSwish,
        ActivationName::Mish => Activation::Mish,
        ActivationName::Tanh => Activation::Tanh,
        ActivationName::Sigmoid => Activation::Sigmoid,
        ActivationName::Laplace => Activation::Laplace,
        ActivationName::Linear => Activation::Identity,
        ActivationName::XIelu => return None,
    })
}

/// Returns the activation `name` of the layer at `place`.
pub(in crate::model) fn load(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    name: ActivationName,
) -> Result<Activation, ModelError> {
    if let Some(activation) = plain(name) {
        return Ok(activation);
    }
    let mut weights = [0.0; 4];
    for (weight, (name, shape)) in weights.iter_mut().zip(XIELU_WEIGHTS) {
        *weight = loader.number(&place.module(name), shape)?;
    }
    let [alpha_p, alpha_n, beta, eps] = weights;
    let softplus = |x: f32| f64::from(x).exp().ln_1p() as f32;
    let (alpha_p, alpha_n) = (softplus(alpha_p), beta + softplus(alpha_n));
    Ok(Activation::XIelu { alpha_p, alpha_n, beta, eps })
}
