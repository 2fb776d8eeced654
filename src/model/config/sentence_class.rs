//! The class of a folder of sentence-transformers that pools the hidden states of its model.
//! `AutoModel` then reads the folder: the backbone of `model_type`, whatever head `architectures`
//! names. Of an encoder-decoder, it is the encoder. A folder whose first module is a table needs no
//! `config.json`.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::ConfigError;
use super::file::Fields;
use crate::model::{encoder_class::EncoderHead, families::encoders, static_embedding};
use crate::{model_files, module_list};

/// Encoder-decoders whose encoder is read alone, by their `model_type`.
const ENCODERS_ALONE: [(&str, &str); 2] = [("t5", "T5EncoderModel"), ("mt5", "MT5EncoderModel")];

/// The names of the fields that sentence-transformers changes in a config, and the earlier one.
const KWARGS: [&str; 2] = ["config_kwargs", "config_args"];
/// Those among them that say how the config is found.
const OF_LOADER: [&str; 7] = [
    "cache_dir",
    "code_revision",
    "local_files_only",
    "revision",
    "subfolder",
    "token",
    "trust_remote_code",
];

/// Returns the config of a folder whose first module is a `StaticEmbedding`.
pub(super) fn of_table(folder: &Path) -> Option<Fields> {
    module_list::static_embedding(folder)?;
    let mut object = Map::new();
    object.insert("architectures".to_owned(), json!([static_embedding::ARCHITECTURE]));
    Some(Fields::translated(&folder.join(module_list::FILE), object, Vec::new()))
}

/// Refuses a folder that has a model for each kind of text, and none for all.
///
/// # Errors
/// [`ConfigError::Invalid`] names the folders of the models.
pub(super) fn require_one_model(folder: &Path) -> Result<(), ConfigError> {
    let routes = module_list::routes_in(folder);
    if routes.is_empty() || model_files::exists(&folder.join("config.json")) {
        return Ok(());
    }
    let object = Map::from_iter([("type".to_owned(), json!("Router"))]);
    let fields = Fields::translated(&folder.join(module_list::FILE), object, Vec::new());
    let expected = format!("a folder of one of its routes as the model: {}", routes.join(", "));
    Err(fields.invalid("type", &expected))
}

/// Sets the fields that the file of the `Transformer` changes. The reader of poolers reports its
/// faults.
pub(super) fn take_changes(folder: &Path, fields: &mut Fields) {
    if module_list::of_folder(folder).is_empty() {
        return;
    }
    for name in model_files::SENTENCE_CONFIGS {
        let Ok(text) = model_files::read(&folder.join(name)) else { continue };
        let file: Value = serde_json::from_slice(&text).unwrap_or_default();
        let changes = KWARGS.iter().filter_map(|field| file[*field].as_object()).flatten();
        for (field, value) in changes.filter(|(field, _)| !OF_LOADER.contains(&field.as_str())) {
            fields.set(field, value.clone());
        }
    }
}

/// Replaces the class of an encoder-decoder by that of its encoder, if the folder pools.
pub(super) fn take_encoder(folder: &Path, fields: &mut Fields) {
    let model_type = fields.value("model_type").and_then(Value::as_str);
    let class = ENCODERS_ALONE.iter().find(|(known, _)| Some(*known) == model_type);
    if let Some((_, class)) = class.filter(|_| pools(folder)) {
        fields.set("architectures", json!([class]));
    }
}

/// Returns the class of encoders of the model's type, if the folder pools and has no code of its
/// own.
pub(crate) fn base_class(folder: &Path, fields: &Fields) -> Option<&'static str> {
    let model_type = fields.value("model_type")?.as_str()?;
    let has_code = fields.value("auto_map").is_some();
    let class = encoders::classes().find(|class| {
        let is_base = matches!(class.head, EncoderHead::Vectors | EncoderHead::Pooled(_));
        is_base && class.family.has_model_type(model_type)
    })?;
    (!has_code && pools(folder)).then_some(class.architecture)
}

