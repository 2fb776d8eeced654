//! From tokens to hidden states, with attention to a sound: HF `WhisperDecoder`.

use burn::tensor::Tensor;
use playhouse_kernels::{AttentionMask, EmbeddingTable, add, embedding, recycle};

use super::config::WhisperConfig;
use crate::model::encoder_decoder::{
    AttentionForm, CrossAttention, FeedForward, FeedForwardForm, NORM, Normed, SelfAttention,
    Stream,
};
use crate::model::layers::{Embedding, Linear, Norm, embedding_table};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, Backbone, ModelError, Positions, Step};

/// The decoder. A sequence without a sound is computed without attention to one.
#[derive(Debug)]
pub(super) struct Decoder {
    embed_tokens: Embedding,
    positions: EmbeddingTable,
    layers: Vec<Layer>,
    norm: Norm,
}

#[derive(Debug)]
struct Layer {
    self_attention: Normed<SelfAttention>,
    cross_attention: Normed<CrossAttention>,
    feed_forward: Normed<FeedForward>,
}

impl Decoder {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &WhisperConfig,
        embed_tokens: Embedding,
    ) -> Result<Self, ModelError> {
        const MODULE: &str = "model.decoder";
        let (hidden, rows) = (config.hidden_size, config.num_positions);
        let positions = format!("{MODULE}.embed_positions");
        let layers = (0..config.decoder.num_layers)
            .map(|index| Layer::load(loader, config, &format!("{MODULE}.layers.{index}"), index));
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(Self {
            embed_tokens,
            positions: embedding_table(loader, &positions, rows, hidden)?,
            layers,
            norm: Norm::load(loader, &format!("{MODULE}.layer_norm"), hidden, NORM)?,
        })
    }
}

impl Backbone for Decoder {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        // transformers does not read `scale_embedding`.
        self.embed_tokens.forward(token_ids, adapters)
    }

    fn forward(
        &self,
        hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let hidden = add(hidden, embedding(&self.positions, positions.in_sequence()));
        let mut stream = (hidden, None);
        for (index, layer) in self.layers.iter().enumerate() {
            stream = layer.forward(stream, index, step);
        }
        let (hidden, stream) = self.norm.add_forward(stream.0, stream.1);
        recycle(stream);
        hidden
    }

    fn mapped_bytes(&self) -> u64 {
        self.layers.iter().map(Layer::mapped_bytes).sum()
    }
}

impl Layer {
    fn load(
        loader: &mut WeightLoader<'_>,
        config: &WhisperConfig,
        layer: &str,
        index: usize,
    ) -> Result<Self, ModelError> {
        let (hidden, stack) = (config.hidden_size, &config.decoder);
        let form = AttentionForm::of_whisper(hidden, stack.num_heads);
        let module = |name: &str| format!("{layer}.{name}");
        let (of_own, full) = (module("self_attn"), AttentionMask::Full);
        let own = SelfAttention::load(loader, &of_own, &form, full, None, Linear::load)?;
        let cross = CrossAttention::load(loader, &module("encoder_attn"), &form, index)?;
        let form = FeedForwardForm::of_bart(hidden, stack.intermediate_size, config.activation);
        let mlp = FeedForward::load(loader, layer, &form, Linear::load)?;
        let (before_own, before_cross) =
            (module("self_attn_layer_norm"), module("encoder_attn_layer_norm"));
        Ok(Self {
            self_attention: Normed::new(loader, &before_own, hidden, own)?,
            cross_attention: Normed::new(loader, &before_cross, hidden, cross)?,
            feed_forward: Normed::new(loader, &module("final_layer_norm"), hidden, mlp)?,
        })
    }

    fn forward(&self, stream: Stream, index: usize, step: &mut Step<'_>) -> Stream {
        let mut stream =
            self.self_attention.forward(stream, |part, x| part.of_tokens(x, index, step));
        if step.media().attended.iter().any(Option::is_some) {
            stream = self.cross_attention.forward(stream, |part, x| part.forward(x, step));
        }
        self.feed_forward.forward(stream, |part, x| part.forward(x, step.adapters()))
    }

    fn mapped_bytes(&self) -> u64 {
        let attentions =
            self.self_attention.part.mapped_bytes() + self.cross_attention.part.mapped_bytes();
        attentions + self.feed_forward.part.mapped_bytes()
    }
}
