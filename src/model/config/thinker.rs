//! The config of Qwen2.5-Omni. The object `thinker_config` has the model that reads, sees and
//! hears, and writes text. The parts that speak are not served.

use serde_json::json;

use super::ConfigError;
use super::file::Fields;

/// The class of all forms of the model here. In their checkpoints, the thinker is beside the parts
/// that speak, or alone.
const CLASS: &str = "Qwen2_5OmniForConditionalGeneration";
/// The names of the class: that of transformers, that of the published models, and that of the
/// thinker alone.
const NAMES: [&str; 3] = [CLASS, "Qwen2_5OmniModel", "Qwen2_5OmniThinkerForConditionalGeneration"];
const WHOLE: &str = "qwen2_5_omni";
const THINKER: &str = "qwen2_5_omni_thinker";

const ARCHITECTURES: &str = "architectures";
const MODEL_TYPE: &str = "model_type";
const CONFIG: &str = "thinker_config";
/// The fields beside `thinker_config` that count for it.
const SHARED: [&str; 4] = [ARCHITECTURES, "dtype", "torch_dtype", "quantization_config"];
/// HF `Qwen2_5OmniThinkerConfig.attribute_map`.
const OTHER_NAMES: [(&str, &str); 2] =
    [("image_token_index", "image_token_id"), ("video_token_index", "video_token_id")];

/// Returns the fields of the thinker, or `None` for another model.
///
/// # Errors
/// [`ConfigError`] if `thinker_config` is missing, or is of another model.
pub(super) fn model_of(outer: &Fields) -> Result<Option<Fields>, ConfigError> {
    let fields = match outer.value(MODEL_TYPE).and_then(serde_json::Value::as_str) {
        Some(WHOLE) => {
            let thinker = outer.nested(CONFIG)?;
            let mut thinker = thinker
                .ok_or_else(|| outer.missing(CONFIG, "an object with the fields of the thinker"))?;
            if thinker.text(MODEL_TYPE)?.is_some_and(|name| name != THINKER) {
                return Err(thinker.invalid(MODEL_TYPE, &format!("\"{THINKER}\"")));
            }
            SHARED.iter().for_each(|field| thinker.replace(field, outer, field));
            thinker
        }
        Some(THINKER) => outer.clone(),
        _ => return Ok(None),
    };
    let mut fields = fields.with_aliases(&OTHER_NAMES);
    let listed = fields.texts(ARCHITECTURES)?;
    if !listed.is_empty() && listed.iter().all(|name| NAMES.contains(name)) {
        fields.set(ARCHITECTURES, json!([CLASS]));
    }
    fields.set(MODEL_TYPE, WHOLE.into());
    Ok(Some(fields))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::file::fields;
    use super::*;

    fn read(outer: Value) -> Result<Option<Fields>, String> {
        model_of(&fields(outer)).map_err(|error| error.to_string())
    }

    #[test]
    fn all_forms_are_one_class() {
        let thinker = json!({
            "model_type": "qwen2_5_omni_thinker", "image_token_index": 7, "audio_token_index": 8,
            "text_config": { "hidden_size": 48 },
        });
        let mut alone = thinker.clone();
        alone["architectures"] = json!(["Qwen2_5OmniThinkerForConditionalGeneration"]);
        let whole = |name: &str| {
            json!({
                "architectures": [name], "model_type": "qwen2_5_omni", "torch_dtype": "bfloat16",
                "thinker_config": thinker, "talker_config": { "hidden_size": 8 },
            })
        };
        for outer in [alone, whole(NAMES[0]), whole(NAMES[1])] {
            let model = read(outer.clone()).unwrap().unwrap();
            assert_eq!(model.value("architectures"), Some(&json!([CLASS])));
            assert_eq!(model.text("model_type").unwrap(), Some("qwen2_5_omni"));
            assert_eq!(model.count("image_token_id").unwrap(), Some(7));
            assert_eq!(model.value("torch_dtype"), outer.get("torch_dtype"));
            let text = model.nested("text_config").unwrap().unwrap();
            assert_eq!(text.size("hidden_size").unwrap(), Some(48));
        }
        let other = read(whole("Qwen2ForCausalLM")).unwrap().unwrap();
        assert_eq!(other.value("architectures"), Some(&json!(["Qwen2ForCausalLM"])));
        assert!(read(json!({ "model_type": "qwen2" })).unwrap().is_none());
    }

    #[test]
    fn a_wrong_object_is_named() {
        let outer = |thinker: Value| json!({ "model_type": WHOLE, "thinker_config": thinker });
        let why = read(outer(Value::Null)).unwrap_err();
        assert!(why.contains("thinker_config"), "{why}");
        let why = read(outer(json!({ "model_type": "qwen2_audio" }))).unwrap_err();
        assert!(why.contains("thinker_config.model_type"), "{why}");
        let wide = outer(json!({ "text_config": { "hidden_size": "wide" } }));
        let text = read(wide).unwrap().unwrap().nested("text_config").unwrap().unwrap();
        let why = text.size("hidden_size").unwrap_err().to_string();
        assert!(why.contains("thinker_config.text_config.hidden_size"), "{why}");
    }
}
