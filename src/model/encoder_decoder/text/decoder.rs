//! From tokens to hidden states, with attention to the encoder's text: HF `BartDecoder`, and
//! `T5Stack`.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::AttentionMask;

use super::super::{CrossAttention, Normed, Stream};
use super::plan::TextPlan;
use super::stack::{CommonParts, StackEnds, normed};
use crate::model::layers::Embedding;
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, Backbone, ModelError, Positions, Step};

/// The decoder. A sequence without a text to attend to is computed without its attention.
#[derive(Debug)]
pub(super) struct Decoder {
    ends: StackEnds,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    common: CommonParts,
    cross_attention: Normed<CrossAttention>,
}

impl Decoder {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        plan: &TextPlan,
        embed_tokens: Arc<Embedding>,
    ) -> Result<Self, ModelError> {
        let ends = StackEnds::load(loader, plan, &plan.decoder, embed_tokens)?;
        let layers = (0..plan.decoder.num_layers).map(|index| Layer::load(loader, plan, index));
        Ok(Self { ends, layers: layers.collect::<Result<_, _>>()? })
    }
}

impl Backbone for Decoder {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        self.ends.embed(token_ids, adapters)
    }

    fn forward(
        &self,
        hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let mut stream = self.ends.before_layers(hidden, positions.in_sequence());
        for (index, layer) in self.layers.iter().enumerate() {
            stream = layer.forward(stream, index, step);
        }
        self.ends.after_layers(stream)
    }

    fn mapped_bytes(&self) -> u64 {
        self.layers.iter().map(Layer::mapped_bytes).sum()
    }
}

impl Layer {
    fn load(
        loader: &mut WeightLoader<'_>,
        plan: &TextPlan,
        index: usize,
    ) -> Result<Self, ModelError> {
        let stack = &plan.decoder;
        let (layer, names) = (stack.layer(index), &stack.names);
        let common = CommonParts::load(loader, plan, stack, &layer, AttentionMask::Full)?;
        let module = format!("{layer}.{}", names.cross_attention);
        let cross = CrossAttention::load(loader, &module, &stack.attention, index)?;
        let cross_attention = normed(loader, stack, &layer, names.cross_norm, cross)?;
        Ok(Self { common, cross_attention })
    }

    fn forward(&self, stream: Stream, index: usize, step: &mut Step<'_>) -> Stream {
        let CommonParts { self_attention, feed_forward } = &self.common;
        let stream = self_attention.forward(stream, |part, x| part.of_tokens(x, index, step));
        // A norm after the sum is part of the layer even where there is nothing to attend to.
        let stream = self.cross_attention.forward(stream, |part, x| part.forward(x, step));
        feed_forward.forward(stream, |part, x| part.forward(x, step.adapters()))
    }

    fn mapped_bytes(&self) -> u64 {
        self.common.mapped_bytes() + self.cross_attention.part.mapped_bytes()
    }
}
