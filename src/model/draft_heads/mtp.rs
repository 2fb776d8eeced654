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
//! Hunyuan 3 has the layer after the last one, too. Its norm is `final_layernorm`, over the state,
//! and the output layer is the model's, as in vLLM's `HYV3MTP`. K-EXAONE has the module `mtp` with
//! a layer without experts, as vLLM's `ExaoneMoeMTP` computes it.
//!
//! Nemotron 3 has the module `mtp`, too, as in vLLM's `NemotronHMTP`. Its layers are parts of one:
//! attention, and experts. The first part holds `enorm`, `hnorm` and `eh_proj`, and the last one
//! `final_layernorm`, a norm over the state.
//!
//! LongCat-Flash has the module `model.mtp`, as in vLLM's `LongCatFlashMTP`: a half of a layer,
//! without experts. Its norms have a module `m` within, and its MLP is in `transformer_layer`. The
//! norm over the state is `norm`, beside the layers.
//!
//! ERNIE 4.5 with experts has modules in `model`, as the authors' FastDeploy computes them. The
//! state is that after the model's own norm, and the layer rotates neighbouring pairs. vLLM's
//! `ErnieMTP` has no norm, a zero embedding at position 0, and rotates halves.
//!
//! | tensor of `model.` | shape |
//! |---|---|
//! | `mtp_emb_norm.0.weight`, `mtp_hidden_norm.0.weight` | `[hidden]` |
//! | `mtp_linear_proj.0.weight` | `[hidden, 2 · hidden]` |
//! | `mtp_block.0.…` | as the model's layers without experts |
//! | `norm.weight` | `[hidden]`: the model's last norm, over the state |
//!
//! The hidden state of the model is that after its final norm.

use burn::tensor::Tensor;
use playhouse_kernels::{add, scale_rows};
use serde_json::{Map, Value, json};

use super::eagle::UNLIMITED;
use super::parts::{HeadEmbedding, HeadLayers, HeadOutput, Target, load_with, refused};
use super::{HeadInput, HeadRows, Loaded};
use crate::config::JsonObject;
use crate::model::config::{Fields, LayerConfig, Mixer, ModelConfig, architecture};
use crate::model::decoder::{DecoderLayer, kv_layers};
use crate::model::families::{self, Entry};
use crate::model::family::{MlpNames, MtpForm};
use crate::model::layers::rotary::RotaryTables;
use crate::model::layers::{LayerPlace, Linear, Norm, Part};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, KvPlace, ModelError, ModelSource, Positions, Step};

/// The modules of [`MtpForm::Beside`], and those of its layer.
const MODULE: &str = "mtp";
const LAYER: &str = "mtp.layers";
/// The modules of [`MtpForm::Listed`].
const LIST: &str = "model.mtp_layers";
/// The modules of [`MtpForm::Block`], and those of its layer.
const MODEL: &str = "model";
const BLOCK: &str = "model.mtp_block";
/// The modules of [`MtpForm::InModel`], and those of its layer.
const OF_MODEL: &str = "model.mtp";
const IN_MODEL: &str = "model.mtp.layers";
const IN_MODEL_MLP: MlpNames = MlpNames {
    inner: &["transformer_layer.mlp.gate_proj", "transformer_layer.mlp.up_proj"],
    down_proj: "transformer_layer.mlp.down_proj",
};
/// The object with the fields of a text model.
const TEXT: &str = "text_config";
/// The module of the embedding.
const TABLE: &str = "embed_tokens";
/// The field with the number of layers.
const COUNT: &str = "num_nextn_predict_layers";

/// The names of a form's modules.
struct Names {
    token_norm: &'static str,
    hidden_norm: &'static str,
    projection: &'static str,
    /// The norm of the layer's output.
    norm: &'static str,
}

const AFTER: Names = Names {
    token_norm: "enorm",
    hidden_norm: "hnorm",
    projection: "eh_proj",
    norm: "shared_head.norm",
};

const BESIDE: Names = Names {
    token_norm: "pre_fc_norm_embedding",
    hidden_norm: "pre_fc_norm_hidden",
    projection: "fc",
    norm: "norm",
};

const LISTED: Names = Names {
    token_norm: "token_layernorm",
    hidden_norm: "hidden_layernorm",
    projection: "input_proj",
    norm: "final_layernorm",
};

