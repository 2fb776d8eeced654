//! EAGLE: the layers of a Llama over a projection of token and hidden state.
//!
//! | tensor | shape |
//! |---|---|
//! | `fc.weight`, `fc.bias` | `[hidden, 2 · hidden]`, `[hidden]`; the bias may be absent |
//! | `layers.{i}.…` | as HF `LlamaDecoderLayer`; the first one has no `input_layernorm` |
//! | `embed_tokens.weight` | `[vocab, hidden]`; absent: the model's |
//! | `lm_head.weight` | `[vocab, hidden]`; absent: the model's |
//!
//! With `qkv_bias`, queries, keys and values have biases. The names may begin with `model.`. There
//! is no final norm. The format is SafeAILab's, as vLLM's `EagleLlamaForCausalLM` reads it.
//!
//! Layers of Mistral or of Llama 4 all have `input_layernorm`, and there is a norm over the state,
//! `norm.weight`. So it is in vLLM's `EagleMistralForCausalLM` and `EagleLlama4ForCausalLM`. None
//! of the layers has experts.

use burn::tensor::Tensor;
use playhouse_kernels::add;

use super::parts::{HeadEmbedding, HeadLayers, HeadOutput, Target, config_of, load_with, refused};
use super::{HeadInput, HeadRows, Loaded};
use crate::model::config::{FeedForward, Mixer, ModelConfig};
use crate::model::decoder::{DecoderLayer, kv_layers};
use crate::model::families::{LLAMA4, MISTRAL, llama};
use crate::model::family::Family;
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{LayerPlace, Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError, ModelSource, Positions, Step};

/// The entries of `architectures` of EAGLE's checkpoints: SafeAILab's, SpecForge's and vLLM's.
const ARCHITECTURES: &[&str] =
    &["LlamaForCausalLM", "LlamaForCausalLMEagle", "EagleLlamaForCausalLM"];
/// Those with other layers.
const OF_MISTRAL: &[&str] = &["MistralForCausalLM", "EagleMistralForCausalLM"];
const OF_LLAMA4: &[&str] = &["Llama4ForCausalLM", "EagleLlama4ForCausalLM"];
/// Most guesses of a head that reads its own states. vLLM has no limit but its own.
pub(super) const UNLIMITED: usize = usize::MAX;

struct Eagle {
    embed_tokens: HeadEmbedding,
    fc: Linear,
    layers: Vec<DecoderLayer>,
    norm: Option<Norm>,
    output: HeadOutput,
}

impl HeadLayers for Eagle {
    fn forward(
        &self,
        rows: HeadRows<'_>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let embedded = self.embed_tokens.forward(rows.token_ids);
        let both = Tensor::cat(vec![embedded, rows.states], 1);
        let (mut hidden, mut residual) = (self.fc.forward(both, Adapters::none()), None);
        for layer in &self.layers {
            (hidden, residual) = layer.forward(hidden, residual, positions, step);
        }
        let state = match residual {
            Some(residual) => add(hidden, residual),
            None => hidden,
        };
        match &self.norm {
            Some(norm) => norm.forward(state),
            None => state,
        }
    }

    fn logits(&self, _num_guesses: usize, states: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        self.output.logits(states, rows, |states| states)
    }

    fn mapped_bytes(&self) -> u64 {
        let layers: u64 = self.layers.iter().map(DecoderLayer::mapped_bytes).sum();
        layers + self.fc.mapped_bytes() + self.output.mapped_bytes()
    }
}

/// Loads the head of `source`.
pub(super) fn load(
    source: &mut ModelSource<'_>,
    target: &Target<'_>,
) -> Result<Loaded, ModelError> {
    let forms: &[(&'static Family, &[&str])] =
        &[(&llama::FAMILY, ARCHITECTURES), (&MISTRAL, OF_MISTRAL), (&LLAMA4, OF_LLAMA4)];
    let mut config = config_of(source, target, forms)?;
    target.require(source, config.hidden_size, config.vocab_size)?;
    if size_of_draft(source, &config)? != config.vocab_size {
        let what = "config.json has a draft_vocab_size, which heads of the method eagle3 have";
        return Err(refused(source, what.to_owned()));
    }
    let has_norm = config.family.architecture != llama::FAMILY.architecture;
    config.has_first_norm = has_norm;
    if config.layers.iter().any(|layer| matches!(layer.feed_forward, FeedForward::Moe(_))) {
        return Err(refused(source, "its layers have experts, which heads have not".to_owned()));
    }
    // As in vLLM: that of queries, keys and values, whatever `attention_bias` is.
    if let Some(has_bias) = source.config.fields().flag("qkv_bias")? {
        for layer in &mut config.layers {
            if let Mixer::Attention(attention) = &mut layer.mixer {
                attention.qkv_bias = has_bias;
            }
        }
    }
    load_with(source, config, "model.fc.weight", None, |config, loader| {
        build(config, target, has_norm, loader)
    })
}

/// Returns the number of tokens that a head guesses: `draft_vocab_size`, or the vocabulary.
pub(super) fn size_of_draft(
    source: &ModelSource<'_>,
    config: &ModelConfig,
) -> Result<usize, ModelError> {
    Ok(super::parts::size(source, "draft_vocab_size")?.unwrap_or(config.vocab_size))
}

fn build(
    config: &ModelConfig,
    target: &Target<'_>,
    has_norm: bool,
    loader: &mut WeightLoader<'_>,
) -> Result<Loaded, ModelError> {
    let mut rotary = RotaryTables::new(config, loader.device());
    let layers = (0..config.layers.len())
        .map(|index| DecoderLayer::load(loader, LayerPlace { config, index }, &mut rotary));
    let layers = layers.collect::<Result<_, _>>()?;
    let fc = [Part::new("model.fc".to_owned(), config.hidden_size)];
    let has_bias = loader.has("model.fc.bias");
    let norm = || Norm::load(loader, "model.norm", config.hidden_size, config.norm);
    let norm = has_norm.then(norm).transpose()?;
    let head = Eagle {
        embed_tokens: target.embedding(loader, "model.embed_tokens", config.hidden_size)?,
        fc: Linear::load(loader, &fc, 2 * config.hidden_size, has_bias)?,
        layers,
        norm,
        output: target.output(loader, "lm_head", [config.vocab_size, config.hidden_size])?,
    };
    Ok(Loaded {
        input: HeadInput::Last,
        max_model_len: config.max_model_len,
        max_guesses: UNLIMITED,
        kv_layers: kv_layers(&config.layers),
        places: Vec::new(),
        layers: Box::new(head),
    })
}
