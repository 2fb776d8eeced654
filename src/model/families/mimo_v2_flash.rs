//! MiMo V2 Flash: HF `MiMoV2FlashForCausalLM`. vLLM's `MiMoV2ForCausalLM` has the same fields.
//!
//! Five layers of six have a window, twice as many key heads, and a sink in each query head. Values
//! are narrower than keys. DeepSeek V3's mixture of experts, without an expert of all tokens, is in
//! all layers but the first. The fields of layers with a window are those of the published config
//! and of vLLM's class. HF's class counts the window without the token itself.

use serde_json::Value;

use super::{
    Bias, ConfigError, Defaults, Family, Fields, LayerConfig, LayerRule, ModelConfig, MoeConfig,
    MtpForm, PositionRule, RopeRule, RotaryPart, SlidingRope, WindowRule, deepseek_v2, gemma4,
    llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "MiMoV2FlashForCausalLM",
    model_type: "mimo_v2_flash",
    models: "MiMo V2 Flash",
    aliases: &[
        ("n_routed_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
        ("layernorm_epsilon", "rms_norm_eps"),
    ],
    defaults: Defaults {
        num_key_value_heads: Some(4),
        head_dim: Some(192),
        intermediate_size: Some(16_384),
        max_position_embeddings: 131_072,
        rope_theta: 5_000_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    windows: WindowRule::AllButEvery { period: PERIOD, field: None },
    positions: PositionRule::Rotary { is_interleaved: false, percent: 33 },
    rope: RopeRule {
        part: RotaryPart::Field { name: Some(PART), rounds_up: true },
        sliding: Some(SlidingRope { theta: Some("swa_rope_theta"), default: 10_000.0 }),
        ..llama::ROPE
    },
    layers: LayerRule::Own(layers),
    // Layers that predict several tokens a step are not read.
    mtp: MtpForm::Unread,
    adjust,
    ..llama::FAMILY
};

/// Every layer of this number has no window, and neither has the first one.
const PERIOD: usize = 6;

/// The part of a head that rotates, and its default.
const PART: &str = "partial_rotary_factor";
const PART_DEFAULT: f64 = 0.334;

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    const KEY_HEADS: &str = "swa_num_key_value_heads";
    let own = with_defaults(fields)?;
    let mut layers = read_alike(&own, family, max_position_embeddings)?;
    let value_dim = fields.size("v_head_dim")?.unwrap_or(128);
    let scale = match fields.positive("attention_value_scale")? {
        None if fields.has("attention_value_scale") => 1.0,
        scale => scale.unwrap_or(0.707),
    };
    let key_heads = fields.size(KEY_HEADS)?;
    let has_sinks = [
        fields.flag("add_full_attention_sink_bias")?.unwrap_or(false),
        fields.flag_or("add_swa_attention_sink_bias", true)?,
    ];
    for attention in layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut()) {
        let has_window = attention.sliding_window.is_some();
        if value_dim > attention.head_dim {
            let expected = format!("at most head_dim, {}", attention.head_dim);
            return Err(fields.invalid("v_head_dim", &expected));
        }
        attention.value_dim = (value_dim < attention.head_dim).then_some(value_dim);
        attention.value_scale = scale as f32;
        attention.sinks =
            has_sinks[usize::from(has_window)].then_some("self_attn.attention_sink_bias");
        if has_window {
            attention.num_kv_heads = key_heads.unwrap_or(2 * attention.num_kv_heads);
            let heads = attention.num_heads;
            if !heads.is_multiple_of(attention.num_kv_heads) {
                let expected = format!("a divisor of num_attention_heads, {heads}");
                return Err(fields.invalid(KEY_HEADS, &expected));
            }
        }
    }
    gemma4::cache_alike(&mut layers);
    Ok(layers)
}

/// Returns the fields with the kind of each layer, the window, and the part that rotates.
fn with_defaults(fields: &Fields) -> Result<Fields, ConfigError> {
    for (field, same) in [
        ("swa_num_attention_heads", "num_attention_heads"),
        ("swa_head_dim", "head_dim"),
        ("swa_v_head_dim", "v_head_dim"),
    ] {
        if fields.value(field).is_some() && fields.value(field) != fields.value(same) {
            return Err(fields.invalid(field, &format!("{same}: all layers have that")));
        }
    }
    let mut own = fields.clone();
    if fields.value("layer_types").is_none() {
        let count = fields.required_size("num_hidden_layers")?;
        let has_window = windows(fields, count)?;
        let name =
            |has_window: &bool| if *has_window { "sliding_attention" } else { "full_attention" };
        let names: Vec<Value> = has_window.iter().map(|it| Value::from(name(it))).collect();
        own = own.with("layer_types", names.into());
    }
    let window = match fields.size("sliding_window_size")? {
        Some(size) => Some(size + 1),
        None if fields.has("sliding_window") => None,
        None => Some(129),
    };
    if let Some(window) = window {
        own = own.with("sliding_window", window.into());
    }
    if fields.value(PART).is_none() {
        own = own.with(PART, PART_DEFAULT.into());
    }
    Ok(own)
}

/// Returns for each of `count` layers whether it has a window.
fn windows(fields: &Fields, count: usize) -> Result<Vec<bool>, ConfigError> {
    const FIELD: &str = "hybrid_layer_pattern";
    let Some(listed) = fields.value(FIELD) else {
        // The number of layers is checked where they are read.
        let has_window = |layer: usize| layer > 0 && !(layer + 1).is_multiple_of(PERIOD);
        return Ok((0..count.min(1 << 16)).map(has_window).collect());
    };
    flags(listed, count).ok_or_else(|| {
        fields.invalid(FIELD, &format!("a list of {count} (num_hidden_layers) 0 or 1"))
    })
}

/// Returns a list of `count` numbers that are 0 or 1.
fn flags(listed: &Value, count: usize) -> Option<Vec<bool>> {
    let flag = |value: &Value| match value.as_u64()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let listed = listed.as_array().filter(|listed| listed.len() == count)?;
    listed.iter().map(flag).collect()
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const SPARSE: &str = "moe_layer_freq";
    const LAYOUT: &str = "attention_projection_layout";
    deepseek_v2::require(fields, "scoring_func", "sigmoid")?;
    deepseek_v2::require(fields, "topk_method", "noaux_tc")?;
    // One module then has the parts of several GPUs, each with blocks of scales of its own.
    if fields.text(LAYOUT)? == Some("fused_qkv") {
        return Err(fields.invalid(LAYOUT, "null: modules of queries, keys and values"));
    }
    if fields.count("n_shared_experts")?.unwrap_or(0) > 0 {
        return Err(fields.invalid("n_shared_experts", "null: no expert has all tokens"));
    }
    let num_experts = fields.size("num_experts")?.unwrap_or(256);
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(2_048),
        renormalize: fields.flag_or("norm_topk_prob", true)?,
        groups: MoeConfig::groups(fields)?,
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
        ..MoeConfig::of_sigmoids(config, num_experts)
    };
    let count = config.layers.len();
    let is_sparse = match fields.flags("mlp_layer_types", ["dense", "sparse"], count)? {
        Some(listed) => listed,
        None => match fields.value(SPARSE) {
            None => (0..count).map(|layer| layer > 0).collect(),
            Some(listed) => flags(listed, count).ok_or_else(|| {
                fields.invalid(SPARSE, &format!("a list of {count} (num_hidden_layers) 0 or 1"))
            })?,
        },
    };
    config.set_experts(fields, &moe, |layer| is_sparse[layer])
}
