//! The decoder of Gemma 3n: HF `Gemma3nTextModel`.
//!
//! | tensor | shape |
//! |---|---|
//! | hidden state of [`Backbone::embed`] | `[num_tokens, hidden_size + num_layers * per_layer_width]` |
//! | stream | `[num_tokens, hidden_size]`, `num_inputs` of them |
//! | embeddings of a layer | `[num_tokens, per_layer_width]` |
//!
//! The embeddings of all layers depend on the token alone, so they come with its embedding.

mod altup;
mod inventory;
mod layer;

use burn::tensor::Tensor;
use playhouse_kernels::{EmbeddingTable, add, embedding, scale};

use self::altup::Streams;
use self::layer::Layer;
use super::config::{AltUpConfig, ModelConfig};
use super::layers::rotary::RotaryTables;
use super::layers::{Embedding, LayerPlace, Linear, Norm, Part, RowMean, embedding_table};
use super::weight_loader::WeightLoader;
use super::{Adapters, Backbone, ModelError, Positions, Step};
pub(super) use inventory::{optional, tensors};

/// The modules beside the layers.
const PER_LAYER_TABLE: &str = "model.embed_tokens_per_layer";
const PER_LAYER_PROJECTION: &str = "model.per_layer_model_projection";
const PER_LAYER_NORM: &str = "model.per_layer_projection_norm";
const PROJECTIONS: &str = "model.altup_projections";
const UNEMBED_PROJECTIONS: &str = "model.altup_unembed_projections";

/// HF `Gemma3nTextModel`.
#[derive(Debug)]
pub(super) struct Gemma3n {
    embed_tokens: Embedding,
    multiplier: f32,
    altup: AltUpConfig,
    hidden_size: usize,
    per_layer_table: EmbeddingTable,
    per_layer_projection: Linear,
    per_layer_norm: Norm,
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
        let (hidden, width) = (config.hidden_size, altup.per_layer_width);
        let all = config.layers.len() * width;
        let names = &config.names;
        let table = names.stored(PER_LAYER_TABLE);
        let per_layer_table = embedding_table(loader, &table, altup.per_layer_vocab, all)?;
        let projection = [Part::new(names.stored(PER_LAYER_PROJECTION).into_owned(), all)];
        let between = |loader: &mut WeightLoader<'_>, module: &str| {
            let module = names.stored(module);
            let load = |index| {
                let part = [Part::new(format!("{module}.{index}"), hidden)];
                Linear::load(loader, &part, hidden, false)
            };
            (0..altup.num_inputs - 1).map(load).collect::<Result<Vec<_>, _>>()
        };
        let mut rotary = RotaryTables::new(config, loader.device());
        Ok(Self {
            embed_tokens,
            multiplier: config.embedding.multiplier,
            altup,
            hidden_size: hidden,
            per_layer_table,
            per_layer_projection: Linear::load(loader, &projection, hidden, false)?,
            per_layer_norm: Norm::load(loader, &names.stored(PER_LAYER_NORM), width, config.norm)?,
            projections: between(loader, PROJECTIONS)?,
            unembed_projections: between(loader, UNEMBED_PROJECTIONS)?,
            mean: RowMean::new(loader, hidden)?,
            layers: (0..config.layers.len())
                .map(|index| Layer::load(loader, LayerPlace { config, index }, &mut rotary, &altup))
                .collect::<Result<_, _>>()?,
            norm: Norm::load(loader, &names.stored(names.norm), hidden, config.norm)?,
        })
    }

    /// Returns the embeddings of all layers, from those of the tokens and from `hidden`.
    fn per_layer(
        &self,
        hidden: Tensor<2>,
        of_tokens: Tensor<2>,
        adapters: Adapters<'_>,
    ) -> Tensor<2> {
        let (width, count) = (self.altup.per_layer_width, self.layers.len());
        let [tokens, _] = hidden.dims();
        let factor = (self.hidden_size as f32).sqrt().recip();
        let projected = scale(self.per_layer_projection.forward(hidden, adapters), factor);
        let normed = self.per_layer_norm.forward(projected.reshape([tokens * count, width]));
        let sum = add(normed.reshape([tokens, count * width]), of_tokens);
        scale(sum, std::f32::consts::FRAC_1_SQRT_2)
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
        let vocab = self.altup.per_layer_vocab;
        let in_table = |id: &u32| if (*id as usize) < vocab { *id } else { 0 };
        let ids: Vec<u32> = token_ids.iter().map(in_table).collect();
        let factor = (self.altup.per_layer_width as f32).sqrt();
        let of_layers = scale(embedding(&self.per_layer_table, &ids), factor);
        Tensor::cat(vec![hidden, of_layers], 1)
    }

    fn forward(
        &self,
        embedded: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let width = self.altup.per_layer_width;
        let hidden = embedded.clone().narrow(1, 0, self.hidden_size);
        let of_tokens = embedded.narrow(1, self.hidden_size, self.layers.len() * width);
        let adapters = step.adapters();
        let of_layers = self.per_layer(hidden.clone(), of_tokens, adapters);
        let mut streams = self.spread(hidden, adapters);
        for (index, layer) in self.layers.iter().enumerate() {
            let embeddings = of_layers.clone().narrow(1, index * width, width);
            streams = layer.forward(&streams, embeddings, positions, step);
        }
        self.norm.forward(self.joined(streams, adapters))
    }

    fn mapped_bytes(&self) -> u64 {
        let matrices = self.projections.iter().chain(&self.unembed_projections);
        let matrices = matrices.chain([&self.per_layer_projection]);
        let own: u64 = matrices.map(Linear::mapped_bytes).sum();
        own + self.layers.iter().map(Layer::mapped_bytes).sum::<u64>()
    }
}
