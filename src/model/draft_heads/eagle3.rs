//! EAGLE-3: a layer over token and hidden state side by side, for a part of the vocabulary.
//!
//! | tensor | shape |
//! |---|---|
//! | `fc.weight` | `[hidden, n · width]`: over states before `n` layers of the model |
//! | `input_norm.weight` | `[n · width]`: over these states together, with `norm_before_fc` |
//! | `fc_norm.{i}.weight` | `[width]`: over each of these states, with `fc_norm` |
//! | `midlayer.input_layernorm`, `midlayer.hidden_norm` | `[hidden]`: over token and state |
//! | `midlayer.self_attn.{q,k,v}_proj.weight` | `[…, 2 · hidden]` |
//! | `midlayer.self_attn.{q,k}_norm.weight` | `[head_dim]`: of heads, in layers of Qwen3 alone |
//! | `midlayer.self_attn.o_proj`, `midlayer.mlp.…` | as HF `LlamaDecoderLayer` |
//! | `midlayer.self_attn.{q,kv}_a_proj…` | `[…, 2 · hidden]`, in layers of DeepSeek V3 alone |
//! | `layers.{i}.…` from 1 on | as HF `LlamaDecoderLayer` |
//! | `norm.weight` | `[hidden]`: before the output layer; with `norm_output`, over the state |
//! | `lm_head.weight` | `[draft_vocab, hidden]` |
//! | `d2t` | `[draft_vocab]` integers: the token of logit `i` is `i + d2t[i]` |
//!
//! `layers.0.` in place of `midlayer.` is accepted, and names may begin with `model.`. The format
//! is SafeAILab's, as vLLM's `Eagle3LlamaForCausalLM` and `Eagle3Qwen3ForCausalLM` read it, and
//! with latent attention `Eagle3DeepseekV3ForCausalLM`. The layers that it reads are
//! `eagle_aux_hidden_state_layer_ids`, or by default `2`, `L / 2` and `L - 3` of the model's `L`
//! layers. With `use_aux_hidden_state` false, there is no `fc`, and the head reads the states after
//! the model's final norm.

use burn::tensor::Tensor;
use playhouse_kernels::add;
use serde_json::Value;

use super::eagle::{UNLIMITED, size_of_draft};
use super::parts::{
    HeadEmbedding, HeadLayers, HeadOutput, Target, config_of, load_with, refused, size,
};
use super::{HeadInput, HeadRows, Loaded};
use crate::model::config::{FeedForward, Mixer, ModelConfig};
use crate::model::decoder::{DecoderLayer, kv_layers};
use crate::model::families::{DEEPSEEK_V3, QWEN3, llama};
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{
    Attention, FeedForwardLayer, LatentAttention, LayerPlace, Linear, Norm, Part,
};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError, ModelSource, Positions, Step};

/// The entries of `architectures` of EAGLE-3's checkpoints: SafeAILab's, SpecForge's and vLLM's.
const OF_LLAMA: &[&str] = &[
    "LlamaForCausalLM",
    "LlamaForCausalLMEagle3",
    "Eagle3LlamaForCausalLM",
    "Eagle3MiniMaxM2ForCausalLM",
    "Eagle3Qwen2_5vlForCausalLM",
    "Eagle3Qwen3vlForCausalLM",
];
/// Those of heads whose layers are Qwen3's: vLLM's names.
const OF_QWEN3: &[&str] = &["Qwen3ForCausalLM", "Eagle3Qwen3ForCausalLM"];
/// Those of heads with DeepSeek's latent attention. vLLM reads both names with one class.
const OF_DEEPSEEK: &[&str] =
    &["DeepseekV3ForCausalLM", "Eagle3DeepseekV3ForCausalLM", "Eagle3DeepseekV2ForCausalLM"];
/// The object of the config that may have the head's own settings.
const NESTED: &str = "eagle_config";

