//! What differs from layer to layer: how far back it attends, and its rotary embedding.

use serde_json::Value;

use super::file::Fields;
use super::{ConfigError, RopeParameters, rope};

/// The kinds of attention layers that are supported, by transformers' names.
pub(super) const LAYER_TYPES: [&str; 2] = [FULL, SLIDING];
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// The window that transformers assumes in `MistralConfig`, `Qwen2Config` and `Qwen3Config` where a
/// config gives none at all.
const DEFAULT_WINDOW: usize = 4_096;

/// Far above any model; it keeps an absurd count from being allocated.
const LAYERS_MAX: usize = 4_096;

/// One decoder layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerConfig {
    /// How many tokens a token attends to, itself included; all before it where absent.
    pub sliding_window: Option<u32>,
    /// Its rotary embedding.
    pub rope: RopeParameters,
}

/// How a family decides which layers have a sliding window, where `layer_types` does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowRule {
    /// None has: HF `LlamaConfig` knows no window.
    Never,
    /// All have, if `sliding_window` is not null: HF `MistralConfig`.
    Always,
    /// With `use_sliding_window`, those from `max_window_layers` on: HF `Qwen2Config`.
    FromMaxWindowLayers,
}

/// The layers of the model, outermost first.
pub(super) fn read(
    config: &Fields,
    rule: WindowRule,
    head_dim: usize,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let window = window_size(config, rule)?;
    let read_rope = |kind| rope::read(config, kind, head_dim, max_position_embeddings);
    let mut ropes: [Option<RopeParameters>; 2] = [None, None];
    let mut layers = Vec::new();
    for is_sliding in sliding_layers(config, rule, window)? {
        let slot = &mut ropes[usize::from(is_sliding)];
        let rope = match slot {
            Some(rope) => rope,
            None => slot.insert(read_rope(LAYER_TYPES[usize::from(is_sliding)])?),
        };
        let sliding_window = window.filter(|_| is_sliding);
        layers.push(LayerConfig { sliding_window, rope: rope.clone() });
    }
    Ok(layers)
}

/// The window that the config turns on.
fn window_size(config: &Fields, rule: WindowRule) -> Result<Option<u32>, ConfigError> {
    let in_use = match rule {
        WindowRule::Never => false,
        WindowRule::Always => true,
        WindowRule::FromMaxWindowLayers => config.flag("use_sliding_window")?.unwrap_or(false),
    };
    if !in_use {
        return Ok(None);
    }
    let default = (!config.has("sliding_window")).then_some(DEFAULT_WINDOW);
    // Sizes are at most 2^24.
    Ok(config.size("sliding_window")?.or(default).map(|window| window as u32))
}

/// For each layer, whether it has a sliding window.
fn sliding_layers(
    config: &Fields,
    rule: WindowRule,
    window: Option<u32>,
) -> Result<Vec<bool>, ConfigError> {
    let count = config.required_size("num_hidden_layers")?;
    if count > LAYERS_MAX {
        let expected = format!("an integer from 1 to {LAYERS_MAX}");
        return Err(config.invalid("num_hidden_layers", &expected));
    }
    if let Some(layer_types) = config.value("layer_types") {
        return listed_layers(config, layer_types, count, window);
    }
    let first_sliding = match rule {
        _ if window.is_none() => count,
        WindowRule::Never => count,
        WindowRule::Always => 0,
        // 28 is the default of HF `Qwen2Config`. Zero is a legal value, so this is no size.
        WindowRule::FromMaxWindowLayers => match config.number("max_window_layers")? {
            None => 28,
            Some(first) if first >= 0.0 && first.fract() == 0.0 => first as usize,
            Some(_) => return Err(config.invalid("max_window_layers", "an integer from 0")),
        },
    };
    Ok((0..count).map(|layer| layer >= first_sliding).collect())
}

fn listed_layers(
    config: &Fields,
    layer_types: &Value,
    count: usize,
    window: Option<u32>,
) -> Result<Vec<bool>, ConfigError> {
    let accepted = match window {
        Some(_) => format!("a list of {count} (num_hidden_layers) of \"{FULL}\" or \"{SLIDING}\""),
        None => format!(
            "a list of {count} (num_hidden_layers) times \"{FULL}\", as no sliding window is in use"
        ),
    };
    let is_sliding = |layer_type: &Value| match layer_type.as_str()? {
        FULL => Some(false),
        SLIDING => window.map(|_| true),
        _ => None,
    };
    layer_types
        .as_array()
        .filter(|list| list.len() == count)
        .and_then(|list| list.iter().map(is_sliding).collect())
        .ok_or_else(|| config.invalid("layer_types", &accepted))
}

#[cfg(test)]
mod tests;
