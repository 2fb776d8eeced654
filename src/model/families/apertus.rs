//! Apertus: HF `ApertusForCausalLM`.
//!
//! Llama with norms over query and key heads, and xIELU, whose shape is learned, without a gate
//! (<https://arxiv.org/abs/2509.14233>).

use serde_json::json;

use super::{
    Bias, ConfigError, Defaults, Family, Fields, LayerConfig, LayerNorms, LayerRule, MlpNames,
    MlpRule, WeightNames, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "ApertusForCausalLM",
    model_type: "apertus",
    models: "Apertus",
    defaults: Defaults {
        max_position_embeddings: 65_536,
        rope_theta: 12_000_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    mlp_bias: Bias::Never,
    layers: LayerRule::Own(layers),
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "xielu" },
    names: WeightNames {
        norms: LayerNorms {
            before_attention: Some("attention_layernorm"),
            after_attention: None,
            before_mlp: Some("feedforward_layernorm"),
            after_mlp: None,
        },
        mlp: MlpNames { inner: &["mlp.up_proj"], ..llama::NAMES.mlp },
        ..llama::WITH_HEAD_NORMS
    },
    ..llama::FAMILY
};

/// Reads the layers. A config without an object of rotary parameters has Llama 3's scaling.
fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let fields = fields.or_rope(json!({
        "rope_type": "llama3",
        "rope_theta": 12_000_000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 8_192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }))?;
    read_alike(&fields, family, max_position_embeddings)
}
