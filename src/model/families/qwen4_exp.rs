//! Qwen4-Exp: HF `Qwen4ExpForCausalLM` and `Qwen4ExpForConditionalGeneration`.
//!
//! Qwen3.5 with experts over several residual streams (`crate::model::hyper_connections`), and
//! embeddings of n-grams before some gated delta rules. For each query, an indexer chooses
//! `indexer_budget` tokens in whole blocks of `indexer_compress_ratio`, and the tokens behind the
//! last whole block. In a context of at most as many tokens all are chosen, and the attention is
//! that of Qwen3.5.
//! Longer contexts are not served, and the indexer is not read.

use serde_json::Value;

use super::wrappers::{
    EACH_EXPERT, EXPERTS_BY_OUTPUT, INSIDE, PARTIAL_AXES_IN_TURNS, VISUAL_AND_MTP, sizes,
};
use super::{
    ActivationName, ConfigError, DeltaNetModules, Family, Fields, HyperConfig, LayerConfig,
    LayerNorms, LayerRule, Mixer, MixerKind, ModelConfig, MoeConfig, MtpForm, NgramConfig,
    PositionRule, RecurrentConfig, TextModel, VisionFamily, WeightNames, Wrapper, qwen3_5_moe,
    qwen3_next,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Qwen4ExpForCausalLM",
    model_type: "qwen4_exp_text",
    models: "Qwen4-Exp, the text models, contexts in which the indexer chooses all tokens",
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::DeltaNet, MixerKind::Ngrams],
    // Whole heads rotate by default, unlike those of Qwen3.5.
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    names: WeightNames {
        norms: LayerNorms {
            before_attention: None,
            after_attention: None,
            before_mlp: None,
            after_mlp: None,
        },
        ..qwen3_5_moe::FAMILY.names
    },
    mtp: MtpForm::Unread,
    adjust,
    ..qwen3_5_moe::FAMILY
};

const CLASS: &str = "Qwen4ExpForConditionalGeneration";

/// HF `Qwen4ExpForConditionalGeneration`: the same with the vision tower of Qwen3.5.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "qwen4_exp",
    models: "Qwen4-Exp, contexts in which the indexer chooses all tokens",
    texts: &[TextModel {
        family: Family { architecture: CLASS, rope: PARTIAL_AXES_IN_TURNS, ..FAMILY },
        sizes: sizes([248_320, 2_048, 5_632, 40, 16]),
        experts: &[EACH_EXPERT, EXPERTS_BY_OUTPUT],
    }],
    may_be_flat: false,
    places: &[INSIDE],
    unread: VISUAL_AND_MTP,
    vision: &[VisionFamily::Qwen3_5],
    audio: None,
};

/// The kinds of layers. Files call those with attention by all of these names.
const LAYER_TYPES: &str = "layer_types";
const INDEXED: [&str; 2] = ["indexed_attention", "qwen_sparse_attention"];
const FULL: &str = "full_attention";

/// The fields of the indexer. A model has all of them or none.
const BUDGET: &str = "indexer_budget";
const KEY_HEADS: &str = "indexer_kv_heads";
const RATIO: &str = "indexer_compress_ratio";
const INDEXER: [&str; 5] = ["indexer_n_heads", KEY_HEADS, "indexer_head_dim", BUDGET, RATIO];

/// Reads the layers: those with attention, and those with a delta rule, some of which have
/// embeddings of n-grams.
fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let fields = &with_known_types(fields);
    let mut layers =
        qwen3_next::layers(fields, family, max_position_embeddings, DeltaNetModules::ByKind)?;
    let context = indexed_context(fields)?;
    if let Some(context) = context.filter(|context| *context < max_position_embeddings) {
        tracing::warn!(
            context,
            max_position_embeddings,
            "contexts are served up to the choice of the indexer: that of longer ones is not"
        );
    }
    let HyperConfig { count, .. } = HyperConfig::read(fields)?;
    let channels = count * fields.required_size("hidden_size")?;
    let mut ngrams = NgramConfig::of_layers(fields, layers.len(), channels)?;
    for (index, layer) in layers.iter_mut().enumerate() {
        let activation = layer.activation();
        match &mut layer.mixer {
            Mixer::Attention(attention) => attention.indexed_context = context,
            Mixer::Recurrent(RecurrentConfig::DeltaNet(rule)) => {
                rule.gate = output_gate(fields, activation)?;
                rule.ngrams = ngrams.remove(&index);
            }
            _ => {}
        }
    }
    match ngrams.is_empty() {
        true => Ok(layers),
        false => Err(fields.invalid("ple_layer_ids", "layers of the kind \"linear_attention\"")),
    }
}

/// Returns the fields with one name for layers with attention.
fn with_known_types(fields: &Fields) -> Fields {
    let Some(list) = fields.value(LAYER_TYPES).and_then(Value::as_array) else {
        return fields.clone();
    };
    let known = |kind: &Value| match kind.as_str() {
        Some(name) if INDEXED.contains(&name) => FULL.into(),
        _ => kind.clone(),
    };
    fields.with(LAYER_TYPES, list.iter().map(known).collect())
}

/// Returns the longest context in which the indexer chooses all tokens. `None`: the model has no
/// indexer.
fn indexed_context(fields: &Fields) -> Result<Option<usize>, ConfigError> {
    let mut sizes = Vec::with_capacity(INDEXER.len());
    for field in INDEXER {
        sizes.push(fields.size(field)?);
    }
    if sizes.iter().all(Option::is_none) {
        return Ok(None);
    }
    if let Some((field, _)) = INDEXER.iter().zip(&sizes).find(|(_, size)| size.is_none()) {
        return Err(fields.missing(field, "a positive integer, as the indexer has other fields"));
    }
    if fields.size(KEY_HEADS)? != Some(1) {
        return Err(fields.invalid(KEY_HEADS, "1"));
    }
    let (budget, ratio) = (fields.required_size(BUDGET)?, fields.required_size(RATIO)?);
    match budget.is_multiple_of(ratio) {
        true => Ok(Some(budget + ratio - 1)),
        false => Err(fields.invalid(BUDGET, &format!("a multiple of {RATIO}, {ratio}"))),
    }
}

/// Reads the activation of the gates of delta rules, which is by default that of experts.
fn output_gate(fields: &Fields, activation: ActivationName) -> Result<ActivationName, ConfigError> {
    const FIELD: &str = "output_gate_type";
    let (field, gate) = match fields.text(FIELD)? {
        Some(name) => (FIELD, ActivationName::from_name(name)),
        None => ("hidden_act", Some(activation)),
    };
    let is_served =
        |gate: &ActivationName| matches!(gate, ActivationName::Silu | ActivationName::Sigmoid);
    gate.filter(is_served).ok_or_else(|| fields.invalid(field, "silu, swish or sigmoid"))
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(512),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(10),
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(true),
        ..qwen3_next::experts(fields, config)?
    };
    config.set_experts(fields, &moe, |_| true)?;
    config.hyper_connections = Some(HyperConfig::read(fields)?);
    // The last sum of the streams has a norm of its own.
    config.has_final_norm = false;
    Ok(())
}
