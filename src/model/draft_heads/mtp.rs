//! Multi-token prediction: a layer that predicts a token more, which a model's own checkpoint has.
//!
//! DeepSeek V3 and GLM-4-MoE have it after the model's last layer, as vLLM's `DeepSeekMTP` and
//! `Glm4MoeMTP` compute it. The source is knowledge of vLLM, which was not at hand: the embedding
//! at position 0 is zero.
//!
//! | tensor of `model.layers.{L}.` | shape |
//! |---|---|
//! | `enorm.weight`, `hnorm.weight` | `[hidden]`: over the token, over the hidden state |
//! | `eh_proj.weight` | `[hidden, 2 · hidden]` |
//! | `input_layernorm`, `self_attn`, `mlp`, … | as the model's layers |
//! | `shared_head.norm.weight` | `[hidden]`: before the output layer alone |
//! | `shared_head.head.weight`, `embed_tokens.weight` | `[vocab, hidden]`; absent: the model's |
//!
//! `L` is `num_hidden_layers`. Qwen3-Next and the text models of Qwen3.5 have the module `mtp`, as
//! vLLM's `Qwen3NextMTP` and `Qwen3_5MTP` compute it. Their state is that after the last norm.
//!
//! | tensor of `mtp.` | shape |
//! |---|---|
//! | `pre_fc_norm_embedding.weight`, `pre_fc_norm_hidden.weight` | `[hidden]`, in the same order |
//! | `fc.weight` | `[hidden, 2 · hidden]` |
//! | `layers.0.…` | as the model's layers with attention |
//! | `norm.weight` | `[hidden]`: over the state |
//!
//! MiMo 7B has the modules `model.mtp_layers`, as vLLM's `MiMoMTP` computes them. The projection
//! takes the hidden state first, and the embedding at position 0 is zero. The state is that after
//! the last norm.
//!
//! | tensor of `model.mtp_layers.0.` | shape |
//! |---|---|
//! | `token_layernorm.weight`, `hidden_layernorm.weight` | `[hidden]` |
//! | `input_proj.weight` | `[hidden, 2 · hidden]` |
//! | `input_layernorm`, `self_attn`, `mlp`, … | as the model's layers |
//! | `final_layernorm.weight` | `[hidden]`: over the state |
//!
//! The hidden state of the model is that after its final norm.

use burn::tensor::Tensor;
use playhouse_kernels::{add, scale_rows};
use serde_json::{Map, Value, json};

use super::eagle::UNLIMITED;
use super::parts::{HeadEmbedding, HeadLayers, HeadOutput, Target, load_with, refused};
use super::{HeadInput, HeadRows, Loaded};
use crate::config::JsonObject;
use crate::model::config::{ConfigSource, Fields, ModelConfig, architecture};
use crate::model::decoder::{DecoderLayer, kv_layers};
use crate::model::families::{self, Entry};
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{LayerPlace, Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, KvPlace, ModelError, ModelSource, Positions, Step};

/// The modules of [`Form::Beside`], and those of its layer.
const MODULE: &str = "mtp";
const LAYER: &str = "mtp.layers";
/// The modules of [`Form::Listed`].
const LIST: &str = "model.mtp_layers";
/// The object with the fields of a text model.
const TEXT: &str = "text_config";

/// Where a checkpoint has the layer, and what its state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// After the last layer. The state is the layer's output.
    After,
    /// In a module beside the layers. The state is the norm of the layer's output.
    Beside,
    /// The first of a list of modules beside the layers. The state is the norm of the layer's
    /// output.
    Listed,
}

/// A name in each form of the checkpoint.
struct Names {
    after: &'static str,
    beside: &'static str,
    listed: &'static str,
}

const TOKEN_NORM: Names =
    Names { after: "enorm", beside: "pre_fc_norm_embedding", listed: "token_layernorm" };
const HIDDEN_NORM: Names =
    Names { after: "hnorm", beside: "pre_fc_norm_hidden", listed: "hidden_layernorm" };
