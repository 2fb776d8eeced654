//! Several residual streams, of which a layer computes one: HF `Gemma3nTextAltUp`.

use burn::tensor::{Tensor, TensorData};
use playhouse_kernels::{scale, soft_cap};

use crate::model::config::AltUpConfig;
use crate::model::layers::{LayerPlace, Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// The streams of some tokens, `[num_tokens, hidden_size]` each.
pub(super) type Streams = Vec<Tensor<2>>;

/// The prediction of all streams before a layer, and their correction after it.
#[derive(Debug)]
pub(super) struct AltUp {
    active: usize,
    router_norm: Norm,
    router_scale: f32,
    modality_router: Linear,
    prediction_coefs: Linear,
    correction_coefs: Linear,
    /// `[1, hidden_size]`.
    output_scale: Option<Tensor<2>>,
}

impl AltUp {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        altup: &AltUpConfig,
    ) -> Result<Self, ModelError> {
        let (count, hidden) = (altup.num_inputs, place.config.hidden_size);
        let mut matrix = |name: &str, outputs, inputs| {
            let part = [Part::new(place.module(&format!("altup.{name}")), outputs)];
            Linear::unquantized(loader, &part, inputs)
        };
        let modality_router = matrix("modality_router", count, hidden)?;
        let prediction_coefs = matrix("prediction_coefs", count * count, count)?;
        let correction_coefs = matrix("correction_coefs", count, count)?;
        let router_norm = place.module("altup.router_norm");
        let router_norm = Norm::load(loader, &router_norm, hidden, place.config.norm)?;
        let output_scale = match altup.scales_output {
            true => {
                let name = place.module("altup.correct_output_scale");
                let values = loader.values(&name, &[hidden])?;
                let data = TensorData::new(values, [1, hidden]);
                Some(Tensor::from_data(data, loader.device()))
            }
            false => None,
        };
        Ok(Self {
            active: altup.active,
            router_norm,
            router_scale: 1.0 / hidden as f32,
            modality_router,
            prediction_coefs,
            correction_coefs,
            output_scale,
        })
    }

    /// Returns a number of each stream for each token, `[num_tokens, num_inputs]`.
    fn modalities(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        let normed = scale(self.router_norm.forward(x), self.router_scale);
        // With a cap of 1, this is tanh.
        soft_cap(self.modality_router.forward(normed, adapters), 1.0)
    }

    /// Returns the streams before a layer: each is itself and a combination of all.
    pub(super) fn predict(&self, streams: &Streams, adapters: Adapters<'_>) -> Streams {
        let count = streams.len();
        let modalities = self.modalities(streams[self.active].clone(), adapters);
        let coefs = self.prediction_coefs.forward(modalities, adapters);
        let combined = |(k, stream): (usize, &Tensor<2>)| {
            let mut sum: Option<Tensor<2>> = None;
            for (j, other) in streams.iter().enumerate() {
                let term = other.clone().mul(coefs.clone().narrow(1, k * count + j, 1));
                sum = Some(match sum {
                    None => term,
                    Some(sum) => sum.add(term),
                });
            }
            sum.map_or_else(|| stream.clone(), |sum| sum.add(stream.clone()))
        };
        streams.iter().enumerate().map(combined).collect()
    }

    /// Returns the streams after a layer that turned the active stream into `activated`.
    pub(super) fn correct(
        &self,
        predictions: Streams,
        activated: Tensor<2>,
        adapters: Adapters<'_>,
    ) -> Streams {
        let innovation = activated.clone().sub(predictions[self.active].clone());
        let modalities = self.modalities(activated, adapters);
        let coefs = self.correction_coefs.forward(modalities, adapters).add_scalar(1.0);
        let corrected = |(k, prediction): (usize, Tensor<2>)| {
            innovation.clone().mul(coefs.clone().narrow(1, k, 1)).add(prediction)
        };
        predictions.into_iter().enumerate().map(corrected).collect()
    }

    /// Returns the active one of corrected streams, with its factors.
    pub(super) fn active_output(&self, corrected: &Streams) -> Tensor<2> {
        let active = corrected[self.active].clone();
        match &self.output_scale {
            None => active,
            Some(factors) => active.mul(factors.clone()),
        }
    }

    /// Returns the stream that a layer reads.
    pub(super) fn active(&self, predictions: &Streams) -> Tensor<2> {
        predictions[self.active].clone()
    }
}
