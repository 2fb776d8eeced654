//! The vectors of a normalized transformer, as checkpoints have them.

use burn::tensor::{Tensor, TensorData};

use super::{LayerPlace, Norm};
use crate::model::ModelError;
use crate::model::config::{AttentionConfig, Factors};
use crate::model::weight_loader::WeightLoader;

/// The stream beside a part, and its output in the stream. With the rates `r`, they are
/// `(1 - r) · x / ‖x‖` and `r · y / ‖y‖`.
#[derive(Debug)]
pub(in crate::model) struct Interpolation {
    pub(in crate::model) kept: Norm,
    pub(in crate::model) added: Norm,
}

impl Interpolation {
    /// Loads the rates of a part of the layer at `place`, `[hidden_size]`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rates: Factors,
    ) -> Result<Self, ModelError> {
        let (name, size) = (place.module(rates.tensor), place.config.hidden_size);
        let mut rates = values(loader, &name, rates.scale, size)?;
        rates.iter_mut().for_each(|rate| *rate = rate.abs());
        let kept = rates.iter().map(|rate| 1.0 - rate).collect();
        let eps = place.config.norm.eps;
        Ok(Self {
            kept: Norm::of_length(loader, &name, kept, eps)?,
            added: Norm::of_length(loader, &name, rates, eps)?,
        })
    }
}

/// Returns the factors of queries behind their rotation, `[1, q_size]`. The norm of heads divides
/// them by their root mean square. So a part of the factors makes that their length.
pub(super) fn of_queries(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    attention: &AttentionConfig,
) -> Result<Option<Tensor<2>>, ModelError> {
    let Some(ngpt) = place.config.ngpt else { return Ok(None) };
    let name = place.module(ngpt.queries.tensor);
    let values = values(loader, &name, ngpt.queries.scale, attention.q_size())?;
    let length = (attention.head_dim as f32).sqrt().recip();
    let squares = values.into_iter().map(|value| value * value * length).collect();
    Ok(Some(row(loader, squares)))
}

/// Returns the factors of the gates of attention, `[1, gate_size]`.
pub(super) fn of_gates(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    attention: &AttentionConfig,
) -> Result<Option<Tensor<2>>, ModelError> {
    let Some(ngpt) = place.config.ngpt else { return Ok(None) };
    let name = place.module(ngpt.gate.tensor);
    let values = values(loader, &name, ngpt.gate.scale, attention.gate_size())?;
    Ok(Some(row(loader, values.into_iter().map(|value| value * value).collect())))
}

/// Returns the factors of the gate of an MLP, and behind them those of the value that it gates,
/// `[1, 2 * intermediate_size]`.
pub(super) fn of_inner(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    intermediate_size: usize,
) -> Result<Option<Tensor<2>>, ModelError> {
    let Some(ngpt) = place.config.ngpt else { return Ok(None) };
    let mut both = Vec::with_capacity(2 * intermediate_size);
    for factors in ngpt.inner {
        let name = place.module(factors.tensor);
        both.extend(values(loader, &name, factors.scale, intermediate_size)?);
    }
    Ok(Some(row(loader, both)))
}

/// Returns the factors of logits, `[1, vocab]`.
pub(super) fn of_logits(
    loader: &mut WeightLoader<'_>,
    factors: Factors,
    vocab: usize,
) -> Result<Tensor<2>, ModelError> {
    let values = values(loader, factors.tensor, factors.scale, vocab)?;
    Ok(row(loader, values))
}

/// Returns the tensor `name`, `[size]`, times `scale`.
fn values(
    loader: &mut WeightLoader<'_>,
    name: &str,
    scale: f32,
    size: usize,
) -> Result<Vec<f32>, ModelError> {
    let values = loader.values(name, &[size])?;
    Ok(values.into_iter().map(|value| value * scale).collect())
}

fn row(loader: &WeightLoader<'_>, values: Vec<f32>) -> Tensor<2> {
    let size = values.len();
    Tensor::from_data(TensorData::new(values, [1, size]), loader.device())
}
