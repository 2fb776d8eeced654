//! The config of the multimodal classes that only pool: HF's classes of late interaction, which
//! have a model of texts and images in `vlm_config`, and configs that do not name their class.

use serde_json::{Value, json};

use super::ConfigError;
use super::file::Fields;
use crate::model::families::{COL_QWEN3_5, NEMOTRON_COL_EMBED};

/// The `model_type` of each class, with those of the models that it has inside.
const CLASSES: [(&str, &[&str]); 3] = [
    ("colqwen2", &["qwen2_vl", "qwen2_5_vl"]),
    ("colpali", &["paligemma"]),
    ("colmodernvbert", &[MODERN]),
];
/// The `model_type` of ModernVBERT. A config of its authors has its fields without `vlm_config`.
const MODERN: &str = "modernvbert";
/// The `model_type` of UltraVBERT, whose config has the same fields.
const ULTRA: &str = "ultravbert";
/// The classes of configs without `architectures`, by their `model_type`: those of HF's
/// `AutoModel`, and of vLLM's `ColUltraVBertConfig`.
const INFERRED: [(&str, &str); 4] = [
    ("colmodernvbert", "ColModernVBertForRetrieval"),
    (MODERN, "ModernVBertModel"),
    (ULTRA, "ColUltraVBertForRetrieval"),
    ("embedding_gemma2", "EmbeddingGemma2Model"),
];
const MODEL: &str = "vlm_config";
const MODEL_TYPE: &str = "model_type";
/// The tokens in the places of images, by default.
const MODERN_IMAGE: u32 = 50_407;
const ULTRA_IMAGE: u32 = 49_191;
/// The field with the `model_type` of the model of texts and images.
pub(crate) const INNER_TYPE: &str = "vlm_model_type";
/// The fields that belong to the whole, and not to the model of texts and images.
const WHOLE: [&str; 5] =
    ["architectures", MODEL_TYPE, "dtype", "torch_dtype", "quantization_config"];

/// Returns the fields of the model of texts and images of such a class, or `None` for another
/// class.
///
/// # Errors
/// [`ConfigError`] if `vlm_config` is missing, or is no model with that text model.
pub(super) fn model_of(outer: &Fields) -> Result<Option<Fields>, ConfigError> {
    let model_type = outer.value(MODEL_TYPE).and_then(Value::as_str);
    let image_token = match model_type {
        Some(MODERN) => Some(MODERN_IMAGE),
        Some(ULTRA) => Some(ULTRA_IMAGE),
        _ => None,
    };
    if let Some(image_token) = image_token {
        let mut fields = outer.clone();
        fields.adopt(INNER_TYPE, outer, MODEL_TYPE);
        return as_idefics3(fields, image_token).map(Some);
    }
    let class = CLASSES.iter().find(|(known, _)| Some(*known) == model_type);
    let Some((_, models)) = class else { return Ok(None) };
    let model = outer.nested(MODEL)?;
    let model = model.ok_or_else(|| outer.missing(MODEL, "an object with the model's fields"))?;
    if !model.text(MODEL_TYPE)?.is_some_and(|name| models.contains(&name)) {
        return Err(model.invalid(MODEL_TYPE, &format!("one of {}", models.join(", "))));
    }
    let mut fields = model.without(&WHOLE);
    fields.adopt(INNER_TYPE, &model, MODEL_TYPE);
    WHOLE.iter().for_each(|field| fields.replace(field, outer, field));
    match model.text(MODEL_TYPE)? {
        Some(MODERN) => as_idefics3(fields, MODERN_IMAGE).map(Some),
        _ => Ok(Some(fields)),
    }
}

/// Returns the fields of ModernVBERT or UltraVBERT with the names of Idefics 3, whose images they
/// have. `image_token` is the default of the token in the places of images.
fn as_idefics3(mut fields: Fields, image_token: u32) -> Result<Fields, ConfigError> {
    let factor = fields.size("pixel_shuffle_factor")?.unwrap_or(4);
    fields.set("scale_factor", factor.into());
    fields.set_default("image_token_id", Some(&image_token.into()));
    Ok(fields)
}

