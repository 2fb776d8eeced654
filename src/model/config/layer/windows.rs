//! The layers with a sliding window, and its size.

use serde_json::Value;

use crate::model::config::ConfigError;
use crate::model::config::file::Fields;

/// The kinds of attention layers that are supported, by transformers' names.
pub(in crate::model::config) const LAYER_TYPES: [&str; 2] = [FULL, SLIDING];
pub(super) const FULL: &str = "full_attention";
pub(super) const SLIDING: &str = "sliding_attention";

/// The default window of `MistralConfig`, `Qwen2Config` and `Qwen3Config` in transformers.
const DEFAULT_WINDOW: usize = 4_096;

/// The most layers of a model, far above any real one. The limit prevents absurd allocations.
const LAYERS_MAX: usize = 4_096;

/// A family's rule for the layers that have a sliding window. `layer_types` overrides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowRule {
    /// No layer, as HF `LlamaConfig` has no window.
    Never,
    /// All layers, unless `sliding_window` is null: HF `MistralConfig`.
    Always,
    /// With `use_sliding_window`, the layers from `max_window_layers` on: HF `Qwen2Config`.
    FromMaxWindowLayers,
}

/// Reads the window of each layer, first layer first. A layer with `None` attends to all earlier
/// tokens.
pub(super) fn read(config: &Fields, rule: WindowRule) -> Result<Vec<Option<u32>>, ConfigError> {
    let window = window_size(config, rule)?;
    let layers = sliding_layers(config, rule, window)?.into_iter();
    Ok(layers.map(|is_sliding| window.filter(|_| is_sliding)).collect())
}

/// Returns the size of the window, if the config turns it on.
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

/// Returns for each layer whether it has a sliding window.
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
        // 28 is the default of HF `Qwen2Config`. Zero is accepted here, so this is not read as a
        // size.
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