const WITH_NORM: Names = Names { norm: "final_layernorm", ..AFTER };

const LONGCAT: Names = Names {
    token_norm: "enorm.m",
    hidden_norm: "hnorm.m",
    projection: "eh_proj",
    norm: LONGCAT_NORM,
};
const LONGCAT_NORM: &str = "norm";

const IN_BLOCK: Names = Names {
    token_norm: "mtp_emb_norm.0",
    hidden_norm: "mtp_hidden_norm.0",
    projection: "mtp_linear_proj.0",
    norm: "norm",
};

impl Names {
    fn of(form: MtpForm) -> Self {
        match form {
            MtpForm::After | MtpForm::Unread => AFTER,
            MtpForm::AfterWithNorm | MtpForm::Parts => WITH_NORM,
            MtpForm::Beside | MtpForm::BesideDense => BESIDE,
            MtpForm::Listed => LISTED,
            MtpForm::Block => IN_BLOCK,
            MtpForm::InModel => LONGCAT,
        }
    }
}

impl MtpForm {
    /// Returns the full name of the module `name` of the layer at `place`.
    fn module(self, name: &str, place: LayerPlace<'_>) -> String {
        match self {
            Self::After | Self::AfterWithNorm | Self::Unread => place.module(name),
            Self::Beside | Self::BesideDense => format!("{MODULE}.{name}"),
            Self::Parts => format!("{LAYER}.{}.{name}", place.index),
            Self::Listed => format!("{LIST}.0.{name}"),
            Self::Block => format!("{MODEL}.{name}"),
            Self::InModel if [LONGCAT_NORM, TABLE].contains(&name) => format!("{OF_MODEL}.{name}"),
            Self::InModel => format!("{IN_MODEL}.0.{name}"),
        }
    }

    /// Returns the list of modules with the layer, if that is not the model's.
    fn layers(self) -> Option<&'static str> {
        match self {
            Self::After | Self::AfterWithNorm | Self::Unread => None,
            Self::Beside | Self::BesideDense | Self::Parts => Some(LAYER),
            Self::Listed => Some(LIST),
            Self::Block => Some(BLOCK),
            Self::InModel => Some(IN_MODEL),
        }
    }

    /// Returns whether the embedding at position 0 is zero.
    fn drops_first(self) -> bool {
        matches!(self, Self::After | Self::AfterWithNorm | Self::Listed | Self::Unread)
    }

    /// Returns whether the norm is for the logits alone.
    fn norms_late(self) -> bool {
        matches!(self, Self::After | Self::Unread)
    }
}

