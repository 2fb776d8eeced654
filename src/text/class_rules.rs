//! The classes of tokenizers whose pre-tokenizer transformers sets itself, whatever
//! `tokenizer.json` says. Those with BERT's normalizer are in [`bert_class`](super::bert_class).
//!
//! | class | model | pre-tokenizer |
//! |---|---|---|
//! | `XLMRobertaTokenizer`, `CamembertTokenizer` | Unigram | words at spaces, `▁` before each |
//! | `RobertaTokenizer` | byte-level BPE | a space before a text if `add_prefix_space` is true |

use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::{
    ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer,
    pre_tokenizers::{
        byte_level::ByteLevel,
        metaspace::{Metaspace, PrependScheme},
        sequence::Sequence,
        whitespace::WhitespaceSplit,
    },
};

use super::error::TextLoadError;
use super::tokenizer_files::field_error;

/// The classes without the suffix `Fast`, and the types of models that have them by default.
const PIECES: ([&str; 2], [&str; 4]) = (
    ["XLMRobertaTokenizer", "CamembertTokenizer"],
    ["xlm-roberta", "camembert", "gte", "jina_embeddings_v3"],
);
const BYTES: ([&str; 1], [&str; 1]) = (["RobertaTokenizer"], ["roberta"]);

/// The settings of a class of tokenizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClassRules {
    /// Texts are cut at white space. `is_spaced` says whether a word has a space before it.
    Pieces { is_spaced: bool },
    /// Texts are bytes. `is_spaced` says whether a text has a space before it.
    Bytes { is_spaced: bool },
}

impl ClassRules {
    /// Reads the rules of the class in the file `path`, whose content is `config`. Without a class
    /// there, the fields of `model`, the model's `config.json`, name it.
    ///
    /// # Errors
    /// [`TextLoadError::Field`] for a setting that is no flag.
    pub(super) fn read(
        path: &Path,
        config: &Map<String, Value>,
        model: &Map<String, Value>,
    ) -> Result<Option<Self>, TextLoadError> {
        const CLASS: &str = "tokenizer_class";
        const SPACE: &str = "add_prefix_space";
        let text = |object: &Map<String, Value>, field: &str| {
            object.get(field).and_then(Value::as_str).map(str::to_owned)
        };
        let class = text(config, CLASS).or_else(|| text(model, CLASS));
        let class = class.as_deref().map(|class| class.strip_suffix("Fast").unwrap_or(class));
        let kind = text(model, "model_type").unwrap_or_default();
        let is_in = |classes: &[&str], kinds: &[&str]| match class {
            Some(class) => classes.contains(&class),
            None => kinds.contains(&&*kind),
        };
        let space = match config.get(SPACE) {
            None | Some(Value::Null) => None,
            Some(Value::Bool(flag)) => Some(*flag),
            Some(_) => None,
        };
        let rules = if is_in(&PIECES.0, &PIECES.1) {
            Self::Pieces { is_spaced: space.unwrap_or(true) }
        } else if is_in(&BYTES.0, &BYTES.1) {
            Self::Bytes { is_spaced: space.unwrap_or(false) }
        } else {
            return Ok(None);
        };
        match config.get(SPACE) {
            Some(other) if space.is_none() && !other.is_null() => {
                Err(field_error(path, SPACE, other, "true or false"))
            }
            _ => Ok(Some(rules)),
        }
    }

