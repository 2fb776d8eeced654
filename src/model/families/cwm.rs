//! Code World Model: HF `CwmForCausalLM`.
//!
//! Llama with a sliding window in three layers of four, of which the first has none
//! (<https://arxiv.org/abs/2510.02387>).

use serde_json::json;

use super::{
    Bias, ConfigError, Defaults, Family, Fields, LayerConfig, LayerRule, ModelConfig, WindowRule,
    llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "CwmForCausalLM",
    model_type: "cwm",
    models: "Code World Model",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        max_position_embeddings: 131_072,
        rope_theta: 1_000_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    windows: WindowRule::IfSet,
    layers: LayerRule::Own(layers),
    adjust,
    ..llama::FAMILY
};

const EOS: [u32; 3] = [128_001, 128_008, 128_009];

/// Reads the layers, with the defaults of HF `CwmConfig`.
fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let mut fields = fields.or_rope(json!({
        "rope_type": "llama3",
        "rope_theta": 1_000_000.0,
        "factor": 16.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8_192,
    }))?;
    if !fields.has("sliding_window") {
        fields = fields.with("sliding_window", json!(8_192));
    }
    let has_types = fields.value("layer_types").is_some();
    let mut layers = read_alike(&fields, family, max_position_embeddings)?;
    for layer in layers.iter_mut().step_by(4).filter(|_| !has_types) {
        if let Some(attention) = layer.mixer.attention_mut() {
            attention.sliding_window = None;
        }
    }
    Ok(layers)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.value("eos_token_id").is_none() {
        config.eos_token_ids = EOS.to_vec();
    }
    Ok(())
}
