//! `generation_config.json`: the model authors' sampling defaults and end-of-sequence tokens.

use std::path::Path;

use super::file::Fields;
use super::{ConfigError, gguf};
use crate::gguf::{GgufFile, is_gguf};
use crate::model_files;

/// The fields of `generation_config.json` that vLLM reads. Each may be absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationConfig {
    /// Tokens that end a sequence.
    pub eos_token_ids: Vec<u32>,
    /// Sampling temperature; 0 is greedy.
    pub temperature: Option<f64>,
    /// Nucleus mass, in (0, 1].
    pub top_p: Option<f64>,
    /// The number of likeliest tokens to sample from; 0 or -1 for all.
    pub top_k: Option<i64>,
    /// The least probability of a token, relative to the likeliest one.
    pub min_p: Option<f64>,
    /// The divisor of the logits of tokens seen before; 1 changes nothing.
    pub repetition_penalty: Option<f64>,
    /// The number subtracted from the logits of tokens generated before.
    pub presence_penalty: Option<f64>,
    /// The number subtracted from a token's logit for each time that it was generated.
    pub frequency_penalty: Option<f64>,
    /// The most tokens to generate.
    pub max_new_tokens: Option<usize>,
}

impl GenerationConfig {
    /// Reads the settings of `model` itself: a folder's `generation_config.json`, or the sampling
    /// parameters in the metadata of a GGUF file.
    ///
    /// # Errors
    /// As [`GenerationConfig::from_dir`].
    pub fn of_model(model: &Path) -> Result<Self, ConfigError> {
        match is_gguf(model) {
            true => gguf::read_generation(&GgufFile::open(model)?),
            false => Self::from_dir(model),
        }
    }

    /// Reads `generation_config.json` of `folder`. Without the file, all fields are absent.
    ///
    /// # Errors
    /// [`ConfigError`] if the file is not readable or not JSON, or a field has another type.
    pub fn from_dir(folder: &Path) -> Result<Self, ConfigError> {
        let path = folder.join("generation_config.json");
        if !model_files::exists(&path) {
            return Ok(Self::default());
        }
        Self::from_fields(&Fields::read(&path)?)
    }

    fn from_fields(file: &Fields) -> Result<Self, ConfigError> {
        Ok(Self {
            eos_token_ids: file.token_ids("eos_token_id")?,
            temperature: file.number("temperature")?,
            top_p: file.number("top_p")?,
            top_k: file.integer("top_k")?,
            min_p: file.number("min_p")?,
            repetition_penalty: file.number("repetition_penalty")?,
            presence_penalty: file.number("presence_penalty")?,
            frequency_penalty: file.number("frequency_penalty")?,
            // Some writers have the largest integer for no limit.
            max_new_tokens: file.positions("max_new_tokens")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::file::fields;
    use super::*;

    #[test]
    fn fields_that_are_present_are_read() {
        let read = |json| GenerationConfig::from_fields(&fields(json)).unwrap();
        assert_eq!(read(json!({})), GenerationConfig::default());
        let config = read(json!({
            "eos_token_id": [2, 0], "temperature": 0.6, "top_p": 1, "top_k": 20, "min_p": null,
            "repetition_penalty": 1.1, "presence_penalty": 1.5, "frequency_penalty": -0.5,
            "max_new_tokens": 64, "do_sample": true,
        }));
        assert_eq!(config.eos_token_ids, [2, 0]);
        assert_eq!((config.temperature, config.top_p), (Some(0.6), Some(1.0)));
        assert_eq!((config.top_k, config.min_p), (Some(20), None));
        assert_eq!((config.repetition_penalty, config.max_new_tokens), (Some(1.1), Some(64)));
        assert_eq!((config.presence_penalty, config.frequency_penalty), (Some(1.5), Some(-0.5)));
        assert_eq!(read(json!({ "eos_token_id": 7 })).eos_token_ids, [7]);
        let no_limit = read(json!({ "max_new_tokens": i32::MAX }));
        assert_eq!(no_limit.max_new_tokens, Some(i32::MAX as usize));
    }

    #[test]
    fn an_error_names_the_field_and_its_value() {
        let json = json!({ "eos_token_id": [1, -1] });
        let error = GenerationConfig::from_fields(&fields(json)).unwrap_err().to_string();
        assert_eq!(
            error,
            "config.json: `eos_token_id` is [1,-1]; expected a token id or a list of token ids"
        );
    }

    #[test]
    fn an_absent_file_sets_nothing() {
        let folder = tempfile::TempDir::new().unwrap();
        let config = GenerationConfig::from_dir(folder.path()).unwrap();
        assert_eq!(config, GenerationConfig::default());
    }
}
