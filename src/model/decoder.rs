//! The pre-norm decoder of the Llama line: HF `LlamaForCausalLM` and its descendants.
//!
//! | tensor | shape |
//! |---|---|
//! | hidden state, residual | `[num_tokens, hidden_size]` |
//! | q | `[num_tokens, num_heads * head_dim]` |
//! | k, v | `[num_tokens, num_kv_heads * head_dim]` |
//! | gate, up | `[num_tokens, intermediate_size]` |
//! | logits | `[rows, vocab_size]` |
//!
//! The residual stream is a separate tensor beside the hidden state. So each addition and the norm
//! after it are computed in one pass.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::recycle;

use super::config::{Mixer, ModelConfig};
use super::layers::rotary::RotaryTables;
use super::layers::{Embedding, FeedForwardLayer, LayerPlace, LinearHead, MixerLayer, RmsNorm};
use super::weight_loader::WeightLoader;
use super::{Backbone, KvLayers, Model, ModelError, Positions, Step};

/// HF `LlamaModel`.
#[derive(Debug)]
struct Decoder {
    embed_tokens: Embedding,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
}

/// HF `LlamaDecoderLayer`.
#[derive(Debug)]
struct DecoderLayer {
    input_layernorm: RmsNorm,
    mixer: MixerLayer,
    post_attention_layernorm: RmsNorm,
    feed_forward: FeedForwardLayer,
}

impl Backbone for Decoder {
    fn embed(&self, token_ids: &[u32]) -> Tensor<2> {
        self.embed_tokens.forward(token_ids)
    }

    fn forward(
        &self,
        mut hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let mut residual = None;
        for layer in &self.layers {
            let (output, sum) = layer.forward(hidden, residual, positions, step);
            (hidden, residual) = (output, Some(sum));
        }
        let (hidden, residual) = self.norm.forward(hidden, residual);
        recycle(residual);
        hidden
    }

    fn mapped_bytes(&self) -> u64 {
        let layers = self.layers.iter();
        layers.map(|layer| layer.mixer.mapped_bytes() + layer.feed_forward.mapped_bytes()).sum()
    }
}

impl DecoderLayer {
    /// Returns the layer's output and the residual stream, both `[num_tokens, hidden_size]`. The
    /// next norm adds them.
    fn forward(
        &self,
        hidden: Tensor<2>,
        residual: Option<Tensor<2>>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> (Tensor<2>, Tensor<2>) {
        let (hidden, residual) = self.input_layernorm.forward(hidden, residual);
        let hidden = self.mixer.forward(hidden, positions, step);
        let (hidden, residual) = self.post_attention_layernorm.forward(hidden, Some(residual));
        (self.feed_forward.forward(hidden), residual)
    }
}

/// Builds the model that `config` describes: HF `LlamaForCausalLM`.
pub(super) fn load(
    config: &ModelConfig,
    loader: &mut WeightLoader<'_>,
) -> Result<Model, ModelError> {
    let names = &config.family.names;
    let (vocab, hidden) = (config.vocab_size, config.hidden_size);
    let is_tied = config.tie_word_embeddings;
    let module = if is_tied { names.embed_tokens } else { names.lm_head };
    let lm_head = LinearHead::load(loader, module, vocab, hidden)?;
    let embed_tokens = match lm_head.shared_rows().filter(|_| is_tied) {
        Some(weight) => Embedding::Tied(weight),
        None => Embedding::load(loader, names.embed_tokens, vocab, hidden)?,
    };
    let mut rotary = RotaryTables::new(config, loader.device());
    let layers = (0..config.layers.len())
        .map(|index| DecoderLayer::load(loader, LayerPlace { config, index }, &mut rotary))
        .collect::<Result<_, _>>()?;
    let norm = RmsNorm::load(loader, names.norm, hidden, config.rms_norm_eps)?;
    // All layers of these families have the same heads, and a config has at least one layer.
    let Mixer::Attention(attention) = &config.layers[0].mixer;
    Ok(Model {
        architecture: config.architecture().to_owned(),
        vocab_size: config.vocab_size,
        max_model_len: config.max_model_len,
        eos_token_ids: config.eos_token_ids.clone(),
        kv_layers: KvLayers {
            num_layers: config.layers.len(),
            num_kv_heads: attention.num_kv_heads,
            head_dim: attention.head_dim,
        },
        dtype: loader.dtype(),
        quantized_weights: loader.quantized_weights().cloned(),
        backbone: Arc::new(Decoder { embed_tokens, layers, norm }),
        lm_head: Arc::new(lm_head),
    })
}

impl DecoderLayer {
    fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        let (config, names) = (place.config, place.names());
        let norm = |loader: &mut WeightLoader<'_>, name| {
            RmsNorm::load(loader, &place.module(name), config.hidden_size, config.rms_norm_eps)
        };
        Ok(Self {
            input_layernorm: norm(loader, names.input_layernorm)?,
            mixer: MixerLayer::load(loader, place, rotary)?,
            post_attention_layernorm: norm(loader, names.post_attention_layernorm)?,
            feed_forward: FeedForwardLayer::load(loader, place)?,
        })
    }
}