struct Mtp {
    form: MtpForm,
    embed_tokens: HeadEmbedding,
    token_norm: Norm,
    hidden_norm: Norm,
    projection: Linear,
    layers: Vec<DecoderLayer>,
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
        let embedded =
            if self.form.drops_first() { without_first(embedded, positions) } else { embedded };
        let (token, state) =
            (self.token_norm.forward(embedded), self.hidden_norm.forward(rows.states));
        let both = match self.form {
            MtpForm::Listed => vec![state, token],
            _ => vec![token, state],
        };
        let both = Tensor::cat(both, 1);
        let (mut hidden, mut residual) = (self.projection.forward(both, Adapters::none()), None);
        for layer in &self.layers {
            (hidden, residual) = layer.forward(hidden, residual, positions, step);
        }
        let state = match residual {
            Some(residual) => add(hidden, residual),
            None => hidden,
        };
        if self.form.norms_late() { state } else { self.norm.forward(state) }
    }

    fn logits(&self, _num_guesses: usize, states: Tensor<2>, rows: &[u32]) -> Tensor<2> {
        self.output.logits(states, rows, |states| match self.form.norms_late() {
            true => self.norm.forward(states),
            false => states,
        })
    }

    fn mapped_bytes(&self) -> u64 {
        let layers: u64 = self.layers.iter().map(DecoderLayer::mapped_bytes).sum();
        layers + self.projection.mapped_bytes() + self.output.mapped_bytes()
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
    let of_model = ModelConfig::of_entry(source.config, entry, None)?;
    target.require(source, of_model.hidden_size, of_model.vocab_size)?;
    let form = match (of_model.family.mtp, entry) {
        (MtpForm::Unread, _) => return Err(refused(source, not_read())),
        (MtpForm::Beside, _) => MtpForm::Beside,
        (form, Entry::Family(_)) => form,
        _ => return Err(refused(source, not_read())),
    };
    // A class with images has the text model's fields in an object of their own.
    let of_text = match entry {
        Entry::Family(_) => None,
        Entry::Wrapper(_) => fields.nested(TEXT)?,
    };
    let (field, count) = match form {
        MtpForm::After | MtpForm::AfterWithNorm | MtpForm::Unread => {
            (COUNT, of_model.num_nextn_layers)
        }
        MtpForm::Beside | MtpForm::BesideDense => num_beside(of_text.as_ref().unwrap_or(fields))?,
        MtpForm::Listed | MtpForm::InModel => (COUNT, fields.count(COUNT)?.unwrap_or(1)),
        MtpForm::Block | MtpForm::Parts => (COUNT, fields.count(COUNT)?.unwrap_or(0)),
    };
    match (form, count) {
        (_, 1) => {}
        (_, 0) => {
            let what = format!("{}: {field} is 0 or absent", not_read());
            return Err(refused(source, what));
        }
        (MtpForm::Beside | MtpForm::Parts, count) => {
            return Err(refused(source, format!("{field} is {count}; 1 is supported")));
        }
        // Each was trained for a place of its own. The first one's guesses are right less often
        // there, which costs time alone.
        (_, count) => tracing::info!(count, field, "the first of these layers makes all guesses"),
    }
    let (index, config) = config_of_layer(source, form, entry, &of_model)?;
    let projection = Names::of(form).projection;
    let probe = form.module(projection, LayerPlace { config: &config, index });
    let probe = format!("{probe}.weight");
    load_with(source, config, &probe, None, |config, loader| {
        build(form, LayerPlace { config, index }, target, loader)
    })
}

/// Returns the config of a model with a layer of this form, and the index of the layer there.
fn config_of_layer(
    source: &ModelSource<'_>,
    form: MtpForm,
    entry: Entry,
    of_model: &ModelConfig,
) -> Result<(usize, ModelConfig), ModelError> {
    let fields = source.config.fields();
    let (index, other) = match form {
        // The layer after the last has the form that a longer model's last layer has.
        MtpForm::After | MtpForm::AfterWithNorm | MtpForm::Unread => {
            let index = of_model.layers.len();
            (index, longer(fields, index))
        }
        // As in vLLM, the form of a first layer with attention.
        MtpForm::Beside | MtpForm::Listed => {
            (0, json!({ "num_hidden_layers": 1, "layer_types": ["full_attention"] }))
        }
        // As in vLLM, the form of a first layer without experts.
        MtpForm::Block => (0, json!({ "num_hidden_layers": 1, "moe_layer_start_index": 1 })),
        MtpForm::BesideDense => (0, first_dense(fields, of_model)),
        MtpForm::Parts => (0, parts(fields)),
        MtpForm::InModel => (0, json!({ "num_layers": 1 })),
    };
    let is_nested = matches!(entry, Entry::Wrapper(_)) && fields.nested(TEXT)?.is_some();
    let other = if is_nested { json!({ TEXT: other }) } else { other };
    let mut of_layer = source.config.clone();
    of_layer.override_with(&JsonObject(object(other)));
    let mut config = ModelConfig::of_entry(&of_layer, entry, None)?;
    if form == MtpForm::InModel {
        // A layer of the checkpoint is two. The second one has no experts.
        let first = config.layers.len().min(1);
        config.layers.drain(..first);
        config.has_shortcuts = false;
        config.names.layers_are_pairs = false;
        config.names.mlp = IN_MODEL_MLP;
    }
    let has_state = |layer: &LayerConfig| matches!(layer.mixer, Mixer::Mamba2(_));
    if config.layers.len() <= index || config.layers.iter().skip(index).any(has_state) {
        let what = "expected parts with attention, experts or an MLP in mtp_layers_block_type";
        return Err(refused(source, what.to_owned()));
    }
    if let Some(layers) = form.layers() {
        config.names.layer = layers;
        // The module is beside the text model, too.
        config.names.place = None;
    }
    Ok((index, config))
}

