//! gpt-oss: HF `GptOssForCausalLM`.
//!
//! Every other layer has a sliding window, and each head a sink: a score without a value. Experts
//! have biases and a clamped gate. Their weights are MXFP4 in the published checkpoints
//! (<https://arxiv.org/abs/2508.10925>).

use serde_json::json;

use super::{
    Bias, ConfigError, Defaults, ExpertNames, Family, Fields, GateClamp, LayerConfig, LayerRule,
    ModelConfig, MoeConfig, MoeNames, Scoring, WeightNames, WindowRule, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GptOssForCausalLM",
    model_type: "gpt_oss",
    models: "gpt-oss 20B and 120B",
    aliases: &[("num_local_experts", "num_experts")],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(64),
        max_position_embeddings: 131_072,
        rope_theta: 150_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::UnlessUnset("attention_bias"),
    o_bias: Bias::UnlessUnset("attention_bias"),
    mlp_bias: Bias::Never,
    windows: WindowRule::AllButEvery { period: 2, field: None },
    names: WeightNames {
        moe: MoeNames {
            router: "mlp.router",
            experts: ExpertNames::Fused {
                inner: "mlp.experts.gate_up_proj",
                down_proj: "mlp.experts.down_proj",
                is_interleaved: true,
            },
            ..llama::MOE
        },
        ..llama::NAMES
    },
    layers: LayerRule::Own(layers),
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // The gate of experts has a formula of its own, so HF's class does not read the activation.
    if fields.text("hidden_act")?.is_some_and(|name| name != "silu") {
        return Err(fields.invalid("hidden_act", "\"silu\""));
    }
    let has_window = fields.has("sliding_window");
    for attention in config.attentions() {
        attention.sinks = Some("self_attn.sinks");
        if let Some(window) = attention.sliding_window.as_mut().filter(|_| !has_window) {
            *window = 128;
        }
    }
    let clamp = GateClamp {
        alpha: fields.positive("swiglu_alpha")?.unwrap_or(1.702) as f32,
        limit: fields.positive("swiglu_limit")?.unwrap_or(7.0) as f32,
    };
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(128),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(4),
        scoring: Scoring::SoftmaxOfChosen,
        has_router_bias: true,
        has_expert_biases: true,
        clamp: Some(clamp),
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(fields, &moe, |_| true)
}

/// Reads the layers. A config without an object of rotary parameters has YaRN.
fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let fields = fields.or_rope(json!({
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 4_096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": false,
    }))?;
    read_alike(&fields, family, max_position_embeddings)
}
