//! A decoder whose experts have a shortcut around the next layer: HF `LongcatFlashModel`
//! (<https://arxiv.org/abs/2509.01322>).
//!
//! Layers come in pairs. The first has experts beside its MLP, and both read the same hidden state.
//! The experts' output is added after the MLP of the second.
//!
//! | tensor | shape |
//! |---|---|
//! | hidden state, residual, output of experts | `[num_tokens, hidden_size]` |

use burn::tensor::Tensor;
use playhouse_kernels::{add, recycle};

use super::config::{Mixer, ModelConfig};
use super::layers::rotary::RotaryTables;
use super::layers::{Embedding, FeedForwardLayer, LatentAttention, LayerPlace, Norm};
use super::weight_loader::WeightLoader;
use super::{Adapters, Backbone, ModelError, Positions, Step};

/// HF `LongcatFlashModel`.
#[derive(Debug)]
pub(super) struct ShortcutDecoder {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: Norm,
    /// The border of [`Backbone::short_context`].
    short_context: Option<usize>,
}

/// Half of HF `LongcatFlashDecoderLayer`.
#[derive(Debug)]
struct Layer {
    input_norm: Norm,
    attention: LatentAttention,
    post_attention_norm: Norm,
    feed_forward: FeedForwardLayer,
}

impl ShortcutDecoder {
    /// Loads all but the output layer.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        embed_tokens: Embedding,
    ) -> Result<Self, ModelError> {
        let (names, hidden) = (&config.names, config.hidden_size);
        let mut rotary = RotaryTables::new(config, loader.device());
        Ok(Self {
            embed_tokens,
            layers: (0..config.layers.len())
                .map(|index| Layer::load(loader, LayerPlace { config, index }, &mut rotary))
                .collect::<Result<_, _>>()?,
            norm: Norm::load(loader, &names.stored(names.norm), hidden, config.norm)?,
            short_context: config.short_context(),
        })
    }
}

impl Backbone for ShortcutDecoder {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        self.embed_tokens.forward(token_ids, adapters)
    }

    fn short_context(&self) -> Option<usize> {
        self.short_context
    }

    fn forward(
        &self,
        mut hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let (mut residual, mut of_experts) = (None, None);
        for layer in &self.layers {
            let (normed, stream) = layer.input_norm.add_forward(hidden, residual);
            let attended = layer.attention.forward(normed, positions, step);
            let (normed, stream) = layer.post_attention_norm.add_forward(attended, Some(stream));
            hidden = layer.feed_forward(normed, &mut of_experts, step.adapters());
            residual = Some(stream);
        }
        let (hidden, residual) = self.norm.add_forward(hidden, residual);
        recycle(residual);
        hidden
    }

    fn mapped_bytes(&self) -> u64 {
        self.layers.iter().map(Layer::mapped_bytes).sum()
    }
}

impl Layer {
    fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        let (norms, config) = (place.config.norms_of(place.index), place.config);
        let missing = |part: &str| ModelError::Family(format!("a layer has no {part}").into());
        let norm = |loader: &mut WeightLoader<'_>, name: Option<&str>| {
            let name = name.ok_or_else(|| missing("norm before a part"))?;
            Norm::load(loader, &place.module(name), config.hidden_size, config.norm)
        };
        let Mixer::Latent(latent) = &place.layer().mixer else {
            return Err(missing("latent attention"));
        };
        Ok(Self {
            input_norm: norm(loader, norms.before_attention)?,
            attention: LatentAttention::load(loader, place, latent, rotary)?,
            post_attention_norm: norm(loader, norms.before_mlp)?,
            feed_forward: FeedForwardLayer::load(loader, place)?
                .ok_or_else(|| missing("feed-forward part"))?,
        })
    }

    /// Returns the output of the MLP. `of_experts` becomes the output of this layer's experts, or
    /// that of the layer's before is added.
    fn feed_forward(
        &self,
        x: Tensor<2>,
        of_experts: &mut Option<Tensor<2>>,
        adapters: Adapters<'_>,
    ) -> Tensor<2> {
        match &self.feed_forward {
            FeedForwardLayer::Mlp(mlp) => {
                let output = mlp.forward(x, adapters);
                match of_experts.take() {
                    None => output,
                    Some(of_experts) => add(output, of_experts),
                }
            }
            FeedForwardLayer::Moe(moe) => {
                let routing = moe.routing(x.clone(), adapters);
                let routed = moe.routed(x.clone(), &routing, adapters);
                match moe.shared(&x, adapters) {
                    None => routed,
                    Some(output) => {
                        *of_experts = Some(routed);
                        output
                    }
                }
            }
        }
    }

    fn mapped_bytes(&self) -> u64 {
        self.attention.mapped_bytes() + self.feed_forward.mapped_bytes()
    }
}