struct Eagle3 {
    embed_tokens: HeadEmbedding,
    /// `None` if the head reads the last states of the model.
    fusion: Option<Fusion>,
    input_layernorm: Norm,
    hidden_norm: Norm,
    attention: FirstAttention,
    post_attention_layernorm: Norm,
    feed_forward: Option<FeedForwardLayer>,
    /// The layers after the first one.
    further: Vec<DecoderLayer>,
    norm: Norm,
    output: HeadOutput,
    /// Whether the stream goes on with the normalised hidden state.
    norm_before_residual: bool,
    /// Whether the norm is a part of the state.
    norm_output: bool,
}

/// The attention of the first layer, whose inputs are token and hidden state side by side.
enum FirstAttention {
    Heads(Box<Attention>),
    Latents(Box<LatentAttention>),
}

impl FirstAttention {
    fn forward(&self, x: Tensor<2>, positions: Positions<'_>, step: &mut Step<'_>) -> Tensor<2> {
        match self {
            Self::Heads(attention) => attention.forward(x, positions, step),
            Self::Latents(attention) => attention.forward(x, positions, step),
        }
    }

    fn mapped_bytes(&self) -> u64 {
        match self {
            Self::Heads(attention) => attention.mapped_bytes(),
            Self::Latents(attention) => attention.mapped_bytes(),
        }
    }

    /// Loads attention whose queries, keys and values are projections of `inputs` elements.
    fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        rotary: &mut RotaryTables<'_>,
        inputs: usize,
    ) -> Result<Self, ModelError> {
        Ok(match &place.layer().mixer {
            Mixer::Attention(attention) => Self::Heads(Box::new(Attention::of_inputs(
                loader, place, attention, rotary, inputs,
            )?)),
            Mixer::Latent(latent) => Self::Latents(Box::new(LatentAttention::of_inputs(
                loader, place, latent, rotary, inputs,
            )?)),
            _ => return Err(ModelError::CpuOnly { mixers: "no attention".to_owned() }),
        })
    }
}

/// The map from the model's states before some layers to one state.
struct Fusion {
    /// Over all of them together.
    input_norm: Option<Norm>,
    /// Over each of them; empty without such norms.
    fc_norms: Vec<Norm>,
    fc: Linear,
}

impl Fusion {
    /// Maps `[num_rows, row_width]` to `[num_rows, hidden_size]`.
    fn forward(&self, states: Tensor<2>) -> Tensor<2> {
        let mut states = match &self.input_norm {
            Some(norm) => norm.forward(states),
            None => states,
        };
        if !self.fc_norms.is_empty() {
            let [_, row_width] = states.dims();
            let width = row_width / self.fc_norms.len();
            let part = |index: usize| states.clone().narrow(1, index * width, width);
            let parts = self.fc_norms.iter().enumerate();
            let parts = parts.map(|(index, norm)| norm.forward(part(index)));
            states = Tensor::cat(parts.collect(), 1);
        }
        self.fc.forward(states, Adapters::none())
    }
}

impl HeadLayers for Eagle3 {
    fn forward(
        &self,
        rows: HeadRows<'_>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let hidden = match (rows.num_guesses, &self.fusion) {
            (0, Some(fusion)) => fusion.forward(rows.states),
            _ => rows.states,
        };
        let embedded = self.input_layernorm.forward(self.embed_tokens.forward(rows.token_ids));
        let normed = self.hidden_norm.forward(hidden.clone());
        let residual = if self.norm_before_residual { normed.clone() } else { hidden };
        let both = Tensor::cat(vec![embedded, normed], 1);
        let attended = self.attention.forward(both, positions, step);
        let (hidden, residual) =
            self.post_attention_layernorm.add_forward(attended, Some(residual));
        let mut state = match &self.feed_forward {
            Some(feed_forward) => add(feed_forward.forward(hidden, Adapters::none()), residual),
            None => residual,
        };
        for layer in &self.further {
            state = match layer.forward(state, None, positions, step) {
                (hidden, Some(residual)) => add(hidden, residual),
                (hidden, None) => hidden,
            };
        }
        if self.norm_output { self.norm.forward(state) } else { state }
    }

    fn logits(&self, _num_guesses: usize, states: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        self.output.logits(states, rows, |states| match self.norm_output {
            true => states,
            false => self.norm.forward(states),
        })
    }

    fn mapped_bytes(&self) -> u64 {
        let feed_forward = self.feed_forward.as_ref().map_or(0, FeedForwardLayer::mapped_bytes);
        let further: u64 = self.further.iter().map(DecoderLayer::mapped_bytes).sum();
        let layers = self.attention.mapped_bytes() + feed_forward + further;
        let fc = self.fusion.as_ref().map_or(0, |fusion| fusion.fc.mapped_bytes());
        layers + fc + self.output.mapped_bytes()
    }
}