const LAST_NORM: Names =
    Names { after: "shared_head.norm", beside: "norm", listed: "final_layernorm" };
const PROJECTION: Names = Names { after: "eh_proj", beside: "fc", listed: "input_proj" };
const TABLE: Names =
    Names { after: "embed_tokens", beside: "embed_tokens", listed: "embed_tokens" };

impl Names {
    /// Returns the full name of a module of the layer at `place`.
    fn of(&self, form: Form, place: LayerPlace<'_>) -> String {
        match form {
            Form::After => place.module(self.after),
            Form::Beside => format!("{MODULE}.{}", self.beside),
            Form::Listed => format!("{LIST}.0.{}", self.listed),
        }
    }
}

struct Mtp {
    form: Form,
    embed_tokens: HeadEmbedding,
    token_norm: Norm,
    hidden_norm: Norm,
    projection: Linear,
    layer: DecoderLayer,
    norm: Norm,
    output: HeadOutput,
}

impl HeadLayers for Mtp {
    fn forward(
        &self,
        rows: HeadRows<'_>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let embedded = self.embed_tokens.forward(rows.token_ids);
        let embedded = match self.form {
            Form::After | Form::Listed => without_first(embedded, positions),
            Form::Beside => embedded,
        };
        let (token, state) =
            (self.token_norm.forward(embedded), self.hidden_norm.forward(rows.states));
        let both = match self.form {
            Form::After | Form::Beside => vec![token, state],
            Form::Listed => vec![state, token],
        };
        let hidden = self.projection.forward(Tensor::cat(both, 1), Adapters::none());
        let state = match self.layer.forward(hidden, None, positions, step) {
            (hidden, Some(residual)) => add(hidden, residual),
            (hidden, None) => hidden,
        };
        match self.form {
            Form::After => state,
            Form::Beside | Form::Listed => self.norm.forward(state),
        }
    }

    fn logits(&self, _num_guesses: usize, states: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        self.output.logits(states, rows, |states| match self.form {
            Form::After => self.norm.forward(states),
            Form::Beside | Form::Listed => states,
        })
    }

    fn mapped_bytes(&self) -> u64 {
        self.layer.mapped_bytes() + self.projection.mapped_bytes() + self.output.mapped_bytes()
    }
}

/// Returns embeddings with zeros at position 0.
fn without_first(embedded: Tensor<2>, positions: Positions<'_>) -> Tensor<2> {
    let is_not_first = |position: &u32| if *position == 0 { 0.0 } else { 1.0 };
    let factors: Vec<f32> = positions.in_sequence().iter().map(is_not_first).collect();
    scale_rows(embedded, &factors)
}

