//! A decoder with several residual streams: HF `Qwen4ExpTextModel`.
//!
//! | tensor | shape |
//! |---|---|
//! | hidden state of [`Backbone::embed`] | `[num_tokens, hidden_size]`, and `size` columns of n-grams |
//! | streams, one beside the other | `[num_tokens, count * hidden_size]` |
//! | input and output of a part of a layer | `[num_tokens, hidden_size]` |
//!
//! All streams begin as the embedding of the token. The mixer and the experts of a layer read a
//! weighted mean of the streams. Their outputs are added to each stream with a factor of its own.
//! Some layers add embeddings of n-grams before that.

mod hash;
mod inventory;
mod layer;
mod ngrams;
mod streams;
mod table;

use burn::tensor::Tensor;

use self::layer::Layer;
use self::streams::Mixed;
use super::config::{HyperConfig, ModelConfig};
use super::layers::rotary::{AxesRotary, RotaryTables};
use super::layers::{Embedding, LayerPlace};
use super::weight_loader::WeightLoader;
use super::{Adapters, Backbone, ModelError, Positions, Step};
pub(super) use inventory::{is_statistic, of_layer, optional, outside};

/// The module that makes one stream of the last ones.
const LAST: &str = "model.hyper_connection_mixer";

/// HF `Qwen4ExpTextModel`.
#[derive(Debug)]
pub(super) struct HyperDecoder {
    embed_tokens: Embedding,
    /// Tokens of the longest n-gram, if a layer has embeddings of them.
    ngram_size: Option<usize>,
    count: usize,
    layers: Vec<Layer>,
    last: Mixed,
    /// The rotary embedding of positions with three axes.
    axes: Option<AxesRotary>,
    /// The border of [`Backbone::short_context`].
    short_context: Option<usize>,
}

impl HyperDecoder {
    /// Loads all but the output layer.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        streams: HyperConfig,
        embed_tokens: Embedding,
    ) -> Result<Self, ModelError> {
        let mut rotary = RotaryTables::new(config, loader.device());
        let ngram_size = config.layers.iter().find_map(ngrams::of).map(|ngrams| ngrams.size);
        Ok(Self {
            embed_tokens,
            ngram_size,
            count: streams.count,
            layers: (0..config.layers.len())
                .map(|index| {
                    Layer::load(loader, LayerPlace { config, index }, &mut rotary, streams)
                })
                .collect::<Result<_, _>>()?,
            last: Mixed::load(loader, config, streams, &config.names.stored(LAST))?,
            axes: AxesRotary::of(config, loader.device()),
            short_context: config.short_context(),
        })
    }
}

impl Backbone for HyperDecoder {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        let hidden = self.embed_tokens.forward(token_ids, adapters);
        match self.ngram_size {
            None => hidden,
            Some(size) => ngrams::beside(hidden, token_ids, size),
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
        let rotary = self.axes.as_ref().and_then(|axes| axes.of_step(positions.axes()));
        let positions = match &rotary {
            None => positions,
            Some(rotary) => positions.turned(&rotary.rows, rotary.table.as_ref()),
        };
        let hidden = embedded.dims()[1] - self.ngram_size.unwrap_or(0);
        let first = embedded.clone().narrow(1, 0, hidden);
        let mut streams = Tensor::cat(vec![first; self.count], 1);
        for layer in &self.layers {
            streams = layer.forward(streams, &embedded, positions, step);
        }
        self.last.forward(&streams, step.adapters()).output
    }

    fn mapped_bytes(&self) -> u64 {
        self.last.mapped_bytes() + self.layers.iter().map(Layer::mapped_bytes).sum::<u64>()
    }
}
