//! Ministral 3, text only: HF `Ministral3ForCausalLM`.
//!
//! Mistral with YaRN, and queries that grow with the position
//! (<https://arxiv.org/abs/2501.19399>).

use serde_json::json;

use super::{
    ConfigError, Defaults, Family, Fields, LayerConfig, LayerRule, ModelConfig, TemperatureConfig,
    WindowRule, mistral, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Ministral3ForCausalLM",
    model_type: "ministral3",
    models: "Ministral 3, text only",
    defaults: Defaults {
        head_dim: Some(128),
        max_position_embeddings: 262_144,
        norm_eps: 1e-5,
        ..mistral::FAMILY.defaults
    },
    windows: WindowRule::IfSet,
    layers: LayerRule::Own(layers),
    adjust,
    ..mistral::FAMILY
};

/// Reads the layers. A config without an object of rotary parameters has YaRN.
fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    read_alike(&with_rope(fields)?, family, max_position_embeddings)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let temperature = temperature(&with_rope(fields)?, config.max_position_embeddings)?;
    config.attentions().for_each(|attention| attention.temperature = temperature);
    Ok(())
}

/// Reads the factor of queries from the rotary parameters: HF `get_llama_4_attn_scale`.
pub(super) fn temperature(
    fields: &Fields,
    max_position_embeddings: usize,
) -> Result<Option<TemperatureConfig>, ConfigError> {
    let Some(rope) = fields.rope()? else { return Ok(None) };
    let beta = rope.number("llama_4_scaling_beta")?.unwrap_or(0.0);
    let floor = rope.size("original_max_position_embeddings")?;
    let floor = floor.unwrap_or(max_position_embeddings);
    let temperature = TemperatureConfig { floor: floor as f32, scale: beta as f32, addend: 0.0 };
    Ok((beta != 0.0).then_some(temperature))
}

/// Returns the fields with rotary parameters: HF `Ministral3Config`.
fn with_rope(fields: &Fields) -> Result<Fields, ConfigError> {
    fields.or_rope(json!({
        "rope_type": "yarn",
        "rope_theta": 1_000_000.0,
        "factor": 16.0,
        "original_max_position_embeddings": 16_384,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale_all_dim": 1.0,
        "mscale": 1.0,
        "llama_4_scaling_beta": 0.1,
    }))
}
