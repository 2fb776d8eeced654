//! EAGLE-3: one layer over token and hidden state side by side, for a part of the vocabulary.
//!
//! | tensor | shape |
//! |---|---|
//! | `fc.weight` | `[hidden, 3 · hidden]`: over the states before three layers of the model |
//! | `midlayer.input_layernorm`, `midlayer.hidden_norm` | `[hidden]`: over token and state |
//! | `midlayer.self_attn.{q,k,v}_proj.weight` | `[…, 2 · hidden]` |
//! | `midlayer.self_attn.o_proj`, `midlayer.mlp.…` | as HF `LlamaDecoderLayer` |
//! | `norm.weight` | `[hidden]`: before the output layer alone |
//! | `lm_head.weight` | `[draft_vocab, hidden]` |
//! | `d2t` | `[draft_vocab]` integers: the token of logit `i` is `i + d2t[i]` |
//!
//! `layers.0.` in place of `midlayer.` is accepted, and names may begin with `model.`. The format
//! is SafeAILab's, as vLLM's `Eagle3LlamaForCausalLM` reads it. The source is knowledge of the
//! format: neither was at hand. The three layers are `eagle_aux_hidden_state_layer_ids`, or by
//! default `2`, `L / 2` and `L - 3` of the model's `L` layers.

use burn::tensor::Tensor;
use playhouse_kernels::add;
use serde_json::Value;

use super::eagle::{UNLIMITED, size_of_draft};
use super::parts::{
    HeadEmbedding, HeadLayers, HeadOutput, Target, llama_config, load_with, refused,
};
use super::{HeadInput, HeadRows, Loaded};
use crate::model::config::{Mixer, ModelConfig};
use crate::model::decoder::kv_layers;
use crate::model::families::llama;
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{Attention, FeedForwardLayer, LayerPlace, Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError, ModelSource, Positions, Step};

/// The entries of `architectures` of EAGLE-3's checkpoints: SafeAILab's, SpecForge's and vLLM's.
const ARCHITECTURES: [&str; 3] =
    ["LlamaForCausalLM", "LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"];
/// Number of hidden states of the model in a row.
const NUM_STATES: usize = 3;

struct Eagle3 {
    embed_tokens: HeadEmbedding,
    fc: Linear,
    input_layernorm: Norm,
    hidden_norm: Norm,
    attention: Attention,
    post_attention_layernorm: Norm,
    feed_forward: Option<FeedForwardLayer>,
    norm: Norm,
    output: HeadOutput,
    /// Whether the stream goes on with the normalised hidden state.
    norm_before_residual: bool,
}

impl HeadLayers for Eagle3 {
    fn forward(
        &self,
        rows: HeadRows<'_>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let hidden = match rows.num_guesses {
            0 => self.fc.forward(rows.states, Adapters::none()),
            _ => rows.states,
        };
        let embedded = self.input_layernorm.forward(self.embed_tokens.forward(rows.token_ids));
        let normed = self.hidden_norm.forward(hidden.clone());
        let residual = if self.norm_before_residual { normed.clone() } else { hidden };
        let both = Tensor::cat(vec![embedded, normed], 1);
        let attended = self.attention.forward(both, positions, step);
        let (hidden, residual) =
            self.post_attention_layernorm.add_forward(attended, Some(residual));
        match &self.feed_forward {
            Some(feed_forward) => add(feed_forward.forward(hidden, Adapters::none()), residual),
            None => residual,
        }
    }

    fn logits(&self, _num_guesses: usize, states: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        self.output.logits(states, rows, |states| self.norm.forward(states))
    }

    fn mapped_bytes(&self) -> u64 {
        let feed_forward = self.feed_forward.as_ref().map_or(0, FeedForwardLayer::mapped_bytes);
        let layer = self.attention.mapped_bytes() + feed_forward;
        layer + self.fc.mapped_bytes() + self.output.mapped_bytes()
    }
}

/// Loads the head of `source`.
pub(super) fn load(
    source: &mut ModelSource<'_>,
    target: &Target<'_>,
) -> Result<Loaded, ModelError> {
    let config = llama_config(source, &llama::FAMILY, &ARCHITECTURES)?;
    target.require(source, config.hidden_size, config.vocab_size)?;
    if config.layers.len() != 1 {
        let what = format!("it has {} layers; heads of one are supported", config.layers.len());
        return Err(refused(source, what));
    }
    let num_tokens = size_of_draft(source, &config)?;
    if num_tokens > config.vocab_size {
        let what = format!(
            "draft_vocab_size is {num_tokens}, and must be at most the {} tokens of vocab_size",
            config.vocab_size
        );
        return Err(refused(source, what));
    }
    let input = HeadInput::BeforeLayers(layers_read(source, target)?);
    let norm_before_residual = source.config.fields().flag("norm_before_residual")?;
    let plan = Plan { input, num_tokens, norm_before_residual: norm_before_residual == Some(true) };
    // A checkpoint may have either name.
    let renamed = Some(("layers.0.", "midlayer."));
    load_with(source, config, "model.fc.weight", renamed, |config, loader| {
        build(config, target, plan, loader)
    })
}