/// Loads the head of `source`.
pub(super) fn load(
    source: &mut ModelSource<'_>,
    target: &Target<'_>,
) -> Result<Loaded, ModelError> {
    let forms = [(&llama::FAMILY, OF_LLAMA), (&QWEN3, OF_QWEN3), (&DEEPSEEK_V3, OF_DEEPSEEK)];
    let config = config_of(source, target, &forms)?;
    if config.layers.iter().any(|layer| matches!(layer.feed_forward, FeedForward::Moe(_))) {
        let what = "its layers have experts, which heads have not: first_k_dense_replace must be \
                    at least num_hidden_layers";
        return Err(refused(source, what.to_owned()));
    }
    // A head may be narrower than its model. It has tables of its own then.
    let model_width = size(source, "target_hidden_size")?.unwrap_or(config.hidden_size);
    target.require(source, model_width, config.vocab_size)?;
    let num_tokens = size_of_draft(source, &config)?;
    if num_tokens > config.vocab_size {
        let what = format!(
            "draft_vocab_size is {num_tokens}, and must be at most the {} tokens of vocab_size",
            config.vocab_size
        );
        return Err(refused(source, what));
    }
    let input = match flag(source, "use_aux_hidden_state")? {
        Some(false) => HeadInput::Last,
        _ => HeadInput::BeforeLayers(layers_read(source, target)?),
    };
    if input == HeadInput::Last && model_width != config.hidden_size {
        let own = config.hidden_size;
        let what = format!("its hidden states have {own} elements, and the model's {model_width}");
        return Err(refused(source, what));
    }
    let is_on = |name| Ok::<_, ModelError>(flag(source, name)? == Some(true));
    let plan = Plan {
        input,
        model_width,
        num_tokens,
        norm_before_residual: is_on("norm_before_residual")?,
        norm_before_fc: is_on("norm_before_fc")?,
        fc_norm: is_on("fc_norm")?,
        norm_output: is_on("norm_output")?,
    };
    // A checkpoint may have either name.
    let renamed = Some(("layers.0.", "midlayer."));
    load_with(source, config, "model.fc.weight", renamed, |config, loader| {
        build(config, target, plan, loader)
    })
}

/// The head's own settings.
struct Plan {
    input: HeadInput,
    /// The width of the model's hidden states.
    model_width: usize,
    num_tokens: usize,
    norm_before_residual: bool,
    norm_before_fc: bool,
    fc_norm: bool,
    norm_output: bool,
}

/// Returns a setting of the head, from either place in its config.
fn flag(source: &ModelSource<'_>, name: &str) -> Result<Option<bool>, ModelError> {
    let fields = source.config.fields();
    let nested = match fields.nested(NESTED)? {
        Some(nested) => nested.flag(name)?,
        None => None,
    };
    match nested {
        Some(value) => Ok(Some(value)),
        None => Ok(fields.flag(name)?),
    }
}

