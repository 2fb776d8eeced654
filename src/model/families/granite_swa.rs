//! Granite Swash: HF `GraniteSWAForCausalLM`.
//!
//! Granite with a sliding window in three layers of four, and with gpt-oss' sinks in all of them.
//! Each layer has its own base of wavelengths. Those with 0 have no positions.

use serde_json::Value;

use super::{
    ConfigError, Defaults, Family, Fields, LayerConfig, LayerRule, WindowRule, granite, llama,
    read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GraniteSWAForCausalLM",
    model_type: "granite_swa",
    models: "Granite Swash, dense",
    defaults: Defaults {
        num_key_value_heads: Some(4),
        max_position_embeddings: 8_192,
        tie_word_embeddings: true,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    windows: WINDOWS,
    layers: LayerRule::Own(layers),
    ..granite::FAMILY
};

/// The first layer of each four has no window. HF's class has no field for that number.
pub(super) const WINDOWS: WindowRule = WindowRule::AllButFirstOf { period: 4, field: "" };

/// Reads the layers, with their sinks and their bases.
pub(super) fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    const WINDOW: &str = "sliding_window";
    const BASES: &str = "layer_rope_theta";
    let fields = match fields.has(WINDOW) {
        true => fields.clone(),
        false => fields.with(WINDOW, Value::from(128)),
    };
    let mut layers = read_alike(&fields, family, max_position_embeddings)?;
    let bases = fields.numbers(BASES, layers.len())?;
    let attentions = layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut());
    for (index, attention) in attentions.enumerate() {
        attention.sinks = Some("self_attn.sinks");
        match bases.as_ref().map(|bases| bases[index]) {
            None => {}
            Some(0.0) => attention.rope = None,
            Some(base) if base.is_finite() && base > 0.0 => {
                if let Some(rope) = &mut attention.rope {
                    rope.theta = base;
                }
            }
            Some(_) => return Err(fields.invalid(BASES, "numbers from 0")),
        }
    }
    Ok(layers)
}
