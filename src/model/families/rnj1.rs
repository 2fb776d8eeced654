//! Rnj-1: `Rnj1ForCausalLM` of vLLM.
//!
//! Gemma 3 with chunks in place of windows. A token of a chunked layer attends to its own chunk, up
//! to itself, and to the chunk before. A chunk has half as many tokens as the window.

use serde_json::Value;

use super::{
    ConfigError, Family, Fields, LayerConfig, LayerRule, ModelConfig, WindowRule, gemma, gemma3,
    llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Rnj1ForCausalLM",
    model_type: "rnj1",
    other_model_types: &["gemma3_text"],
    models: "Rnj-1",
    // `layer_types` names the layers with chunks.
    windows: WindowRule::AllButEvery { period: 1, field: None },
    rope: llama::ROPE,
    layers: LayerRule::Own(layers),
    adjust,
    ..gemma3::FAMILY
};

const CHUNKED: &str = "chunked_attention";
/// The kind of layers with a window, as which those with chunks are read.
const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let mut layers = read_alike(&with_windows(fields)?, family, max_position_embeddings)?;
    for attention in layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut()) {
        let Some(window) = attention.sliding_window.take() else { continue };
        if window < 2 {
            return Err(fields.invalid("sliding_window", "at least 2: a chunk has half of it"));
        }
        attention.chunk = Some(window / 2);
        attention.sees_chunk_before = true;
    }
    Ok(layers)
}

/// Returns the fields in which layers with chunks have a window.
fn with_windows(fields: &Fields) -> Result<Fields, ConfigError> {
    const TYPES: &str = "layer_types";
    const ROPE: &str = "rope_parameters";
    let count = fields.required_size("num_hidden_layers")?;
    let expected = format!("a list of {count} (num_hidden_layers) of \"{FULL}\" or \"{CHUNKED}\"");
    if fields.value(TYPES).is_none() {
        return Err(fields.missing(TYPES, &expected));
    }
    let kind = |name: &&str| match *name {
        FULL => Some(Value::from(FULL)),
        CHUNKED => Some(Value::from(SLIDING)),
        _ => None,
    };
    let kinds: Option<Vec<Value>> = fields.texts(TYPES)?.iter().map(kind).collect();
    let kinds = kinds.filter(|kinds| kinds.len() == count);
    let kinds = kinds.ok_or_else(|| fields.invalid(TYPES, &expected))?;
    let own = fields.with(TYPES, Value::Array(kinds));
    let Some(all) = fields.nested(ROPE)? else { return Ok(own) };
    let Some(of_chunks) = all.value(CHUNKED) else { return Ok(own) };
    let mut parameters = all.object().clone();
    parameters.insert(SLIDING.to_owned(), of_chunks.clone());
    Ok(own.with(ROPE, Value::Object(parameters)))
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    gemma::causal_only(fields)?;
    gemma3::adjust(fields, config)
}
