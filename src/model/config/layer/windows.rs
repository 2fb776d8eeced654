//! Which layers have a sliding window, and of which size.

use serde_json::Value;

use crate::model::config::ConfigError;
use crate::model::config::file::Fields;

/// The kinds of attention layers that are supported, by transformers' names.
pub(in crate::model::config) const LAYER_TYPES: [&str; 2] = [FULL, SLIDING];
pub(super) const FULL: &str = "full_attention";
pub(super) const SLIDING: &str = "sliding_attention";

/// The window that transformers assumes in `MistralConfig`, `Qwen2Config` and `Qwen3Config` where a
/// config gives none at all.
const DEFAULT_WINDOW: usize = 4_096;

/// Far above any model; it keeps an absurd count from being allocated.
const LAYERS_MAX: usize = 4_096;

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

/// The window of each layer, first layer first; `None` for a layer that attends to all tokens before.
pub(super) fn read(config: &Fields, rule: WindowRule) -> Result<Vec<Option<u32>>, ConfigError> {
    let window = window_size(config, rule)?;
    let layers = sliding_layers(config, rule, window)?.into_iter();
    Ok(layers.map(|is_sliding| window.filter(|_| is_sliding)).collect())
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