    /// Sets the pre-tokenizer, and drops normalizers that the class does not have, if the
    /// tokenizer has a model of the class.
    ///
    /// # Errors
    /// [`TextLoadError::Tokenizer`] if the library refuses it.
    pub(super) fn apply(self, tokenizer: &mut Tokenizer, path: &Path) -> Result<(), TextLoadError> {
        match (self, tokenizer.get_model(), tokenizer.get_pre_tokenizer()) {
            (Self::Pieces { is_spaced }, ModelWrapper::Unigram(_), _) => {
                let normalizer = tokenizer.get_normalizer().and_then(charsmap);
                tokenizer.with_normalizer(normalizer).map_err(|error| {
                    TextLoadError::Tokenizer { path: path.to_owned(), reason: error.to_string() }
                })?;
                let scheme = if is_spaced { PrependScheme::Always } else { PrependScheme::Never };
                let parts = vec![
                    PreTokenizerWrapper::WhitespaceSplit(WhitespaceSplit),
                    PreTokenizerWrapper::Metaspace(Metaspace::new('▁', scheme, true)),
                ];
                tokenizer.with_pre_tokenizer(Some(Sequence::new(parts)));
            }
            (
                Self::Bytes { is_spaced },
                ModelWrapper::BPE(_),
                Some(PreTokenizerWrapper::ByteLevel(_)),
            ) => {
                tokenizer.with_pre_tokenizer(Some(ByteLevel::new(is_spaced, true, true)));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns the table of characters of a sentencepiece model among the normalizers.
fn charsmap(normalizer: &NormalizerWrapper) -> Option<NormalizerWrapper> {
    match normalizer {
        NormalizerWrapper::Precompiled(_) => Some(normalizer.clone()),
        NormalizerWrapper::Sequence(sequence) => sequence.as_ref().iter().find_map(charsmap),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use playhouse_actors::ports::TextCodec;
    use serde_json::json;

    use super::super::HfTextCodec;
    use super::*;

    /// Returns the tokens of a text, of a tokenizer with this model and pre-tokenizer.
    fn tokens(
        parts: &Value,
        config: &Value,
        model: &Value,
        text: &str,
    ) -> Result<Vec<u32>, String> {
        let mut tokenizer = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "post_processor": null, "decoder": null,
        });
        for (field, value) in parts.as_object().unwrap() {
            tokenizer[field] = value.clone();
        }
        let folder = tempfile::TempDir::new().unwrap();
        let files = [
            ("tokenizer.json", &tokenizer),
            ("tokenizer_config.json", config),
            ("config.json", model),
        ];
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content.to_string()).unwrap();
        }
        let codec = HfTextCodec::load(folder.path()).map_err(|error| error.to_string())?;
        codec.encode(text, false).map_err(|error| error.to_string())
    }

    /// The expected tokens are those of transformers 5.24. Newer files of these classes have no
    /// `WhitespaceSplit`, and found a token at the end of such a text.
    #[test]
    fn white_space_around_words_has_no_token() {
        let parts = json!({
            "normalizer": {
                "type": "Replace", "pattern": { "Regex": " {2,}" }, "content": " ",
            },
            "pre_tokenizer": {
                "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true,
            },
            "model": {
                "type": "Unigram", "unk_id": 3, "byte_fallback": false,
                "vocab": [
                    ["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁the", -1.0],
                    ["▁kettle", -2.0], ["▁", -3.0], ["kettle", -4.0],
                ],
            },
        });
        let of = |config: Value, model: Value| tokens(&parts, &config, &model, " the  kettle \n");
        let class = |name: &str| of(json!({ "tokenizer_class": name }), json!({}));
        for name in ["XLMRobertaTokenizer", "XLMRobertaTokenizerFast", "CamembertTokenizer"] {
            assert_eq!(class(name), Ok(vec![4, 5]), "{name}");
        }
        let unspaced = json!({ "tokenizer_class": "XLMRobertaTokenizer",
            "add_prefix_space": false });
        assert_eq!(of(unspaced, json!({})), Ok(vec![3, 7]));
        assert_eq!(of(json!({}), json!({ "model_type": "xlm-roberta" })), Ok(vec![4, 5]));
        // The file alone counts.
        let own = class("PreTrainedTokenizerFast").unwrap();
        assert_eq!(own, [4, 5, 6, 3]);
        assert_eq!(of(json!({}), json!({ "model_type": "llama" })), Ok(own));
        let wrong = json!({ "tokenizer_class": "XLMRobertaTokenizer", "add_prefix_space": 1 });
        assert!(of(wrong, json!({})).unwrap_err().contains("add_prefix_space"));
    }

    /// The expected tokens are those of transformers 5.24.
    #[test]
    fn the_config_says_whether_a_text_begins_with_a_space() {
        let parts = json!({
            "normalizer": null,
            "pre_tokenizer": {
                "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                "use_regex": true,
            },
            "model": {
                "type": "BPE", "vocab": { "<unk>": 0, "a": 1, "Ġ": 2, "Ġa": 3 },
                "merges": [["Ġ", "a"]], "unk_token": null,
            },
        });
        let of = |config: Value, model: Value| tokens(&parts, &config, &model, "a a");
        let class = json!({ "tokenizer_class": "RobertaTokenizer" });
        assert_eq!(of(class, json!({})), Ok(vec![1, 3]));
        assert_eq!(of(json!({}), json!({ "model_type": "roberta" })), Ok(vec![1, 3]));
        let spaced = json!({ "tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": true });
        assert_eq!(of(spaced, json!({})), Ok(vec![3, 3]));
        let other = json!({ "tokenizer_class": "TokenizersBackend" });
        assert_eq!(of(other, json!({ "model_type": "roberta" })), Ok(vec![3, 3]));
    }
}
