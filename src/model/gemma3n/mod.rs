//! The decoder of Gemma 3n: HF `Gemma3nTextModel`.
//!
//! | tensor | shape |
//! |---|---|
//! | hidden state of [`Backbone::embed`] | `[num_tokens, hidden_size + num_layers * width]` |
//! | stream | `[num_tokens, hidden_size]`, `num_inputs` of them |
//! | embeddings of a layer | `[num_tokens, width]` |
//!
//! The embeddings of all layers depend on the token alone, so they come with its embedding.

mod altup;
mod inventory;
mod layer;

use burn::tensor::Tensor;
use playhouse_kernels::{add, scale};

use self::altup::Streams;
use self::layer::Layer;
use super::config::{AltUpConfig, ModelConfig};
use super::layers::rotary::RotaryTables;
use super::layers::{Embedding, LayerPlace, Linear, Norm, Part, PerLayerInputs, RowMean};
use super::weight_loader::WeightLoader;
use super::{Adapters, Backbone, ModelError, Positions, Step};
pub(super) use inventory::{optional, tensors};

/// The modules beside the layers.
const PROJECTIONS: &str = "model.altup_projections";
const UNEMBED_PROJECTIONS: &str = "model.altup_unembed_projections";

/// HF `Gemma3nTextModel`.
#[derive(Debug)]
pub(super) struct Gemma3n {
    embed_tokens: Embedding,
    multiplier: f32,
    per_layer: PerLayerInputs,
    projections: Vec<Linear>,
    unembed_projections: Vec<Linear>,
    mean: RowMean,
    layers: Vec<Layer>,
    norm: Norm,
}

impl Gemma3n {
    /// Loads all but the output layer.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        altup: AltUpConfig,
        embed_tokens: Embedding,
    ) -> Result<Self, ModelError> {
        let (hidden, names) = (config.hidden_size, &config.names);
        let between = |loader: &mut WeightLoader<'_>, module: &str| {
            let module = names.stored(module);
            let count = altup.num_inputs - 1;
            let load = |index| {
                let part = match altup.is_stacked {
                    true => Part::new(module.to_string(), hidden).of(index, count),
                    false => Part::new(format!("{module}.{index}"), hidden),
                };
                Linear::load(loader, &[part], hidden, false)
            };
            (0..count).map(load).collect::<Result<Vec<_>, _>>()
        };
        let mut rotary = RotaryTables::new(config, loader.device());
        Ok(Self {
            embed_tokens,
            multiplier: config.embedding.multiplier,
            per_layer: PerLayerInputs::load(loader, config, altup.per_layer)?,
            projections: between(loader, PROJECTIONS)?,
            unembed_projections: between(loader, UNEMBED_PROJECTIONS)?,
            mean: RowMean::new(loader, hidden)?,
            layers: (0..config.layers.len())
                .map(|index| Layer::load(loader, LayerPlace { config, index }, &mut rotary, &altup))
                .collect::<Result<_, _>>()?,
            norm: Norm::load(loader, &names.stored(names.norm), hidden, config.norm)?,
        })
    }

    /// Returns the streams before the first layer, all of the magnitude of `hidden`.
    fn spread(&self, hidden: Tensor<2>, adapters: Adapters<'_>) -> Streams {
        let target = self.mean.magnitude(&hidden);
        let project = |projection: &Linear| {
            self.mean.with_magnitude(projection.forward(hidden.clone(), adapters), &target)
        };
        let others: Vec<_> = self.projections.iter().map(project).collect();
        std::iter::once(hidden).chain(others).collect()
    }

    /// Returns the mean of the streams, all of the magnitude of the first.
    fn joined(&self, streams: Streams, adapters: Adapters<'_>) -> Tensor<2> {
        let count = streams.len();
        let mut streams = streams.into_iter();
        // There is at least one stream.
        let Some(first) = streams.next() else { unreachable!("no stream") };
        let target = self.mean.magnitude(&first);
        let sum =
            streams.zip(&self.unembed_projections).fold(first, |sum, (stream, projection)| {
                add(sum, self.mean.with_magnitude(projection.forward(stream, adapters), &target))
            });
        scale(sum, 1.0 / count as f32)
    }
}

impl Backbone for Gemma3n {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        let hidden = scale(self.embed_tokens.forward(token_ids, adapters), self.multiplier);
        self.per_layer.beside(hidden, token_ids)
    }

    fn forward(
        &self,
        embedded: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let adapters = step.adapters();
        let (hidden, of_layers) = self.per_layer.apart(embedded, adapters);
        let mut streams = self.spread(hidden, adapters);
        for (index, layer) in self.layers.iter().enumerate() {
            let embeddings = self.per_layer.of_layer(&of_layers, index);
            streams = layer.forward(&streams, embeddings, positions, step);
        }
        self.norm.forward(self.joined(streams, adapters))
    }

    fn mapped_bytes(&self) -> u64 {
        let matrices = self.projections.iter().chain(&self.unembed_projections);
        let own: u64 = matrices.map(Linear::mapped_bytes).sum();
        own + self.per_layer.mapped_bytes()
            + self.layers.iter().map(Layer::mapped_bytes).sum::<u64>()
    }
}
