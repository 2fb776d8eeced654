//! One layer: HF `Gemma3nTextDecoderLayer`.

use burn::tensor::Tensor;
use playhouse_kernels::{add, scale};

use super::altup::{AltUp, Streams};
use crate::model::config::{AltUpConfig, FeedForward, LayerConfig, Mixer};
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{Attention, LayerPlace, Linear, Mlp, Norm, Part, PerLayerGate};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError, Positions, Step};

/// A layer of the active stream, and the embeddings that it adds to the others.
#[derive(Debug)]
pub(super) struct Layer {
    altup: AltUp,
    input_norm: Norm,
    laurel: Laurel,
    attention: Attention,
    post_attention_norm: Norm,
    pre_feed_forward_norm: Norm,
    mlp: Mlp,
    post_feed_forward_norm: Norm,
    per_layer: PerLayerGate,
}

/// A second branch beside attention, of low rank: HF `Gemma3nTextLaurelBlock`.
#[derive(Debug)]
struct Laurel {
    left: Linear,
    right: Linear,
    norm: Norm,
}

impl Layer {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rotary: &mut RotaryTables<'_>,
        altup: &AltUpConfig,
    ) -> Result<Self, ModelError> {
        let (hidden, config) = (place.config.hidden_size, place.config);
        let norm = |loader: &mut WeightLoader<'_>, name: &str| {
            Norm::load(loader, &place.module(name), hidden, config.norm)
        };
        let matrix = |loader: &mut WeightLoader<'_>, name: &str, outputs, inputs| {
            Linear::load(loader, &[Part::new(place.module(name), outputs)], inputs, false)
        };
        let rank = altup.laurel_rank;
        let LayerConfig { mixer, feed_forward } = place.layer();
        let (Mixer::Attention(attention), FeedForward::Mlp(mlp)) = (mixer, feed_forward) else {
            let reason = "a layer of Gemma 3n has attention and an MLP";
            return Err(ModelError::Family(reason.into()));
        };
        Ok(Self {
            altup: AltUp::load(loader, place, altup)?,
            input_norm: norm(loader, "input_layernorm")?,
            laurel: Laurel {
                left: matrix(loader, "laurel.linear_left", rank, hidden)?,
                right: matrix(loader, "laurel.linear_right", hidden, rank)?,
                norm: norm(loader, "laurel.post_laurel_norm")?,
            },
            attention: Attention::load(loader, place, attention, rotary)?,
            post_attention_norm: norm(loader, "post_attention_layernorm")?,
            pre_feed_forward_norm: norm(loader, "pre_feedforward_layernorm")?,
            mlp: Mlp::load(loader, place, &place.names().mlp, mlp)?,
            post_feed_forward_norm: norm(loader, "post_feedforward_layernorm")?,
            per_layer: PerLayerGate::load(loader, place, altup.per_layer.width, mlp.activation)?,
        })
    }

    /// Maps streams to streams. `embeddings` are those of this layer, `[num_tokens, width]`.
    pub(super) fn forward(
        &self,
        streams: &Streams,
        embeddings: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Streams {
        let adapters = step.adapters();
        let predictions = self.altup.predict(streams, adapters);
        let active = self.altup.active(&predictions);
        let normed = self.input_norm.forward(active.clone());
        let laurel = self.laurel.forward(normed.clone(), adapters);
        let attended = self.attention.forward(normed, positions, step);
        let attended = add(active, self.post_attention_norm.forward(attended));
        let attended = scale(add(attended, laurel), std::f32::consts::FRAC_1_SQRT_2);
        let output = self.pre_feed_forward_norm.forward(attended.clone());
        let output = self.post_feed_forward_norm.forward(self.mlp.forward(output, adapters));
        let corrected = self.altup.correct(predictions, add(attended, output), adapters);
        let added =
            self.per_layer.forward(self.altup.active_output(&corrected), embeddings, adapters);
        let mut corrected = corrected.into_iter();
        // The first stream gets nothing of the layer's embeddings.
        let first = corrected.next();
        first.into_iter().chain(corrected.map(|stream| add(stream, added.clone()))).collect()
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        let own = self.laurel.left.mapped_bytes() + self.laurel.right.mapped_bytes();
        own + self.per_layer.mapped_bytes()
            + self.attention.mapped_bytes()
            + self.mlp.mapped_bytes()
    }
}

impl Laurel {
    fn forward(&self, x: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        let low = self.right.forward(self.left.forward(x.clone(), adapters), adapters);
        add(x, self.norm.forward(low))
    }
}
