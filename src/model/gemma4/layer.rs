//! One layer: HF `Gemma4TextDecoderLayer`.

use burn::tensor::Tensor;
use playhouse_kernels::{WeightVector, add, rms_norm, scale};

use super::inventory::{
    EXPERTS_NORM, OUTPUT_SCALE, POST_EXPERTS_NORM, POST_MLP_NORM, ROUTER_SCALE,
};
use crate::model::config::{FeedForward, Gemma4Config, Mixer};
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{Attention, LayerPlace, Mlp, Moe, Norm, PerLayerGate};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError, Positions, Step};

/// The stream `x` after the layer is `c · y`, with the layer's factor `c`:
/// `h = x + after(attention(before(x)))`, `g = h + after(mlp(before(h)))`,
/// `y = g + norm(per_layer(g))`. With experts, the second part is [`Mixture`].
#[derive(Debug)]
pub(super) struct Layer {
    input_norm: Norm,
    attention: Attention,
    post_attention_norm: Norm,
    pre_feed_forward_norm: Norm,
    feed_forward: GemmaFeedForward,
    post_feed_forward_norm: Norm,
    per_layer: Option<PerLayerGate>,
    output_scale: f32,
}

#[derive(Debug)]
enum GemmaFeedForward {
    Mlp(Box<Mlp>),
    Mixture(Box<Mixture>),
}

/// An MLP and experts side by side: `norm(mlp(before(h))) + norm(experts(norm(h)))`, where the
/// router reads another norm of `h`.
#[derive(Debug)]
struct Mixture {
    moe: Moe,
    post_mlp_norm: Norm,
    /// `[hidden_size]`: the stored factors over the root of the width.
    router_norm: WeightVector,
    experts_norm: Norm,
    post_experts_norm: Norm,
    eps: f32,
}

impl Layer {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rotary: &mut RotaryTables<'_>,
        gemma4: Gemma4Config,
    ) -> Result<Self, ModelError> {
        let layer = place.layer();
        let Mixer::Attention(attention) = &layer.mixer else {
            return Err(ModelError::Family("a layer of Gemma 4 has attention".into()));
        };
        let feed_forward = match &layer.feed_forward {
            FeedForward::Mlp(mlp) => {
                let mlp = Mlp::load(loader, place, &place.names().mlp, mlp)?;
                GemmaFeedForward::Mlp(Box::new(mlp))
            }
            FeedForward::Moe(moe) => {
                let moe = Moe::load(loader, place, moe)?;
                GemmaFeedForward::Mixture(Box::new(Mixture::load(loader, place, moe)?))
            }
            FeedForward::None => {
                return Err(ModelError::Family("a layer of Gemma 4 has an MLP".into()));
            }
        };
        let per_layer = gemma4
            .per_layer
            .map(|it| PerLayerGate::load(loader, place, it.width, layer.activation()));
        let output_scale = loader.values(&place.module(OUTPUT_SCALE), &[1])?;
        Ok(Self {
            input_norm: norm(loader, place, "input_layernorm")?,
            attention: Attention::load(loader, place, attention, rotary)?,
            post_attention_norm: norm(loader, place, "post_attention_layernorm")?,
            pre_feed_forward_norm: norm(loader, place, "pre_feedforward_layernorm")?,
            feed_forward,
            post_feed_forward_norm: norm(loader, place, "post_feedforward_layernorm")?,
            per_layer: per_layer.transpose()?,
            output_scale: output_scale.first().copied().unwrap_or(1.0),
        })
    }

    /// Maps the stream, `[num_tokens, hidden_size]`, to the same shape. `embeddings` are those of
    /// this layer, `[num_tokens, width]`.
    pub(super) fn forward(
        &self,
        hidden: Tensor<2>,
        embeddings: Option<Tensor<2>>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let adapters = step.adapters();
        let normed = self.input_norm.forward(hidden.clone());
        let attended = self.attention.forward(normed, positions, step);
        let attended = self.post_attention_norm.forward(attended);
        let (normed, stream) = self.pre_feed_forward_norm.add_forward(attended, Some(hidden));
        let output = match &self.feed_forward {
            GemmaFeedForward::Mlp(mlp) => mlp.forward(normed, adapters),
            GemmaFeedForward::Mixture(mixture) => mixture.forward(normed, &stream, adapters),
        };
        let mut stream = add(stream, self.post_feed_forward_norm.forward(output));
        if let (Some(per_layer), Some(embeddings)) = (&self.per_layer, embeddings) {
            let output = per_layer.forward(stream.clone(), embeddings, adapters);
            stream = add(stream, output);
        }
        if self.output_scale == 1.0 { stream } else { scale(stream, self.output_scale) }
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        let per_layer = self.per_layer.as_ref().map_or(0, PerLayerGate::mapped_bytes);
        let feed_forward = match &self.feed_forward {
            GemmaFeedForward::Mlp(mlp) => mlp.mapped_bytes(),
            GemmaFeedForward::Mixture(mixture) => mixture.moe.mapped_bytes(),
        };
        self.attention.mapped_bytes() + feed_forward + per_layer
    }
}

impl Mixture {
    fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        moe: Moe,
    ) -> Result<Self, ModelError> {
        let (name, hidden) = (place.module(ROUTER_SCALE), place.config.hidden_size);
        let factor = (hidden as f32).sqrt().recip();
        let scales = loader.values(&name, &[hidden])?;
        let scales = scales.into_iter().map(|scale| scale * factor).collect();
        Ok(Self {
            moe,
            post_mlp_norm: norm(loader, place, POST_MLP_NORM)?,
            router_norm: loader.on_device(&name, scales)?,
            experts_norm: norm(loader, place, EXPERTS_NORM)?,
            post_experts_norm: norm(loader, place, POST_EXPERTS_NORM)?,
            eps: place.config.norm.eps,
        })
    }

    /// Returns the sum of both parts. `normed` is the input of the MLP, and `stream` what the
    /// experts and their router have norms of.
    fn forward(&self, normed: Tensor<2>, stream: &Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        let routing =
            self.moe.routing(rms_norm(stream.clone(), &self.router_norm, self.eps), adapters);
        let routed = self.moe.routed(self.experts_norm.forward(stream.clone()), &routing, adapters);
        let routed = self.post_experts_norm.forward(routed);
        match self.moe.shared(&normed, adapters) {
            None => routed,
            Some(output) => add(self.post_mlp_norm.forward(output), routed),
        }
    }
}

fn norm(
    loader: &mut WeightLoader<'_>,
    place: LayerPlace<'_>,
    name: &str,
) -> Result<Norm, ModelError> {
    Norm::load(loader, &place.module(name), place.config.hidden_size, place.config.norm)
}