/// The head's own settings.
struct Plan {
    input: HeadInput,
    num_tokens: usize,
    norm_before_residual: bool,
}

/// Returns the layers of the model whose inputs the head reads.
fn layers_read(source: &ModelSource<'_>, target: &Target<'_>) -> Result<Vec<usize>, ModelError> {
    const FIELD: &str = "eagle_aux_hidden_state_layer_ids";
    let num_layers = target.model.backbone.num_layers();
    let named = source.config().get("eagle_config").and_then(|config| config.get(FIELD));
    let named = source.config().get(FIELD).or(named).filter(|value| !value.is_null());
    let layers: Option<Vec<usize>> = match named {
        None => Some(vec![2, num_layers / 2, num_layers.saturating_sub(3)]),
        Some(value) => {
            let ids = value.as_array().into_iter().flatten();
            ids.map(|id| Value::as_u64(id).and_then(|id| usize::try_from(id).ok())).collect()
        }
    };
    let layers = layers.unwrap_or_default();
    let increases = layers.is_sorted_by(|one, next| one < next);
    let is_inside = layers.iter().all(|layer| *layer < num_layers);
    if layers.len() == NUM_STATES && increases && is_inside {
        return Ok(layers);
    }
    let what = match num_layers {
        0 => "the model's family gives no hidden states before its layers".to_owned(),
        _ => format!(
            "it reads the hidden states before the layers {layers:?} of the model; expected \
             {NUM_STATES} increasing indices below {num_layers} in {FIELD}"
        ),
    };
    Err(refused(source, what))
}

fn build(
    config: &ModelConfig,
    target: &Target<'_>,
    plan: Plan,
    loader: &mut WeightLoader<'_>,
) -> Result<Loaded, ModelError> {
    let (place, hidden) = (LayerPlace { config, index: 0 }, config.hidden_size);
    let mut rotary = RotaryTables::new(config, loader.device());
    let Mixer::Attention(attention) = &place.layer().mixer else {
        return Err(ModelError::CpuOnly { mixers: "no attention".to_owned() });
    };
    let mut norm = |name: &str| Norm::load(loader, name, hidden, config.norm);
    let of_layer = |name: &str| place.module(name);
    let input_layernorm = norm(&of_layer("input_layernorm"))?;
    let hidden_norm = norm(&of_layer("hidden_norm"))?;
    let post_attention_layernorm = norm(&of_layer("post_attention_layernorm"))?;
    let norm = norm("model.norm")?;
    let fc = [Part::new("model.fc".to_owned(), hidden)];
    let mut output = target.output(loader, "lm_head", plan.num_tokens)?;
    output.token_ids = token_ids(loader, plan.num_tokens, config.vocab_size)?;
    let head = Eagle3 {
        embed_tokens: target.embedding(loader, "model.embed_tokens")?,
        fc: Linear::load(loader, &fc, NUM_STATES * hidden, loader.has("model.fc.bias"))?,
        input_layernorm,
        hidden_norm,
        attention: Attention::of_inputs(loader, place, attention, &mut rotary, 2 * hidden)?,
        post_attention_layernorm,
        feed_forward: FeedForwardLayer::load(loader, place)?,
        norm,
        output,
        norm_before_residual: plan.norm_before_residual,
    };
    Ok(Loaded {
        input: plan.input,
        max_model_len: config.max_model_len,
        max_guesses: UNLIMITED,
        kv_layers: kv_layers(&config.layers),
        places: Vec::new(),
        layers: Box::new(head),
    })
}

/// Returns the token of each logit. A head of the whole vocabulary may have no table.
fn token_ids(
    loader: &mut WeightLoader<'_>,
    num_tokens: usize,
    vocab_size: usize,
) -> Result<Option<Vec<u32>>, ModelError> {
    let name = ["d2t", "model.d2t"].into_iter().find(|name| loader.has(name));
    let name = match name {
        None if num_tokens == vocab_size => return Ok(None),
        name => name.unwrap_or("d2t"),
    };
    let offsets = loader.integers(name, num_tokens)?;
    let token = |(index, offset): (i64, &i64)| {
        let token = u32::try_from(index.saturating_add(*offset)).ok();
        token.filter(|token| (*token as usize) < vocab_size).ok_or_else(|| {
            let reason = format!("entry {index} is {offset}, which names no token of {vocab_size}");
            let path = loader.path_of(name);
            crate::weights::WeightsError::Value { path, tensor: name.to_owned(), reason }
        })
    };
    let tokens = (0..).zip(&offsets).map(token).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(tokens))
}
