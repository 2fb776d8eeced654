//! The layers with a sliding window, and its size.

use serde_json::Value;

use crate::model::config::ConfigError;
use crate::model::config::file::Fields;

/// The kinds of attention layers that are supported, by transformers' names.
pub(in crate::model::config) const LAYER_TYPES: [&str; 2] = [FULL, SLIDING];
pub(super) const FULL: &str = "full_attention";
pub(in crate::model::config) const SLIDING: &str = "sliding_attention";
const CHUNKED: &str = "chunked_attention";

/// The default window of all config classes of transformers that have one.
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
    /// All layers, if `sliding_window` is set: HF `Phi3Config`.
    IfSet,
    /// With `use_sliding_window`, the layers from `max_window_layers` on: HF `Qwen2Config`.
    FromMaxWindowLayers,
    /// With `use_sliding_window`, all layers: HF `Qwen3MoeConfig`.
    IfUsed,
    /// With `use_sliding_window`, every other layer below `max_window_layers`: HF `Qwen2MoeConfig`.
    EveryOther,
    /// All layers but the last of each `period`, which `field` may change: HF `Gemma3TextConfig`.
    AllButEvery { period: usize, field: Option<&'static str> },
    /// All layers but the first of each `period`, which `field` may change: HF `ModernBertConfig`.
    AllButFirstOf { period: usize, field: &'static str },
    /// With `use_sliding_window`, the layers without rotary embeddings: HF `SmolLM3Config`.
    WithoutRope,
    /// The layers with rotary embeddings attend to chunks of `attention_chunk_size`: HF
    /// `Llama4TextConfig`.
    ChunksWithRope,
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
    if rule == WindowRule::ChunksWithRope {
        const FIELD: &str = "attention_chunk_size";
        let default = (!config.has(FIELD)).then_some(8_192);
        return Ok(config.size(FIELD)?.or(default).map(|chunk| chunk as u32));
    }
    let in_use = match rule {
        WindowRule::Never | WindowRule::ChunksWithRope => false,
        WindowRule::Always | WindowRule::AllButEvery { .. } | WindowRule::AllButFirstOf { .. } => {
            true
        }
        WindowRule::IfSet => config.value("sliding_window").is_some(),
        WindowRule::FromMaxWindowLayers
        | WindowRule::IfUsed
        | WindowRule::EveryOther
        | WindowRule::WithoutRope => config.flag("use_sliding_window")?.unwrap_or(false),
    };
    if !in_use {
        return Ok(None);
    }
    let has_default = rule != WindowRule::WithoutRope && !config.has("sliding_window");
    let default = has_default.then_some(DEFAULT_WINDOW);
    // Sizes are at most 2^24.
    Ok(config.size("sliding_window")?.or(default).map(|window| window as u32))
}

/// Reads the number of layers.
pub(super) fn num_layers(config: &Fields) -> Result<usize, ConfigError> {
    let count = config.required_size("num_hidden_layers")?;
    match count <= LAYERS_MAX {
        true => Ok(count),
        false => {
            let expected = format!("an integer from 1 to {LAYERS_MAX}");
            Err(config.invalid("num_hidden_layers", &expected))
        }
    }
}

/// Returns for each layer whether it has a sliding window.
fn sliding_layers(
    config: &Fields,
    rule: WindowRule,
    window: Option<u32>,
) -> Result<Vec<bool>, ConfigError> {
    let count = num_layers(config)?;
    // HF `Qwen3MoeModel` has one mask for all layers, whatever the list says.
    let listed = config.value("layer_types").filter(|_| rule != WindowRule::IfUsed);
    if let Some(layer_types) = listed {
        let local = if rule == WindowRule::ChunksWithRope { CHUNKED } else { SLIDING };
        return listed_layers(config, layer_types, count, local, window.is_some());
    }
    let first_sliding = match rule {
        _ if window.is_none() => count,
        WindowRule::Never => count,
        WindowRule::Always | WindowRule::IfSet | WindowRule::IfUsed => 0,
        WindowRule::EveryOther => {
            let end = max_window_layers(config)?;
            return Ok((0..count).map(|layer| layer < end && layer.is_multiple_of(2)).collect());
        }
        WindowRule::AllButEvery { period, field } => {
            let period =
                field.map(|field| config.size(field)).transpose()?.flatten().unwrap_or(period);
            return Ok((1..=count).map(|layer| !layer.is_multiple_of(period)).collect());
        }
        WindowRule::AllButFirstOf { period, field } => {
            let period = config.size(field)?.unwrap_or(period);
            return Ok((0..count).map(|layer| !layer.is_multiple_of(period)).collect());
        }
        WindowRule::ChunksWithRope => return config.rope_layers(count),
        WindowRule::WithoutRope => {
            return Ok(config.rope_layers(count)?.into_iter().map(|has_rope| !has_rope).collect());
        }
        WindowRule::FromMaxWindowLayers => max_window_layers(config)?,
    };
    Ok((0..count).map(|layer| layer >= first_sliding).collect())
}

/// Reads `max_window_layers`, which may be 0. 28 is the default of HF `Qwen2Config`.
fn max_window_layers(config: &Fields) -> Result<usize, ConfigError> {
    match config.number("max_window_layers")? {
        None => Ok(28),
        Some(first) if first >= 0.0 && first.fract() == 0.0 => Ok(first as usize),
        Some(_) => Err(config.invalid("max_window_layers", "an integer from 0")),
    }
}

fn listed_layers(
    config: &Fields,
    layer_types: &Value,
    count: usize,
    local: &str,
    has_window: bool,
) -> Result<Vec<bool>, ConfigError> {
    let accepted = match has_window {
        true => format!("a list of {count} (num_hidden_layers) of \"{FULL}\" or \"{local}\""),
        false => format!(
            "a list of {count} (num_hidden_layers) times \"{FULL}\", as no sliding window is in use"
        ),
    };
    let is_sliding = |layer_type: &Value| match layer_type.as_str()? {
        FULL => Some(false),
        layer_type if layer_type == local && has_window => Some(true),
        _ => None,
    };
    layer_types
        .as_array()
        .filter(|list| list.len() == count)
        .and_then(|list| list.iter().map(is_sliding).collect())
        .ok_or_else(|| config.invalid("layer_types", &accepted))
}
