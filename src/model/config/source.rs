//! The source of a config: `config.json` of a folder, or the metadata of a GGUF file in its form.

use std::path::Path;

use serde_json::Value;

use super::file::Fields;
use super::{ConfigError, gguf, retrieval, sentence_class, thinker};
use crate::config::JsonObject;
use crate::gguf::{GgufFile, is_gguf};

/// The config of a model, before a family reads it.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSource {
    pub(super) fields: Fields,
    /// The layout of a GGUF file; `None` for a folder.
    pub(super) layout: Option<gguf::Layout>,
}

impl ConfigSource {
    /// Reads `config.json` of the folder `model`, or the metadata of the GGUF file `model`. Of a
    /// folder of sentence-transformers with T5, it is that of the encoder.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read, or is not a JSON object or a GGUF file.
    pub(crate) fn read(model: &Path) -> Result<Self, ConfigError> {
        if is_gguf(model) {
            return gguf::read(&GgufFile::open(model)?);
        }
        if let Some(fields) = sentence_class::of_table(model) {
            return Ok(Self { fields, layout: None });
        }
        sentence_class::require_one_model(model)?;
        let mut source = Self::of_folder(model)?;
        sentence_class::take_changes(model, &mut source.fields);
        retrieval::infer_class(&mut source.fields);
        if let Some(model) = retrieval::model_of(&source.fields)? {
            source.fields = model;
        }
        if let Some(thinker) = thinker::model_of(&source.fields)? {
            source.fields = thinker;
        }
        sentence_class::take_encoder(model, &mut source.fields);
        Ok(source)
    }

    /// Reads `config.json` of `folder`.
    ///
    /// # Errors
    /// As [`ConfigSource::read`].
    pub(super) fn of_folder(folder: &Path) -> Result<Self, ConfigError> {
        Ok(Self { fields: Fields::read(&folder.join("config.json"))?, layout: None })
    }

    /// Reads another JSON file of a model's folder.
    ///
    /// # Errors
    /// As [`ConfigSource::read`].
    pub(crate) fn file(path: &Path) -> Result<Fields, ConfigError> {
        Fields::read(path)
    }

    /// Replaces fields by those of the settings.
    pub(crate) fn override_with(&mut self, overrides: &JsonObject) {
        self.fields.override_with(overrides);
    }

    /// Returns the fields. Their errors name a field and its value.
    pub(crate) fn fields(&self) -> &Fields {
        &self.fields
    }
}

#[cfg(test)]
impl From<Fields> for ConfigSource {
    fn from(fields: Fields) -> Self {
        Self { fields, layout: None }
    }
}

/// Returns the one architecture that `architectures` lists.
///
/// # Errors
/// [`ConfigError`] if the field is missing, or does not list exactly one `known` architecture.
pub(crate) fn architecture<'c>(config: &'c Fields, known: &[&str]) -> Result<&'c str, ConfigError> {
    let expected = "a list with one class, as `playhouse models` lists them";
    let listed =
        config.value("architectures").ok_or_else(|| config.missing("architectures", expected))?;
    let names: Vec<_> = listed.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let found = names.iter().find(|name| known.contains(name));
    let found = found.ok_or_else(|| match names.is_empty() {
        true => config.invalid("architectures", expected),
        false => config.unsupported_family("architectures", names[0], known),
    })?;
    // Two classes compute different results, and no field says which one is meant.
    if names.iter().any(|name| name != found) {
        return Err(config.invalid("architectures", "a list of one class"));
    }
    Ok(found)
}