/// Returns whether `modules.json` has a pooling.
fn pools(folder: &Path) -> bool {
    module_list::of_folder(folder).iter().any(|module| module.kind == "Pooling")
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigSource, file::fields};
    use super::*;

    const POOLS: &str = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"#;

    fn folder(modules: Option<&str>, config: Value) -> tempfile::TempDir {
        let folder = tempfile::TempDir::new().unwrap();
        if let Some(modules) = modules {
            std::fs::write(folder.path().join("modules.json"), modules).unwrap();
        }
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        folder
    }

    /// As `sentence_transformers.base.modules.Transformer` loads it.
    #[test]
    fn only_the_encoder_of_t5_pools() {
        let class = |modules: Option<&str>, model_type: &str| {
            let config = json!({
                "architectures": ["T5ForConditionalGeneration"], "model_type": model_type,
            });
            let folder = folder(modules, config);
            let source = ConfigSource::read(folder.path()).unwrap();
            source.fields().value("architectures").unwrap()[0].as_str().unwrap().to_owned()
        };
        assert_eq!(class(Some(POOLS), "t5"), "T5EncoderModel");
        assert_eq!(class(Some(POOLS), "mt5"), "MT5EncoderModel");
        assert_eq!(class(Some(POOLS), "bart"), "T5ForConditionalGeneration");
        for other in [None, Some("[]"), Some("no JSON"), Some(r#"[{"type": "a.LogitScore"}]"#)] {
            assert_eq!(class(other, "t5"), "T5ForConditionalGeneration", "{other:?}");
        }
    }

    #[test]
    fn a_router_is_served_by_its_routes() {
        let folder = tempfile::TempDir::new().unwrap();
        let router = json!({"structure": {"query": ["query_0_Transformer"]}});
        std::fs::write(folder.path().join("router_config.json"), router.to_string()).unwrap();
        let why = require_one_model(folder.path()).unwrap_err().to_string();
        assert!(why.contains("Router") && why.contains("query_0_Transformer"), "{why}");
        std::fs::write(folder.path().join("config.json"), "{}").unwrap();
        assert!(require_one_model(folder.path()).is_ok());
    }

    /// As `sentence_transformers.base.modules.Transformer.load` passes them to `AutoConfig`.
    #[test]
    fn the_file_of_a_transformer_changes_the_config() {
        let config = json!({ "model_type": "qwen2", "is_causal": true, "hidden_size": 8 });
        let causal = |modules: Option<&str>, field: &str| {
            let folder = folder(modules, config.clone());
            let file = json!({ field: { "is_causal": false, "revision": "x" } });
            let path = folder.path().join("sentence_bert_config.json");
            std::fs::write(path, file.to_string()).unwrap();
            let source = ConfigSource::read(folder.path()).unwrap();
            assert!(!source.fields().has("revision"));
            source.fields().flag("is_causal").unwrap().unwrap()
        };
        assert!(!causal(Some(POOLS), "config_kwargs") && !causal(Some(POOLS), "config_args"));
        assert!(causal(Some(POOLS), "model_kwargs") && causal(None, "config_kwargs"));
    }

    /// As `AutoModel` finds the class.
    #[test]
    fn the_type_of_the_model_has_a_class() {
        let class = |modules: Option<&str>, config: Value| {
            let folder = folder(modules, config.clone());
            base_class(folder.path(), &fields(config))
        };
        for (model_type, expected) in [
            ("bert", "BertModel"),
            ("electra", "ElectraModel"),
            ("ernie", "ErnieModel"),
            ("roberta", "RobertaModel"),
            ("xlm-roberta", "XLMRobertaModel"),
            ("modernbert", "ModernBertModel"),
        ] {
            let config = json!({ "model_type": model_type });
            assert_eq!(class(Some(POOLS), config.clone()), Some(expected));
            assert_eq!(class(None, config), None, "a class with a head is not replaced");
        }
        let own = json!({ "model_type": "bert", "auto_map": { "AutoModel": "a.B" } });
        assert_eq!(class(Some(POOLS), own), None);
        assert_eq!(class(Some(POOLS), json!({ "model_type": "other" })), None);
        assert_eq!(class(Some(POOLS), json!({})), None);
    }
}
