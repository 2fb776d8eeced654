//! The decoder of Gemma 4: HF `Gemma4TextModel`. EmbeddingGemma 2 has the same layers, with
//! attention to both sides: HF `EmbeddingGemma2TextModel`.
//!
//! | tensor | shape |
//! |---|---|
//! | residual stream | `[num_tokens, hidden_size]` |
//! | embeddings of a layer | `[num_tokens, width]` |
//!
//! In a model with embeddings of each layer for tokens, [`Backbone::embed`] returns both: the
//! stream, and behind it `num_layers * width` elements.

mod inventory;
mod layer;

use burn::tensor::Tensor;
use playhouse_kernels::scale;

use self::layer::Layer;
use super::config::{Gemma4Config, MediaTokens, ModelConfig};
use super::layers::rotary::RotaryTables;
use super::layers::{Embedding, LayerPlace, Norm, PerLayerInputs};
use super::weight_loader::WeightLoader;
use super::{Adapters, Backbone, ModelError, Positions, Step};
pub(super) use inventory::{of_layer, outside};

/// HF `Gemma4TextModel`.
#[derive(Debug)]
pub(super) struct Gemma4 {
    embed_tokens: Embedding,
    multiplier: f32,
    per_layer: Option<PerLayerInputs>,
    media_tokens: Option<MediaTokens>,
    layers: Vec<Layer>,
    norm: Norm,
    /// The border of [`Backbone::short_context`].
    short_context: Option<usize>,
}

impl Gemma4 {
    /// Loads all but the output layer.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        gemma4: Gemma4Config,
        embed_tokens: Embedding,
    ) -> Result<Self, ModelError> {
        let names = &config.names;
        let per_layer = gemma4.per_layer.map(|it| PerLayerInputs::load(loader, config, it));
        let mut rotary = RotaryTables::new(config, loader.device());
        Ok(Self {
            embed_tokens,
            multiplier: config.embedding.multiplier,
            per_layer: per_layer.transpose()?,
            media_tokens: gemma4.media_tokens,
            layers: (0..config.layers.len())
                .map(|index| Layer::load(loader, LayerPlace { config, index }, &mut rotary, gemma4))
                .collect::<Result<_, _>>()?,
            norm: Norm::load(loader, &names.stored(names.norm), config.hidden_size, config.norm)?,
            short_context: config.short_context(),
        })
    }
}

impl Backbone for Gemma4 {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        let replaced = self.media_tokens.as_ref().map(|tokens| tokens.replaced(token_ids));
        let token_ids = replaced.as_deref().unwrap_or(token_ids);
        let hidden = scale(self.embed_tokens.forward(token_ids, adapters), self.multiplier);
        match &self.per_layer {
            None => hidden,
            Some(per_layer) => per_layer.beside(hidden, token_ids),
        }
    }

    fn short_context(&self) -> Option<usize> {
        self.short_context
    }

    fn forward(
        &self,
        embedded: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let (mut hidden, of_layers) = match &self.per_layer {
            None => (embedded, None),
            Some(per_layer) => {
                let (hidden, of_layers) = per_layer.apart(embedded, step.adapters());
                (hidden, Some((per_layer, of_layers)))
            }
        };
        for (index, layer) in self.layers.iter().enumerate() {
            let of_layer = of_layers.as_ref().map(|(inputs, all)| inputs.of_layer(all, index));
            hidden = layer.forward(hidden, of_layer, positions, step);
        }
        self.norm.forward(hidden)
    }

    fn mapped_bytes(&self) -> u64 {
        let own = self.per_layer.as_ref().map_or(0, PerLayerInputs::mapped_bytes);
        own + self.layers.iter().map(Layer::mapped_bytes).sum::<u64>()
    }
}
