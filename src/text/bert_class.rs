//! The classes of tokenizers with BERT's normalizer. `tokenizer_config.json` sets its case and
//! accents, and wins over `tokenizer.json`, as in transformers.

use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::{NormalizerWrapper, Tokenizer};

use super::error::TextLoadError;
use super::tokenizer_files::field_error;

/// The classes without the suffix `Fast`. `ConvBertTokenizer` keeps the file's normalizer.
const CLASSES: [&str; 7] = [
    "BertTokenizer",
    "DistilBertTokenizer",
    "MPNetTokenizer",
    "ElectraTokenizer",
    "MobileBertTokenizer",
    "FunnelTokenizer",
    "LayoutLMTokenizer",
];
/// The types of models whose tokenizer has one of these classes by default.
const MODEL_TYPES: [&str; 6] = ["bert", "distilbert", "electra", "ernie", "mpnet", "nomic_bert"];

/// The settings of such a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BertClass {
    lowercase: bool,
    strip_accents: Option<bool>,
    handle_chinese_chars: bool,
}

impl BertClass {
    /// Reads the settings of the file `path`, whose content is `config`. Returns `None` for another
    /// class. Without a class there, the fields of `model`, the model's `config.json`, name it.
    ///
    /// # Errors
    /// [`TextLoadError::Field`] for a setting that is no flag.
    pub(super) fn read(
        path: &Path,
        config: &Map<String, Value>,
        model: &Map<String, Value>,
    ) -> Result<Option<Self>, TextLoadError> {
        const CLASS: &str = "tokenizer_class";
        let text = |object: &Map<String, Value>, field: &str| {
            object.get(field).and_then(Value::as_str).map(str::to_owned)
        };
        let is_known = match text(config, CLASS).or_else(|| text(model, CLASS)) {
            Some(class) => CLASSES.contains(&class.strip_suffix("Fast").unwrap_or(&class)),
            None => text(model, "model_type").is_some_and(|it| MODEL_TYPES.contains(&&*it)),
        };
        if !is_known {
            return Ok(None);
        }
        let flag = |field: &str| match config.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(field_error(path, field, other, "true or false")),
        };
        Ok(Some(Self {
            lowercase: flag("do_lower_case")?.unwrap_or(true),
            strip_accents: flag("strip_accents")?,
            handle_chinese_chars: flag("tokenize_chinese_chars")?.unwrap_or(true),
        }))
    }

    /// Sets the tokenizer's normalizer, if it is BERT's.
    ///
    /// # Errors
    /// [`TextLoadError::Tokenizer`] if the library refuses it.
    pub(super) fn apply(self, tokenizer: &mut Tokenizer, path: &Path) -> Result<(), TextLoadError> {
        let Some(NormalizerWrapper::BertNormalizer(found)) = tokenizer.get_normalizer() else {
            return Ok(());
        };
        let mut wanted = *found;
        wanted.lowercase = self.lowercase;
        wanted.strip_accents = self.strip_accents;
        wanted.handle_chinese_chars = self.handle_chinese_chars;
        tokenizer.with_normalizer(Some(wanted)).map_err(|error| TextLoadError::Tokenizer {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use playhouse_actors::ports::TextCodec;
    use serde_json::json;

    use super::super::HfTextCodec;
    use super::*;

    /// Returns the tokens of "Éa", of a tokenizer whose own file keeps case and accents.
    fn tokens(config: Value, model: Value) -> Result<Vec<u32>, String> {
        let tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": {
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": false,
            },
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": null,
            "decoder": null,
            "model": {
                "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {"[UNK]": 0, "Éa": 1, "éa": 2, "ea": 3, "Ea": 4},
            },
        });
        let folder = tempfile::TempDir::new().unwrap();
        let files = [
            ("tokenizer.json", tokenizer),
            ("tokenizer_config.json", config),
            ("config.json", model),
        ];
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content.to_string()).unwrap();
        }
        let codec = HfTextCodec::load(folder.path()).map_err(|error| error.to_string())?;
        codec.encode("Éa", false).map_err(|error| error.to_string())
    }

    /// The expected tokens are those of transformers.
    #[test]
    fn the_config_decides_on_case_and_accents() {
        let of = |config: Value| tokens(config, json!({}));
        let bert = |fields: Value| {
            let mut config = fields;
            config["tokenizer_class"] = "BertTokenizer".into();
            of(config)
        };
        assert_eq!(bert(json!({"do_lower_case": true})), Ok(vec![3]));
        assert_eq!(bert(json!({"do_lower_case": false})), Ok(vec![1]));
        assert_eq!(bert(json!({})), Ok(vec![3]), "lower case is the default");
        assert_eq!(bert(json!({"strip_accents": false})), Ok(vec![2]));
        let upper = json!({"do_lower_case": false, "strip_accents": true});
        assert_eq!(bert(upper), Ok(vec![4]));
        let fast = json!({"tokenizer_class": "DistilBertTokenizerFast"});
        assert_eq!(of(fast), Ok(vec![3]));
        let wrong = bert(json!({"do_lower_case": "yes"})).unwrap_err();
        assert!(wrong.contains("tokenizer_config.json: `do_lower_case` is \"yes\""), "{wrong}");
    }

    #[test]
    fn other_classes_keep_their_normalizer() {
        let none = json!({"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": true});
        assert_eq!(tokens(none.clone(), json!({"model_type": "bert"})), Ok(vec![1]));
        assert_eq!(tokens(json!({}), json!({"model_type": "qwen3"})), Ok(vec![1]));
        let conv = json!({"tokenizer_class": "ConvBertTokenizer", "do_lower_case": true});
        assert_eq!(tokens(conv, json!({})), Ok(vec![1]));
        // Without a class, the model's type has one.
        assert_eq!(tokens(json!({}), json!({"model_type": "bert"})), Ok(vec![3]));
        let named = json!({"model_type": "bert", "tokenizer_class": "TokenizersBackend"});
        assert_eq!(tokens(json!({}), named), Ok(vec![1]));
    }
}