/// Sets the class of a config that names none: the class of transformers or of vLLM.
pub(super) fn infer_class(fields: &mut Fields) {
    const CLASS: &str = "architectures";
    if fields.value(CLASS).is_some() {
        return;
    }
    let model_type = fields.value(MODEL_TYPE).and_then(Value::as_str);
    let class = INFERRED.iter().find(|(known, _)| Some(*known) == model_type);
    if let Some((_, class)) = class {
        fields.set(CLASS, json!([class]));
    }
}

/// Checks the field by which checkpoints of ColQwen3.5 say which tokens a token sees. As in vLLM,
/// they must have it, in the model's fields or in those of its text.
///
/// # Errors
/// [`ConfigError`] if it is missing, or has another value than "causal".
pub(super) fn require_causal(outer: &Fields, architecture: &str) -> Result<(), ConfigError> {
    const CONTRACT: &str = "retrieval_attention_contract";
    if architecture != COL_QWEN3_5 {
        return Ok(());
    }
    let expected = "\"causal\": attention to both sides is not supported";
    let text = outer.nested("text_config")?;
    let mut found = false;
    for fields in [Some(outer), text.as_ref()].into_iter().flatten() {
        match fields.text(CONTRACT)? {
            None => {}
            Some("causal") => found = true,
            Some(_) => return Err(fields.invalid(CONTRACT, expected)),
        }
    }
    if found { Ok(()) } else { Err(outer.missing(CONTRACT, expected)) }
}