/// Returns the fields of a model with one layer more than `count`.
fn longer(fields: &Fields, count: usize) -> Value {
    // Hunyuan's list has an entry for each layer.
    const FIELD: &str = "mlp_layer_types";
    let mut other = json!({ "num_hidden_layers": count + 1 });
    if let Some(Value::Array(listed)) = fields.value(FIELD)
        && listed.len() == count
    {
        let last = listed.last().cloned();
        other[FIELD] = listed.iter().cloned().chain(last).collect();
    }
    other
}

/// Returns the fields of a model with one layer, which is the first of `model` without experts. All
/// of its layers have rotations: those without a window have none beside others with one.
fn first_dense(fields: &Fields, model: &ModelConfig) -> Value {
    const WINDOWS: &str = "sliding_windows";
    const FULL: &str = "full_attention";
    let first = |name: &str| fields.value(name).and_then(|listed| listed.get(0)).cloned();
    let has_window = model.layers.first().is_some_and(|layer| match &layer.mixer {
        Mixer::Attention(attention) => attention.sliding_window.is_some(),
        _ => false,
    });
    let kind = if has_window { "sliding_attention" } else { FULL };
    let kind = first("mtp_layer_types").unwrap_or_else(|| kind.into());
    let mut other = json!({
        "num_hidden_layers": 1, "layer_types": [kind], "mlp_layer_types": ["dense"],
    });
    if kind == FULL {
        other["sliding_window"] = Value::Null;
    }
    if fields.has(WINDOWS) {
        let windows = first("mtp_sliding_windows").or_else(|| first(WINDOWS));
        other[WINDOWS] = windows.map_or(Value::Null, |window| json!([window]));
    }
    other
}

/// Returns the fields of a model whose layers are the parts of the module `mtp`.
fn parts(fields: &Fields) -> Value {
    const LISTED: &str = "mtp_layers_block_type";
    const PATTERN: &str = "mtp_hybrid_override_pattern";
    let listed = fields.value(LISTED).cloned();
    let pattern = fields.value(PATTERN).filter(|_| listed.is_none()).cloned();
    let is_default = listed.is_none() && pattern.is_none();
    let by_default = is_default.then(|| json!(["full_attention", "moe"]));
    // Without their number, the fields name each part.
    json!({
        "num_hidden_layers": null,
        "layer_types": null,
        "layers_block_type": listed.or(by_default),
        "hybrid_override_pattern": pattern,
    })
}

/// Returns the number of layers in a module beside the model's, and the field that has it.
fn num_beside(fields: &Fields) -> Result<(&'static str, usize), ModelError> {
    for field in ["mtp_num_hidden_layers", COUNT] {
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
    form: MtpForm,
    place: LayerPlace<'_>,
    target: &Target<'_>,
    loader: &mut WeightLoader<'_>,
) -> Result<Loaded, ModelError> {
    let LayerPlace { config, index } = place;
    let hidden = config.hidden_size;
    let names = Names::of(form);
    let mut norm = |name| Norm::load(loader, &form.module(name, place), hidden, config.norm);
    let token_norm = norm(names.token_norm)?;
    let hidden_norm = norm(names.hidden_norm)?;
    let last = LayerPlace { config, index: config.layers.len().saturating_sub(1) };
    let norm = Norm::load(loader, &form.module(names.norm, last), hidden, config.norm)?;
    let projection = [Part::new(form.module(names.projection, place), hidden)];
    let table = match form {
        // The table of `model` is the model's own.
        MtpForm::Block => place.module(TABLE),
        form => form.module(TABLE, place),
    };
    let mut rotary = RotaryTables::new(config, loader.device());
    let layers = (index..config.layers.len())
        .map(|index| DecoderLayer::load(loader, LayerPlace { config, index }, &mut rotary));
    let layers = layers.collect::<Result<_, _>>()?;
    let head = Mtp {
        form,
        embed_tokens: target.embedding(loader, &table, hidden)?,
        token_norm,
        hidden_norm,
        projection: Linear::load(loader, &projection, 2 * hidden, false)?,
        layers,
        norm,
        output: match form {
            MtpForm::After | MtpForm::Unread => {
                let shape = [config.vocab_size, hidden];
                target.output(loader, &place.module("shared_head.head"), shape)?
            }
            _ => target.model_output(),
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
