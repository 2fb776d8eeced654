//! From a text to states, and to keys and values for the decoder: HF `BartEncoder`, and `T5Stack`.

use std::sync::Arc;

use playhouse_kernels::{AttentionMask, AttentionMetadata};

use super::super::{KvProjection, Stream};
use super::plan::TextPlan;
use super::stack::{CommonParts, StackEnds};
use crate::model::layers::Embedding;
use crate::model::weight_loader::WeightLoader;
use crate::model::{
    Adapters, EncoderOutput, MediaData, MediaEncoder, MediaInput, MediaTensorView, ModelError,
};

/// The encoder, with the projections of the decoder that read its states.
#[derive(Debug)]
pub(super) struct Encoder {
    ends: StackEnds,
    layers: Vec<CommonParts>,
    for_decoder: Vec<KvProjection>,
    vocab_size: usize,
    num_positions: usize,
}

impl Encoder {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        plan: &TextPlan,
        embed_tokens: Arc<Embedding>,
    ) -> Result<Self, ModelError> {
        let (stack, decoder) = (&plan.encoder, &plan.decoder);
        let ends = StackEnds::load(loader, plan, stack, embed_tokens)?;
        let layers = (0..stack.num_layers).map(|index| {
            CommonParts::load(loader, plan, stack, &stack.layer(index), AttentionMask::Both)
        });
        let layers = layers.collect::<Result<_, _>>()?;
        let for_decoder = (0..decoder.num_layers).map(|index| {
            let module = format!("{}.{}", decoder.layer(index), decoder.names.cross_attention);
            KvProjection::load(loader, &module, &decoder.attention)
        });
        Ok(Self {
            ends,
            layers,
            for_decoder: for_decoder.collect::<Result<_, _>>()?,
            vocab_size: plan.encoder_vocab_size,
            num_positions: plan.num_positions,
        })
    }

    fn encode_one(&self, item: &MediaInput<'_>) -> Result<EncoderOutput, String> {
        let token_ids = self.token_ids(&item.tensors)?;
        let count = token_ids.len() as u32;
        let text = AttentionMetadata {
            query_start_loc: vec![0, count],
            seq_lens: vec![count],
            positions: (0..count).collect(),
            ..AttentionMetadata::default()
        };
        let x = self.ends.embed(&token_ids, Adapters::none());
        let stream = self.ends.before_layers(x, &text.positions);
        let stream = self.layers.iter().fold(stream, |stream, layer| forward(layer, stream, &text));
        let embeddings = self.ends.after_layers(stream);
        let by_layer = self.for_decoder.iter().flat_map(|layer| layer.of(&embeddings)).collect();
        Ok(EncoderOutput { embeddings, by_layer })
    }

    /// Returns the token ids of a text.
    fn token_ids(&self, tensors: &[MediaTensorView<'_>]) -> Result<Vec<u32>, String> {
        let [MediaTensorView { shape: [count], data: MediaData::TokenIds(bytes) }] = tensors else {
            return Err("a text is one list of token ids".to_owned());
        };
        let (ids, rest) = bytes.as_chunks();
        let ids: Vec<u32> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
        let most = self.num_positions;
        if ids.len() != *count || !rest.is_empty() || !(1..=most).contains(count) {
            return Err(format!("a text of {count} tokens; expected 1 to {most}"));
        }
        match ids.iter().find(|id| **id as usize >= self.vocab_size) {
            Some(id) => Err(format!("the token {id} is outside the vocabulary")),
            None => Ok(ids),
        }
    }
}

impl MediaEncoder for Encoder {
    fn encode(&self, items: &[MediaInput<'_>]) -> Vec<Result<EncoderOutput, String>> {
        items.iter().map(|item| self.encode_one(item)).collect()
    }

    fn is_placeholder(&self, _: u32) -> bool {
        false
    }

    fn mapped_bytes(&self) -> u64 {
        let layers: u64 = self.layers.iter().map(CommonParts::mapped_bytes).sum();
        layers + self.for_decoder.iter().map(KvProjection::mapped_bytes).sum::<u64>()
    }
}

/// Runs one layer over the tokens of a text.
fn forward(layer: &CommonParts, stream: Stream, text: &AttentionMetadata) -> Stream {
    let stream = layer.self_attention.forward(stream, |part, x| part.of_frames(x, text));
    layer.feed_forward.forward(stream, |part, x| part.forward(x, Adapters::none()))
}