/// Returns the layers of the model whose inputs the head reads.
fn layers_read(source: &ModelSource<'_>, target: &Target<'_>) -> Result<Vec<usize>, ModelError> {
    const FIELD: &str = "eagle_aux_hidden_state_layer_ids";
    let num_layers = target.model.backbone.num_layers();
    let nested = source.config().get(NESTED).and_then(|config| config.get(FIELD));
    let mut named = [source.config().get(FIELD), nested].into_iter().flatten();
    let named = named.find(|value| !value.is_null());
    let layers: Option<Vec<usize>> = match named {
        None => Some(vec![2, num_layers / 2, num_layers.saturating_sub(3)]),
        Some(value) => {
            let ids = value.as_array().into_iter().flatten();
            ids.map(|id| Value::as_u64(id).and_then(|id| usize::try_from(id).ok())).collect()
        }
    };
    let mut layers = layers.unwrap_or_default();
    // As in vLLM, the states are side by side in the order of the layers.
    layers.sort_unstable();
    let increases = layers.is_sorted_by(|one, next| one < next);
    // As in vLLM, the index after the last one stands for the states after all layers.
    let is_inside = num_layers > 0 && layers.iter().all(|layer| *layer <= num_layers);
    if !layers.is_empty() && increases && is_inside {
        return Ok(layers);
    }
    let what = match num_layers {
        0 => "the model's family gives no hidden states before its layers".to_owned(),
        _ => format!(
            "it reads the hidden states before the layers {layers:?} of the model; expected \
             different indices up to {num_layers} in {FIELD}"
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
    let mut norm = |name: &str| Norm::load(loader, name, hidden, config.norm);
    let of_layer = |name: &str| place.module(name);
    let input_layernorm = norm(&of_layer("input_layernorm"))?;
    let hidden_norm = norm(&of_layer("hidden_norm"))?;
    let post_attention_layernorm = norm(&of_layer("post_attention_layernorm"))?;
    let norm = norm("model.norm")?;
    let fusion = match &plan.input {
        HeadInput::Last => None,
        HeadInput::BeforeLayers(layers) => Some(fusion(config, &plan, layers.len(), loader)?),
    };
    let mut output = target.output(loader, "lm_head", [plan.num_tokens, hidden])?;
    output.token_ids = token_ids(loader, plan.num_tokens, config.vocab_size)?;
    let head = Eagle3 {
        embed_tokens: target.embedding(loader, "model.embed_tokens", hidden)?,
        fusion,
        input_layernorm,
        hidden_norm,
        attention: FirstAttention::load(loader, place, &mut rotary, 2 * hidden)?,
        post_attention_layernorm,
        feed_forward: FeedForwardLayer::load(loader, place)?,
        further: (1..config.layers.len())
            .map(|index| DecoderLayer::load(loader, LayerPlace { config, index }, &mut rotary))
            .collect::<Result<_, _>>()?,
        norm,
        output,
        norm_before_residual: plan.norm_before_residual,
        norm_output: plan.norm_output,
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

/// Loads the map from `count` states of the model to one.
fn fusion(
    config: &ModelConfig,
    plan: &Plan,
    count: usize,
    loader: &mut WeightLoader<'_>,
) -> Result<Fusion, ModelError> {
    let width = plan.model_width;
    let fc = [Part::new("model.fc".to_owned(), config.hidden_size)];
    let has_bias = loader.has("model.fc.bias");
    let mut norm = |name: String, size| Norm::load(loader, &name, size, config.norm);
    let input_norm =
        plan.norm_before_fc.then(|| norm("model.input_norm".to_owned(), count * width));
    let input_norm = input_norm.transpose()?;
    let each = if plan.fc_norm { 0..count } else { 0..0 };
    let fc_norms = each.map(|index| norm(format!("model.fc_norm.{index}"), width));
    let fc_norms = fc_norms.collect::<Result<_, _>>()?;
    let fc = Linear::load(loader, &fc, count * width, has_bias)?;
    Ok(Fusion { input_norm, fc_norms, fc })
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
