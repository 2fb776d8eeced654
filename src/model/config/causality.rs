//! The field `is_causal`, which makes an encoder of a decoder: transformers then masks no token,
//! and vLLM takes the model for one that only pools.

use super::file::Fields;
use super::{ConfigError, LayerConfig, Mixer, ModelConfig};
use crate::model::family::Family;

const FIELD: &str = "is_causal";

/// The families with published models that attend to both sides by this field.
const FAMILIES: [&str; 4] =
    ["LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"];

/// Makes the attention of `model` that to both sides, if the field is false.
///
/// # Errors
/// [`ConfigError::Invalid`] for other families, and for layers with a window.
pub(super) fn apply(
    config: &Fields,
    family: &Family,
    model: &mut ModelConfig,
) -> Result<(), ConfigError> {
    if config.flag(FIELD)?.unwrap_or(true) {
        return Ok(());
    }
    let sees_both_sides = |layer: &LayerConfig| match &layer.mixer {
        Mixer::Recurrent(mixer) => !mixer.has_state(),
        Mixer::Latent(latent) => !latent.is_causal,
        mixer => mixer.attention().is_some_and(|attention| !attention.is_causal),
    };
    // Encoders do so already.
    if model.layers.iter().all(sees_both_sides) {
        return Ok(());
    }
    if !FAMILIES.contains(&family.architecture) {
        return Err(config.invalid(FIELD, "true: a token attends to none after it"));
    }
    for attention in model.attentions() {
        if attention.sliding_window.is_some() {
            return Err(config.invalid(FIELD, "true, as layers have a sliding window"));
        }
        attention.is_causal = false;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::families_tests::{base, read};

    /// Returns whether all attention of a model is causal.
    fn is_causal(architecture: &str, more: Value) -> Result<bool, String> {
        let mut config = base(architecture);
        if FAMILIES.contains(&architecture) {
            config["sliding_window"] = Value::Null;
        }
        config[FIELD] = json!(false);
        for (field, value) in more.as_object().into_iter().flatten() {
            config[field] = value.clone();
        }
        let mut model = read(&config).map_err(|error| error.to_string())?;
        Ok(model.attentions().all(|attention| attention.is_causal))
    }

    #[test]
    fn decoders_with_published_encoders_attend_to_both_sides() {
        for architecture in FAMILIES {
            let of = |value: Value| is_causal(architecture, json!({ FIELD: value }));
            assert_eq!([of(json!(false)), of(json!(true))], [Ok(false), Ok(true)]);
            assert_eq!(of(Value::Null), Ok(true));
            assert!(of(json!("no")).unwrap_err().contains(FIELD), "{architecture}");
        }
    }

    #[test]
    fn other_models_and_windows_are_refused() {
        let window = json!({ "sliding_window": 9 });
        let why = is_causal("MistralForCausalLM", window).unwrap_err();
        assert!(why.contains(FIELD) && why.contains("window"), "{why}");
        for architecture in ["PhiForCausalLM", "Mamba2ForCausalLM", "Gemma3ForCausalLM"] {
            let why = is_causal(architecture, json!({})).unwrap_err();
            assert!(why.contains(FIELD), "{architecture}: {why}");
        }
    }
}
