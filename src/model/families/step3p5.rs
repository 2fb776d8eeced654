//! Step 3.5: `Step3p5ForCausalLM` of its folder's own code, and of vLLM. transformers has the same
//! text model in HF `Step3p7ForConditionalGeneration`.
//!
//! The output of each attention head is multiplied by the sigmoid of a gate. Layers with a window
//! have their own number of query heads and their own rotary embedding. Experts are chosen by
//! sigmoid scores with a bias. In the last layers, activated gates have limits.

use serde_json::{Map, Value};

use super::{
    AttentionNames, Bias, ConfigError, Defaults, ExpertNames, Family, FeedForward, Fields,
    GateForm, HeadNormRule, LayerConfig, LayerRule, MlpNames, ModelConfig, MoeConfig, MoeNames,
    NormKind, NormRule, PositionRule, QkvNames, RopeRule, RotaryPart, SIZE_MAX, SharedExpert,
    SlidingRope, WeightNames, WindowRule, deepseek_v2, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Step3p5ForCausalLM",
    model_type: "step3p5",
    models: "Step 3.5 Flash",
    aliases: &[
        ("num_attention_groups", "num_key_value_heads"),
        ("n_routed_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
        ("moe_num_experts", "num_experts"),
        ("moe_top_k", "num_experts_per_tok"),
        ("share_expert_dims", "share_expert_dim"),
        ("num_mtp_layers", "num_nextn_predict_layers"),
    ],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        intermediate_size: Some(11_264),
        max_position_embeddings: 128_000,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    norm: NormRule { kind: NormKind::RmsPlusOne, eps: "rms_norm_eps" },
    head_norm: HeadNormRule::RmsPlusOne,
    // `layer_types` names the layers with a window.
    windows: WindowRule::AllButEvery { period: 1, field: None },
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    rope: RopeRule {
        part: RotaryPart::Field { name: None, rounds_up: true },
        sliding: Some(SlidingRope { theta: None, default: 10_000.0 }),
        ..llama::ROPE
    },
    layers: LayerRule::Own(layers),
    names: WeightNames {
        attention: AttentionNames {
            qkv: QkvNames::Gated {
                qkv: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                gate: "self_attn.g_proj",
            },
            ..llama::WITH_HEAD_NORMS.attention
        },
        moe: MoeNames {
            router: "moe.gate",
            correction_bias: "moe.router_bias",
            experts: ExpertNames::Stacked {
                inner: &["moe.gate_proj", "moe.up_proj"],
                down_proj: "moe.down_proj",
            },
            shared: MlpNames {
                inner: &["share_expert.gate_proj", "share_expert.up_proj"],
                down_proj: "share_expert.down_proj",
            },
            ..llama::MOE
        },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

const TYPES: &str = "layer_types";
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";
const WINDOW: &str = "sliding_window";
const HEADS: &str = "num_sliding_attention_heads";
/// The object with the sizes of layers with a window.
const OTHER: &str = "attention_other_setting";

/// The layers with experts.
const INDICES: &str = "moe_layers_enum";

/// The most heads of a layer, as in other families.
const HEADS_MAX: usize = 4_096;

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let is_sliding = kinds(fields)?;
    let own = with_ropes(fields, &is_sliding)?;
    let own = match fields.value(WINDOW) {
        Some(_) => own,
        None if is_sliding.contains(&true) => {
            return Err(fields.missing(WINDOW, "a positive integer"));
        }
        // It has no effect.
        None => own.with(WINDOW, 1.into()),
    };
    let heads = sliding_heads(fields)?;
    let mut layers = read_alike(&own, family, max_position_embeddings)?;
    for (layer, is_sliding) in layers.iter_mut().zip(is_sliding) {
        let Some(attention) = layer.mixer.attention_mut() else { continue };
        (attention.has_gate, attention.gate) = (true, GateForm::SigmoidOfHeads);
        if let Some(scalar) = fields.positive("query_pre_attn_scalar")? {
            attention.scale = scalar.sqrt().recip() as f32;
        }
        let Some((field, heads)) = heads.filter(|_| is_sliding) else { continue };
        attention.num_heads = heads;
        let kv_heads = attention.num_kv_heads;
        let is_bounded = heads.saturating_mul(attention.head_dim) <= SIZE_MAX;
        if heads > HEADS_MAX || !is_bounded || !heads.is_multiple_of(kv_heads) {
            let expected = format!("a multiple of {kv_heads} key heads, up to {HEADS_MAX}");
            return Err(fields.invalid(field, &expected));
        }
    }
    Ok(layers)
}

/// Returns whether each layer has a window. The list may go on with layers after the last.
fn kinds(fields: &Fields) -> Result<Vec<bool>, ConfigError> {
    let count = fields.required_size("num_hidden_layers")?;
    let Some(kinds) = fields.layer_kinds(TYPES, &[FULL, SLIDING])? else {
        return Err(fields.missing(TYPES, "a list of the kinds of layers"));
    };
    match kinds.get(..count) {
        Some(kinds) => Ok(kinds.iter().map(|kind| *kind == 1).collect()),
        None => Err(fields.invalid(TYPES, &format!("a list of {count} (num_hidden_layers)"))),
    }
}

/// Returns the fields with the parameters of each kind of layer in one object. Published configs
/// have the base and the rotating part of each layer in lists.
fn with_ropes(fields: &Fields, is_sliding: &[bool]) -> Result<Fields, ConfigError> {
    const LISTS: [(&str, &str); 2] =
        [("rope_theta", "rope_theta"), ("partial_rotary_factors", "partial_rotary_factor")];
    let names = is_sliding.iter().map(|sliding| Value::from(if *sliding { SLIDING } else { FULL }));
    // HF's class and vLLM's have SiLU, whatever the field says.
    let own = fields.without(&["hidden_act", "rope_theta", "rope_scaling"]);
    let own = own.with(TYPES, names.collect());
    let is_by_kind = |object: &Fields| object.value(FULL).or(object.value(SLIDING)).is_some();
    match fields.nested("rope_parameters")? {
        None => {}
        Some(object) if is_by_kind(&object) => return Ok(own),
        Some(_) => return Err(fields.invalid("rope_parameters", "an object of each kind of layer")),
    }
    let mut all = Map::new();
    for (kind, name) in [(false, FULL), (true, SLIDING)] {
        let layers = || (0..is_sliding.len()).filter(move |index| is_sliding[*index] == kind);
        if layers().next().is_none() {
            continue;
        }
        let mut parameters = scaling(fields, name)?;
        for (field, parameter) in LISTS {
            let value = match fields.value(field) {
                Some(Value::Array(list)) => {
                    let values: Option<Vec<&Value>> = layers().map(|i| list.get(i)).collect();
                    let same = values.filter(|values| values.iter().all(|it| *it == values[0]));
                    let expected = "a number for each layer, the same for all of a kind";
                    let same = same.ok_or_else(|| fields.invalid(field, expected))?;
                    Some(same[0].clone())
                }
                value => value.cloned(),
            };
            if let Some(value) = value {
                parameters.insert(parameter.into(), value);
            }
        }
        all.insert(name.into(), Value::Object(parameters));
    }
    Ok(own.with("rope_parameters", Value::Object(all)))
}

/// Returns the scaling of layers of a kind, which `yarn_only_types` names if only some have it.
fn scaling(fields: &Fields, kind: &str) -> Result<Map<String, Value>, ConfigError> {
    let kinds = fields.texts("yarn_only_types")?;
    let object = fields.nested("rope_scaling")?;
    Ok(match object.filter(|_| kinds.is_empty() || kinds.contains(&kind)) {
        Some(object) => object.object().clone(),
        None => [("rope_type".to_owned(), Value::from("default"))].into_iter().collect(),
    })
}

/// Returns the number of query heads in layers with a window, if they have their own, and its
/// field.
fn sliding_heads(fields: &Fields) -> Result<Option<(&'static str, usize)>, ConfigError> {
    if let Some(heads) = fields.size(HEADS)? {
        return Ok(Some((HEADS, heads)));
    }
    let Some(other) = fields.nested(OTHER)? else { return Ok(None) };
    if other.text("attention_type")?.is_some_and(|kind| kind != SLIDING) {
        return Err(other.invalid("attention_type", &format!("\"{SLIDING}\"")));
    }
    for (field, same) in [("num_attention_groups", "num_key_value_heads"), ("head_dim", "head_dim")]
    {
        let size = other.size(field)?;
        if size.is_some() && size != fields.size(same)? {
            return Err(other.invalid(field, "that of the other layers"));
        }
    }
    Ok(other.size("num_attention_heads")?.map(|heads| (OTHER, heads)))
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    refuse(fields)?;
    let count = config.layers.len();
    let shared = fields.size("share_expert_dim")?.unwrap_or(1_280);
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(1_280),
        renormalize: fields.flag_or("norm_expert_weight", true)?,
        scale: fields.positive("moe_router_scaling_factor")?.unwrap_or(1.0) as f32,
        shared: Some(SharedExpert { intermediate_size: shared, has_gate: false }),
        ..MoeConfig::of_sigmoids(config, fields.size("num_experts")?.unwrap_or(288))
    };
    let is_sparse = sparse_layers(fields, count)?;
    config.set_experts(fields, &moe, |layer| is_sparse.get(layer) == Some(&true))?;
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(0);
    let (routed, shared) =
        (limits(fields, "swiglu_limits", count)?, limits(fields, "swiglu_limits_shared", count)?);
    for (index, layer) in config.layers.iter_mut().enumerate() {
        match &mut layer.feed_forward {
            FeedForward::Moe(moe) => (moe.limit, moe.shared_limit) = (routed[index], shared[index]),
            FeedForward::Mlp(mlp) => mlp.limit = shared[index],
            FeedForward::None => {}
        }
    }
    Ok(())
}

/// Rejects fields whose effects differ between HF's class and vLLM's, or are not supported.
fn refuse(fields: &Fields) -> Result<(), ConfigError> {
    deepseek_v2::require(fields, "moe_router_activation", "sigmoid")?;
    deepseek_v2::require(fields, "att_impl_type", "GQA")?;
    for (field, accepted) in [
        ("attention_bias", false),
        ("mlp_bias", false),
        ("use_head_wise_attn_gate", true),
        ("use_moe_router_bias", true),
    ] {
        if fields.flag(field)?.is_some_and(|flag| flag != accepted) {
            return Err(fields.invalid(field, &accepted.to_string()));
        }
    }
    let ropes = fields.value("use_rope_layers").and_then(Value::as_array);
    let is_rotating = |flag: &Value| flag.as_bool() == Some(true) || flag.as_u64() == Some(1);
    if ropes.is_some_and(|flags| !flags.iter().all(is_rotating)) {
        return Err(fields.invalid("use_rope_layers", "an empty list: all layers rotate"));
    }
    Ok(())
}

/// Returns whether each layer has experts. A list of kinds says so, or the indices of some layers.
/// Both may go on with layers after the last.
fn sparse_layers(fields: &Fields, count: usize) -> Result<Vec<bool>, ConfigError> {
    const KINDS: &str = "mlp_layer_types";
    if let Some(list) = fields.value(KINDS).and_then(Value::as_array) {
        let cut = Value::from(list.iter().take(count).cloned().collect::<Vec<_>>());
        let flags = fields.with(KINDS, cut).flags(KINDS, ["dense", "sparse"], count)?;
        return Ok(flags.unwrap_or_default());
    }
    let missing = || fields.missing(INDICES, "the layers with experts");
    let indices = listed_layers(fields)?.ok_or_else(missing)?;
    Ok((0..count).map(|layer| indices.contains(&layer)).collect())
}

/// Returns the layers with experts, if there is a list of them, or a text with commas.
pub(super) fn listed_layers(fields: &Fields) -> Result<Option<Vec<usize>>, ConfigError> {
    match fields.value(INDICES) {
        None => Ok(None),
        Some(Value::String(text)) => {
            let indices = text.split(',').map(|index| index.trim().parse::<usize>().ok());
            let indices: Option<Vec<usize>> = indices.collect();
            let expected = "the layers with experts, divided by commas";
            indices.map(Some).ok_or_else(|| fields.invalid(INDICES, expected))
        }
        Some(_) => fields.indices(INDICES).map(Some),
    }
}

/// Reads the limit of each layer. Zero and null are none. The list may go on with layers after the
/// last.
fn limits(fields: &Fields, field: &str, count: usize) -> Result<Vec<Option<f32>>, ConfigError> {
    let Some(list) = fields.value(field) else { return Ok(vec![None; count]) };
    let limit = |value: &Value| match value.as_f64() {
        None => value.is_null().then_some(None),
        Some(0.0) => Some(None),
        Some(limit) => (limit >= 1.0).then_some(Some(limit as f32)),
    };
    let list = list.as_array().and_then(|list| list.get(..count));
    let limits = list.and_then(|list| list.iter().map(limit).collect());
    limits.ok_or_else(|| {
        let expected =
            format!("a list of {count} (num_hidden_layers) of null, 0 or a number of at least 1");
        fields.invalid(field, &expected)
    })
}
