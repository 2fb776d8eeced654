//! The activation of a feed-forward part, with the weights that it may have.

use burn::tensor::{Tensor, TensorData};
use playhouse_kernels::Activation;

use super::LayerPlace;
use crate::model::ModelError;
use crate::model::config::{ActivationName, MlpConfig};
use crate::model::family::MlpNames;
use crate::model::weight_loader::WeightLoader;
use crate::weights::WeightsError;

/// The weights of xIELU with their shapes, one number each: HF `XIELUActivation`.
pub(in crate::model) const XIELU_WEIGHTS: [(&str, &[usize]); 4] = [
    ("mlp.act_fn.alpha_p", &[1]),
    ("mlp.act_fn.alpha_n", &[1]),
    ("mlp.act_fn.beta", &[]),
    ("mlp.act_fn.eps", &[]),
];

/// The modules of activations in the classes for which AutoAWQ divides their outputs: HF
/// `AWQ_SCALES_MAPPINGS`.
const SCALED: [&str; 2] = ["act", "gelu_impl"];

/// Returns the possible names of the tensor that the outputs of an activation are divided by:
/// AutoAWQ's `ScaledActivation`. An MLP with a gate has none.
pub(in crate::model) fn divisor_names(names: &MlpNames, mlp: &MlpConfig) -> Vec<String> {
    let inner = names.inner.first().filter(|_| !mlp.is_gated);
    let parent = inner.and_then(|name| name.rsplit_once('.')).map(|(parent, _)| parent);
    let of_parent = |parent: &str| SCALED.map(|module| format!("{parent}.{module}.scales"));
    parent.map(of_parent).into_iter().flatten().collect()
}

/// Returns what the outputs of the activation of the MLP `names` are divided by,
/// `[1, intermediate_size]`. Only checkpoints of AWQ have that.
pub(super) fn divisors(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    names: &MlpNames,
    mlp: &MlpConfig,
) -> Result<Option<Tensor<2>>, ModelError> {
    let mut possible = divisor_names(names, mlp).into_iter().map(|name| place.module(&name));
    let Some(tensor) = possible.find(|name| loader.has_of_awq(name)) else { return Ok(None) };
    let values = loader.values(&tensor, &[mlp.intermediate_size])?;
    if let Some(value) = values.iter().find(|value| !value.is_finite() || **value == 0.0) {
        let reason = format!("a divisor of {value}; expected finite numbers other than 0");
        let path = loader.path_of(&tensor);
        return Err(WeightsError::Value { path, tensor, reason }.into());
    }
    let data = TensorData::new(values, [1, mlp.intermediate_size]);
    Ok(Some(Tensor::from_data(data, loader.device())))
}

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
