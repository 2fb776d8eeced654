//! The config of HF's classes of late interaction over a model of texts and images, `vlm_config`.
//! Their texts alone are served.

use super::ConfigError;
use super::file::Fields;

const CLASS: &str = "colqwen2";
/// The models with the text model of Qwen2-VL.
const MODELS: [&str; 2] = ["qwen2_vl", "qwen2_5_vl"];
const MODEL: &str = "vlm_config";
/// The fields that belong to the whole, and not to its text model.
const WHOLE: [&str; 5] =
    ["architectures", "model_type", "dtype", "torch_dtype", "quantization_config"];

/// Returns the fields of the text model of such a class, or `None` for another class.
///
/// # Errors
/// [`ConfigError`] if `vlm_config` is missing, or is no model with that text model.
pub(super) fn text_of(outer: &Fields) -> Result<Option<Fields>, ConfigError> {
    if outer.value("model_type").is_none_or(|model_type| model_type != CLASS) {
        return Ok(None);
    }
    let model = outer.nested(MODEL)?;
    let model = model.ok_or_else(|| outer.missing(MODEL, "an object with the model's fields"))?;
    if !model.text("model_type")?.is_some_and(|name| MODELS.contains(&name)) {
        return Err(model.invalid("model_type", &format!("one of {}", MODELS.join(", "))));
    }
    // Older files have the fields of the text beside those of other parts.
    let text = model.nested("text_config")?;
    let text = text.unwrap_or_else(|| model.without(&["vision_config"]));
    let mut fields = text.without(&WHOLE);
    WHOLE.iter().for_each(|field| fields.replace(field, outer, field));
    Ok(Some(fields))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::file::fields;
    use super::*;

    #[test]
    fn the_text_model_has_the_fields_of_its_object() {
        let read = |model: Value| {
            let outer = json!({
                "architectures": ["ColQwen2ForRetrieval"], "model_type": "colqwen2",
                "dtype": "bfloat16", "embedding_dim": 128, "vlm_config": model,
            });
            text_of(&fields(outer)).map(Option::unwrap).map_err(|error| error.to_string())
        };
        let nested = json!({
            "model_type": "qwen2_vl",
            "text_config": { "model_type": "qwen2_vl_text", "hidden_size": 48, "dtype": null },
        });
        let flat = json!({ "model_type": "qwen2_5_vl", "hidden_size": 48, "vision_config": {} });
        for model in [nested, flat] {
            let text = read(model).unwrap();
            assert_eq!(text.size("hidden_size").unwrap(), Some(48));
            assert_eq!(text.text("model_type").unwrap(), Some("colqwen2"));
            assert_eq!(text.text("dtype").unwrap(), Some("bfloat16"));
            assert!(!text.has("vision_config"));
        }
        let wrong = json!({
            "model_type": "qwen2_vl", "text_config": { "hidden_size": "wide" },
        });
        let why = read(wrong).unwrap().size("hidden_size").unwrap_err().to_string();
        assert!(why.contains("vlm_config.text_config.hidden_size"), "{why}");
        for (wrong, part) in [
            (json!({ "model_type": "paligemma" }), "vlm_config.model_type"),
            (Value::Null, "vlm_config"),
        ] {
            let why = read(wrong).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        assert!(text_of(&fields(json!({ "model_type": "bert" }))).unwrap().is_none());
    }
}
