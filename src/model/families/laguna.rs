//! Laguna: HF `LagunaForCausalLM`.
//!
//! The output of attention is multiplied by the softplus of a gate, of each head or of each
//! element. Layers may have different numbers of query heads. Experts are chosen by sigmoid scores
//! with a bias, beside an expert of all tokens.

use serde_json::{Value, json};

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, GateForm, LayerConfig, LayerRule,
    MlpNames, ModelConfig, MoeConfig, MoeNames, PositionRule, QkvNames, RopeRule, RotaryPart,
    SIZE_MAX, SharedExpert, SlidingRope, WeightNames, WindowRule, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "LagunaForCausalLM",
    model_type: "laguna",
    models: "Laguna",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        intermediate_size: Some(8_192),
        max_position_embeddings: 131_072,
        rope_theta: 500_000.0,
        ..llama::DEFAULTS
    },
    mlp_bias: Bias::Never,
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
            correction_bias: "mlp.experts.e_score_correction_bias",
            shared: MlpNames {
                inner: &["mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj"],
                down_proj: "mlp.shared_expert.down_proj",
            },
            ..llama::MOE
        },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

const HEADS: &str = "num_attention_heads_per_layer";

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let mut layers = read_alike(&with_defaults(fields)?, family, max_position_embeddings)?;
    let gate = gate(fields)?;
    let count = layers.len();
    let heads = match fields.value(HEADS) {
        None => None,
        Some(_) => fields.sizes(HEADS, count)?,
    };
    for (index, layer) in layers.iter_mut().enumerate() {
        let Some(attention) = layer.mixer.attention_mut() else { continue };
        (attention.has_gate, attention.gate) = (true, gate);
        if let Some(heads) = heads.as_ref().and_then(|heads| heads.get(index)) {
            attention.num_heads = *heads;
        }
        let (heads, kv_heads) = (attention.num_heads, attention.num_kv_heads);
        let is_bounded = heads.saturating_mul(attention.head_dim) <= SIZE_MAX;
        if heads > HEADS_MAX || !is_bounded || !heads.is_multiple_of(kv_heads) {
            let expected =
                format!("multiples of num_key_value_heads, {kv_heads}, up to {HEADS_MAX}");
            return Err(fields.invalid(HEADS, &expected));
        }
    }
    Ok(layers)
}

/// The most heads of a layer, as in other families.
const HEADS_MAX: usize = 4_096;

/// Returns the fields with the defaults of HF `LagunaConfig`.
fn with_defaults(fields: &Fields) -> Result<Fields, ConfigError> {
    let mut own = fields.clone();
    if !own.has("sliding_window") {
        own = own.with("sliding_window", 512.into());
    }
    own.or_rope(json!({
        "full_attention": {
            "rope_type": "default", "rope_theta": 500_000.0, "partial_rotary_factor": 0.5,
        },
        "sliding_attention": { "rope_type": "default", "rope_theta": 10_000.0 },
    }))
}

/// Reads the form of gates: `true`, "per-head" or "per-element".
fn gate(fields: &Fields) -> Result<GateForm, ConfigError> {
    const FIELD: &str = "gating";
    match fields.value(FIELD) {
        None | Some(Value::Bool(true)) => Ok(GateForm::SoftplusOfHeads),
        Some(Value::String(form)) if form == "per-head" => Ok(GateForm::SoftplusOfHeads),
        Some(Value::String(form)) if form == "per-element" => Ok(GateForm::Softplus),
        Some(_) => Err(fields.invalid(FIELD, "true, \"per-head\" or \"per-element\"")),
    }
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const CAP: &str = "moe_router_logit_softcapping";
    if fields.number(CAP)?.is_some_and(|cap| cap > 0.0) {
        return Err(fields.invalid(CAP, "0: caps of a router are not supported"));
    }
    if fields.flag("moe_apply_router_weight_on_input")?.unwrap_or(false) {
        return Err(fields.invalid("moe_apply_router_weight_on_input", "false"));
    }
    let shared = fields.size("shared_expert_intermediate_size")?.unwrap_or(512);
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(512),
        renormalize: true,
        scale: fields.positive("moe_routed_scaling_factor")?.unwrap_or(1.0) as f32,
        shared: Some(SharedExpert { intermediate_size: shared, has_gate: false }),
        ..MoeConfig::of_sigmoids(config, fields.size("num_experts")?.unwrap_or(256))
    };
    match fields.flags("mlp_layer_types", ["dense", "sparse"], config.layers.len())? {
        Some(is_sparse) => config.set_experts(fields, &moe, |layer| is_sparse[layer]),
        None => config.set_experts(fields, &moe, |layer| layer > 0),
    }
}