/// Checks the field by which checkpoints of Nemotron ColEmbed name their pooling.
///
/// # Errors
/// [`ConfigError`] if it has another value than "colbert".
pub(super) fn require_token_vectors(outer: &Fields, architecture: &str) -> Result<(), ConfigError> {
    const POOLING: &str = "pooling";
    if architecture != NEMOTRON_COL_EMBED {
        return Ok(());
    }
    match outer.text(POOLING)? {
        None | Some("colbert") => Ok(()),
        Some(_) => Err(outer.invalid(POOLING, "\"colbert\": a vector for each token")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::fields;
    use super::*;

    #[test]
    fn the_model_has_the_fields_of_its_object() {
        let read = |model: Value| {
            let outer = json!({
                "architectures": ["ColQwen2ForRetrieval"], "model_type": "colqwen2",
                "dtype": "bfloat16", "embedding_dim": 128, "vlm_config": model,
            });
            model_of(&fields(outer)).map(Option::unwrap).map_err(|error| error.to_string())
        };
        let nested = json!({
            "model_type": "qwen2_vl",
            "text_config": { "model_type": "qwen2_vl_text", "hidden_size": 48, "dtype": null },
        });
        let flat = json!({ "model_type": "qwen2_5_vl", "hidden_size": 48, "vision_config": {} });
        for (model, inner) in [(nested, "qwen2_vl"), (flat, "qwen2_5_vl")] {
            let whole = read(model).unwrap();
            let text = whole.nested("text_config").unwrap().unwrap_or_else(|| whole.clone());
            assert_eq!(text.size("hidden_size").unwrap(), Some(48));
            assert_eq!(whole.text("model_type").unwrap(), Some("colqwen2"));
            assert_eq!(whole.text(INNER_TYPE).unwrap(), Some(inner));
            assert_eq!(whole.text("dtype").unwrap(), Some("bfloat16"));
        }
        let wrong = json!({
            "model_type": "qwen2_vl", "text_config": { "hidden_size": "wide" },
        });
        let wrong = read(wrong).unwrap().nested("text_config").unwrap().unwrap();
        let why = wrong.size("hidden_size").unwrap_err().to_string();
        assert!(why.contains("vlm_config.text_config.hidden_size"), "{why}");
        for (wrong, part) in [
            (json!({ "model_type": "paligemma" }), "vlm_config.model_type"),
            (Value::Null, "vlm_config"),
        ] {
            let why = read(wrong).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
        assert!(model_of(&fields(json!({ "model_type": "bert" }))).unwrap().is_none());
        let of_pali = |inner: &str| {
            let outer = json!({ "model_type": "colpali", "vlm_config": { "model_type": inner } });
            model_of(&fields(outer)).map(Option::unwrap).map_err(|error| error.to_string())
        };
        let inner = of_pali("paligemma").unwrap();
        assert_eq!(inner.text(INNER_TYPE).unwrap(), Some("paligemma"));
        assert!(of_pali("qwen2_vl").unwrap_err().contains("vlm_config.model_type"));
    }

    #[test]
    fn modernvbert_has_the_names_of_idefics3() {
        let model = json!({ "model_type": "modernvbert", "pixel_shuffle_factor": 2 });
        let whole = json!({ "model_type": "colmodernvbert", "vlm_config": model.clone() });
        for config in [model, whole] {
            let read = model_of(&fields(config)).unwrap().unwrap();
            assert_eq!(read.size("scale_factor").unwrap(), Some(2));
            assert_eq!(read.size("image_token_id").unwrap(), Some(50_407));
            assert_eq!(read.text(INNER_TYPE).unwrap(), Some(MODERN));
        }
    }

    #[test]
    fn ultravbert_has_the_names_of_idefics3() {
        let of = |more: Value| {
            let mut config = json!({ "model_type": "ultravbert" });
            for (field, value) in more.as_object().unwrap() {
                config[field] = value.clone();
            }
            let read = model_of(&fields(config)).unwrap().unwrap();
            ["scale_factor", "image_token_id"].map(|field| read.size(field).unwrap().unwrap())
        };
        assert_eq!(of(json!({})), [4, 49_191]);
        assert_eq!(of(json!({ "pixel_shuffle_factor": 2, "image_token_id": 9 })), [2, 9]);
    }

    #[test]
    fn a_class_is_inferred_where_the_config_names_none() {
        let of = |config: Value| {
            let mut fields = fields(config);
            infer_class(&mut fields);
            fields.value("architectures").cloned()
        };
        for (model_type, class) in INFERRED {
            assert_eq!(of(json!({ "model_type": model_type })), Some(json!([class])));
            let null = json!({ "model_type": model_type, "architectures": null });
            assert_eq!(of(null), Some(json!([class])));
            let other = json!({ "model_type": model_type, "architectures": ["Other"] });
            assert_eq!(of(other), Some(json!(["Other"])));
        }
        assert_eq!(of(json!({ "model_type": "bert" })), None);
        assert_eq!(of(json!({})), None);
    }

    #[test]
    fn attention_of_colqwen3_5_is_declared_causal() {
        const CONTRACT: &str = "retrieval_attention_contract";
        let of = |config: Value, architecture: &str| {
            require_causal(&fields(config), architecture).map_err(|error| error.to_string())
        };
        for config in [
            json!({ CONTRACT: "causal" }),
            json!({ CONTRACT: "causal", "text_config": { CONTRACT: "causal" } }),
            json!({ "text_config": { CONTRACT: "causal" } }),
        ] {
            assert_eq!(of(config, COL_QWEN3_5), Ok(()));
        }
        for config in [
            json!({}),
            json!({ CONTRACT: "bidirectional" }),
            json!({ CONTRACT: "causal", "text_config": { CONTRACT: "bidirectional" } }),
        ] {
            assert_eq!(of(config.clone(), "ColQwen3"), Ok(()));
            assert!(of(config, COL_QWEN3_5).unwrap_err().contains(CONTRACT));
        }
    }

    #[test]
    fn nemotron_has_a_vector_for_each_token() {
        let of = |config: Value, architecture: &str| {
            let read = require_token_vectors(&fields(config), architecture);
            read.map_err(|error| error.to_string())
        };
        assert_eq!(of(json!({}), NEMOTRON_COL_EMBED), Ok(()));
        assert_eq!(of(json!({ "pooling": "colbert" }), NEMOTRON_COL_EMBED), Ok(()));
        let why = of(json!({ "pooling": "last" }), NEMOTRON_COL_EMBED).unwrap_err();
        assert!(why.contains("pooling") && why.contains("colbert"), "{why}");
        assert_eq!(of(json!({ "pooling": "last" }), "ColQwen3"), Ok(()));
    }
}
