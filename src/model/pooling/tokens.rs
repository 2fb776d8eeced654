//! The ids of tokens by their spelling, from `tokenizer.json` alone: a classifier made from an
//! output layer has a class for each of a few tokens.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{
    model::ConfigError,
    model_files::{self, ModelFileError},
};

/// The vocabulary of a tokenizer file.
pub(super) struct Vocabulary {
    path: PathBuf,
    file: Value,
}

impl Vocabulary {
    /// Reads `tokenizer.json` in `folder`, or the file `folder` itself.
    ///
    /// # Errors
    /// [`ConfigError`] if there is none, or it is not JSON.
    pub(super) fn read(folder: &Path) -> Result<Self, ConfigError> {
        let path = match folder.extension() {
            Some(extension) if extension == "json" => folder.to_owned(),
            _ => folder.join("tokenizer.json"),
        };
        let text = model_files::read(&path).map_err(ModelFileError::read(&path))?;
        let file = serde_json::from_slice(&text).map_err(|error| {
            let reason = error.to_string();
            ConfigError::Json { path: path.clone(), reason }
        })?;
        Ok(Self { path, file })
    }

    /// Returns the id of the token that the vocabulary spells as `token`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if there is none.
    pub(super) fn id(&self, token: &str) -> Result<u32, ConfigError> {
        self.find(token).ok_or_else(|| ConfigError::Invalid {
            path: self.path.clone(),
            field: "vocab".to_owned(),
            value: format!("{token:?}"),
            expected: "a token of the vocabulary".to_owned(),
        })
    }

    /// Returns the id of the token that the vocabulary spells as `token`, if there is one.
    pub(super) fn find(&self, token: &str) -> Option<u32> {
        let added = self.file["added_tokens"].as_array().into_iter().flatten();
        let added =
            added.filter(|added| added["content"] == token).find_map(|added| added["id"].as_u64());
        let id = added.or_else(|| match &self.file["model"]["vocab"] {
            Value::Object(vocab) => vocab.get(token)?.as_u64(),
            // Unigram: pairs of a token and its score.
            Value::Array(vocab) => {
                vocab.iter().position(|pair| pair[0] == token).map(|index| index as u64)
            }
            _ => None,
        });
        id.and_then(|id| u32::try_from(id).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(file: &str, token: &str) -> Result<u32, String> {
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), file).unwrap();
        let vocabulary = Vocabulary::read(folder.path()).unwrap();
        vocabulary.id(token).map_err(|error| error.to_string())
    }

    #[test]
    fn tokens_are_found_in_every_form_of_vocabulary() {
        let words = r#"{"model": {"vocab": {"no": 3, "yes": 5}}}"#;
        assert_eq!((id(words, "no"), id(words, "yes")), (Ok(3), Ok(5)));
        let unigram = r#"{"model": {"vocab": [["<unk>", 0.0], ["yes", -1.5]]}}"#;
        assert_eq!(id(unigram, "yes"), Ok(1));
        let added =
            r#"{"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 9, "content": "<y>"}]}"#;
        assert_eq!(id(added, "<y>"), Ok(9));
        assert!(id(words, "maybe").unwrap_err().contains("maybe"));
    }
}
