//! The configs of Qwen2.5-Omni, Qwen3-Omni, and Qwen3-ASR as published. The object `thinker_config`
//! has the model that reads, sees and hears, and writes text. The parts that speak are not served.

use serde_json::json;

use super::ConfigError;
use super::file::Fields;

/// A model whose thinker is served.
struct Omni {
    /// The class of all forms of the model here. In their checkpoints, the thinker is beside the
    /// parts that speak, or alone.
    class: &'static str,
    /// Its other names: that of the thinker alone, and that of published models.
    other_names: &'static [&'static str],
    /// `model_type` of the whole model, and of the thinker.
    whole: &'static str,
    thinker: &'static str,
    /// Whether transformers has the fields of the thinker in the place of the object.
    may_be_flat: bool,
}

const OMNIS: &[Omni] = &[
    Omni {
        class: "Qwen2_5OmniForConditionalGeneration",
        other_names: &["Qwen2_5OmniThinkerForConditionalGeneration", "Qwen2_5OmniModel"],
        whole: "qwen2_5_omni",
        thinker: "qwen2_5_omni_thinker",
        may_be_flat: false,
    },
    Omni {
        class: "Qwen3OmniMoeForConditionalGeneration",
        other_names: &["Qwen3OmniMoeThinkerForConditionalGeneration"],
        whole: "qwen3_omni_moe",
        thinker: "qwen3_omni_moe_thinker",
        may_be_flat: false,
    },
    Omni {
        class: "Qwen3ASRForConditionalGeneration",
        other_names: &[],
        whole: "qwen3_asr",
        thinker: "qwen3_asr_thinker",
        may_be_flat: true,
    },
];

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
    let kind = outer.value(MODEL_TYPE).and_then(serde_json::Value::as_str);
    let is_of = |omni: &&Omni| kind == Some(omni.whole) || kind == Some(omni.thinker);
    let Some(omni) = OMNIS.iter().find(is_of) else { return Ok(None) };
    let fields = if kind == Some(omni.whole) {
        let thinker = outer.nested(CONFIG)?;
        if thinker.is_none() && omni.may_be_flat {
            return Ok(None);
        }
        let mut thinker = thinker
            .ok_or_else(|| outer.missing(CONFIG, "an object with the fields of the thinker"))?;
        // Some files of Qwen3-ASR have the name of the whole model here.
        let is_own = |name: &str| name == omni.thinker || omni.may_be_flat && name == omni.whole;
        if thinker.text(MODEL_TYPE)?.is_some_and(|name| !is_own(name)) {
            return Err(thinker.invalid(MODEL_TYPE, &format!("\"{}\"", omni.thinker)));
        }
        SHARED.iter().for_each(|field| thinker.replace(field, outer, field));
        thinker
    } else {
        outer.clone()
    };
    let mut fields = fields.with_aliases(&OTHER_NAMES);
    let listed = fields.texts(ARCHITECTURES)?;
    let is_known = |name: &&str| *name == omni.class || omni.other_names.contains(name);
    if !listed.is_empty() && listed.iter().all(is_known) {
        fields.set(ARCHITECTURES, json!([omni.class]));
    }
    fields.set(MODEL_TYPE, omni.whole.into());
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
        let omni = &OMNIS[0];
        for outer in [alone, whole(omni.class), whole("Qwen2_5OmniModel")] {
            let model = read(outer.clone()).unwrap().unwrap();
            assert_eq!(model.value("architectures"), Some(&json!([omni.class])));
            assert_eq!(model.text("model_type").unwrap(), Some("qwen2_5_omni"));
            assert_eq!(model.count("image_token_id").unwrap(), Some(7));
            assert_eq!(model.value("torch_dtype"), outer.get("torch_dtype"));
            let text = model.nested("text_config").unwrap().unwrap();
            assert_eq!(text.size("hidden_size").unwrap(), Some(48));
        }
        let other = read(whole("Qwen2ForCausalLM")).unwrap().unwrap();
        assert_eq!(other.value("architectures"), Some(&json!(["Qwen2ForCausalLM"])));
        assert!(read(json!({ "model_type": "qwen2" })).unwrap().is_none());
        let name = "Qwen3OmniMoeThinkerForConditionalGeneration";
        let later = json!({ "architectures": [name], "model_type": "qwen3_omni_moe_thinker" });
        let later = read(later).unwrap().unwrap();
        let class = json!(["Qwen3OmniMoeForConditionalGeneration"]);
        assert_eq!(later.value("architectures"), Some(&class));
        assert_eq!(later.text("model_type").unwrap(), Some("qwen3_omni_moe"));
        let flat = json!({ "model_type": "qwen3_asr", "audio_token_id": 7 });
        assert!(read(flat).unwrap().is_none());
        let nested =
            |thinker: Value| read(json!({ "model_type": "qwen3_asr", "thinker_config": thinker }));
        for thinker in [
            json!({ "audio_token_id": 7 }),
            json!({ "model_type": "qwen3_asr_thinker", "audio_token_id": 7 }),
            json!({ "model_type": "qwen3_asr", "audio_token_id": 7 }),
        ] {
            let model = nested(thinker).unwrap().unwrap();
            assert_eq!(model.count("audio_token_id").unwrap(), Some(7));
            assert_eq!(model.text("model_type").unwrap(), Some("qwen3_asr"));
        }
        // A model of times, which has other outputs.
        let why = nested(json!({ "model_type": "qwen3_forced_aligner" })).unwrap_err();
        assert!(why.contains("thinker_config.model_type"), "{why}");
    }

    #[test]
    fn a_wrong_object_is_named() {
        let outer =
            |thinker: Value| json!({ "model_type": "qwen2_5_omni", "thinker_config": thinker });
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