/// Loads the head of `source`, a model with such a layer, or a folder with its config and that
/// layer alone.
pub(super) fn load(
    source: &mut ModelSource<'_>,
    target: &Target<'_>,
) -> Result<Loaded, ModelError> {
    let fields = source.config.fields();
    let name = architecture(fields, &families::architectures())?;
    let not_read = || format!("the layer for several tokens a step of {name} is not read");
    let Some(entry) = families::by_architecture(name) else {
        return Err(refused(source, not_read()));
    };
    let read = |config: &ConfigSource| ModelConfig::of_entry(config, entry, None);
    let of_model = read(source.config)?;
    target.require(source, of_model.hidden_size, of_model.vocab_size)?;
    let form = match (of_model.family.mtp, entry) {
        (Some(MODULE), _) => Form::Beside,
        (Some(LIST), Entry::Family(_)) => Form::Listed,
        (None, Entry::Family(_)) => Form::After,
        _ => return Err(refused(source, not_read())),
    };
    // A class with images has the text model's fields in an object of their own.
    let of_text = match entry {
        Entry::Family(_) => None,
        Entry::Wrapper(_) => fields.nested(TEXT)?,
    };
    let (field, count) = match form {
        Form::After => ("num_nextn_predict_layers", of_model.num_nextn_layers),
        Form::Beside => num_beside(of_text.as_ref().unwrap_or(fields))?,
        Form::Listed => {
            const FIELD: &str = "num_nextn_predict_layers";
            (FIELD, fields.count(FIELD)?.unwrap_or(1))
        }
    };
    match (form, count) {
        (_, 1) => {}
        (_, 0) => {
            let what = format!("{}: {field} is 0 or absent", not_read());
            return Err(refused(source, what));
        }
        // Each was trained for a place of its own. The first one's guesses are right less often
        // there, which costs time alone.
        (Form::After | Form::Listed, count) => {
            tracing::info!(count, field, "the first of these layers makes all guesses");
        }
        (Form::Beside, count) => {
            return Err(refused(source, format!("{field} is {count}; 1 is supported")));
        }
    }
    let (index, other) = match form {
        // The layer after the last has the form that a longer model's last layer has.
        Form::After => {
            let index = of_model.layers.len();
            (index, json!({ "num_hidden_layers": index + 1 }))
        }
        // As in vLLM, the form of a first layer with attention.
        Form::Beside | Form::Listed => {
            (0, json!({ "num_hidden_layers": 1, "layer_types": ["full_attention"] }))
        }
    };
    let other = if of_text.is_some() { json!({ TEXT: other }) } else { other };
    let mut of_layer = source.config.clone();
    of_layer.override_with(&JsonObject(object(other)));
    let mut config = read(&of_layer)?;
    let layers = match form {
        Form::After => None,
        Form::Beside => Some(LAYER),
        Form::Listed => Some(LIST),
    };
    if let Some(layers) = layers {
        config.names.layer = layers;
        // The module is beside the text model, too.
        config.names.place = None;
    }
    let probe = PROJECTION.of(form, LayerPlace { config: &config, index });
    let probe = format!("{probe}.weight");
    load_with(source, config, &probe, None, |config, loader| {
        build(form, LayerPlace { config, index }, target, loader)
    })
}

/// Returns the number of layers in a module beside the model's, and the field that has it.
fn num_beside(fields: &Fields) -> Result<(&'static str, usize), ModelError> {
    for field in ["mtp_num_hidden_layers", "num_nextn_predict_layers"] {
        if let Some(count) = fields.count(field)? {
            return Ok((field, count));
        }
    }
    Ok(("mtp_num_hidden_layers", 1))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

fn build(
    form: Form,
    place: LayerPlace<'_>,
    target: &Target<'_>,
    loader: &mut WeightLoader<'_>,
) -> Result<Loaded, ModelError> {
    let LayerPlace { config, index } = place;
    let hidden = config.hidden_size;
    let mut norm = |names: Names| Norm::load(loader, &names.of(form, place), hidden, config.norm);
    let token_norm = norm(TOKEN_NORM)?;
    let hidden_norm = norm(HIDDEN_NORM)?;
    let norm = norm(LAST_NORM)?;
    let projection = [Part::new(PROJECTION.of(form, place), hidden)];
    let mut rotary = RotaryTables::new(config, loader.device());
    let head = Mtp {
        form,
        embed_tokens: target.embedding(loader, &TABLE.of(form, place), hidden)?,
        token_norm,
        hidden_norm,
        projection: Linear::load(loader, &projection, 2 * hidden, false)?,
        layer: DecoderLayer::load(loader, place, &mut rotary)?,
        norm,
        output: match form {
            Form::After => {
                let shape = [config.vocab_size, hidden];
                target.output(loader, &place.module("shared_head.head"), shape)?
            }
            Form::Beside | Form::Listed => target.model_output(),
        },
    };
    Ok(Loaded {
        input: HeadInput::Last,
        max_model_len: config.max_model_len,
        max_guesses: UNLIMITED,
        kv_layers: kv_layers(&config.layers[index..]),
        // The layer's number in the model is the first layer of the head's cache.
        places: vec![KvPlace::default(); config.first_kv_layer(index) + 1],
        layers: Box::new(head),
    })
}
