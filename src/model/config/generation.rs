//! `generation_config.json`: the model authors' sampling defaults and end-of-sequence tokens.

use std::path::Path;

use super::file::Fields;
use super::{ConfigError, gguf};
use crate::config::JsonObject;
use crate::gguf::{GgufFile, is_gguf};
use crate::model_files;

/// The names of the fields of [`GenerationConfig`] in files.
const FIELDS: [&str; 9] = [
    "eos_token_id",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "max_new_tokens",
];

/// The fields of `generation_config.json` that vLLM reads. Each may be absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerationConfig {
    /// Whether there is a file. Its tokens that end a sequence then replace those of `config.json`,
    /// as in vLLM.
    pub is_of_file: bool,
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
    /// Whether no client may ask for more: the operator chose `max_new_tokens`, not the model.
    pub bounds_clients: bool,
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
        Ok(Self { is_of_file: true, ..Self::from_fields(&Fields::read(&path)?)? })
    }

    /// Returns the settings with the fields of `changes` in the place of their own. Warns of fields
    /// that have no effect here.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has another type, or a value that no request may have.
    pub fn with(self, changes: &JsonObject) -> Result<Self, ConfigError> {
        let JsonObject(object) = changes;
        let path = Path::new("override_generation_config");
        let fields = Fields::translated(path, object.clone(), Vec::new());
        let new = Self::from_fields(&fields)?;
        new.check_ranges(&fields)?;
        for name in object.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
            tracing::warn!("{}: {name} has no effect", path.display());
        }
        let is_given = |name: &str| object.contains_key(name);
        let number = |name: &str, new: Option<f64>, old| if is_given(name) { new } else { old };
        Ok(Self {
            is_of_file: self.is_of_file,
            eos_token_ids: match is_given("eos_token_id") {
                true => new.eos_token_ids,
                false => self.eos_token_ids,
            },
            temperature: number("temperature", new.temperature, self.temperature),
            top_p: number("top_p", new.top_p, self.top_p),
            top_k: if is_given("top_k") { new.top_k } else { self.top_k },
            min_p: number("min_p", new.min_p, self.min_p),
            repetition_penalty: number(
                "repetition_penalty",
                new.repetition_penalty,
                self.repetition_penalty,
            ),
            presence_penalty: number(
                "presence_penalty",
                new.presence_penalty,
                self.presence_penalty,
            ),
            frequency_penalty: number(
                "frequency_penalty",
                new.frequency_penalty,
                self.frequency_penalty,
            ),
            max_new_tokens: match is_given("max_new_tokens") {
                true => new.max_new_tokens,
                false => self.max_new_tokens,
            },
            bounds_clients: self.bounds_clients || is_given("max_new_tokens"),
        })
    }

    /// Rejects values that every request would be refused for.
    fn check_ranges(&self, fields: &Fields) -> Result<(), ConfigError> {
        let check = |name: &str, value: Option<f64>, accepted: &str, is_valid: fn(f64) -> bool| {
            if value.is_none_or(is_valid) {
                return Ok(());
            }
            Err(fields.invalid(name, accepted))
        };
        let penalty = |x: f64| (-2.0..=2.0).contains(&x);
        check("temperature", self.temperature, "a number in [0, 2]", |x| (0.0..=2.0).contains(&x))?;
        check("top_p", self.top_p, "a number in (0, 1]", |x| x > 0.0 && x <= 1.0)?;
        check("min_p", self.min_p, "a number in [0, 1]", |x| (0.0..=1.0).contains(&x))?;
        check("repetition_penalty", self.repetition_penalty, "a number above 0", |x| x > 0.0)?;
        check("presence_penalty", self.presence_penalty, "a number in [-2, 2]", penalty)?;
        check("frequency_penalty", self.frequency_penalty, "a number in [-2, 2]", penalty)?;
        if self.top_k.is_some_and(|count| count < -1) {
            return Err(fields.invalid("top_k", "an integer of at least -1"));
        }
        Ok(())
    }

    fn from_fields(file: &Fields) -> Result<Self, ConfigError> {
        Ok(Self {
            is_of_file: false,
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
            bounds_clients: false,
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
    fn other_values_replace_those_of_the_file() {
        let file = json!({"eos_token_id": 2, "temperature": 0.6, "top_k": 20, "min_p": 0.1});
        let file = GenerationConfig::from_fields(&fields(file)).unwrap();
        let changes = |changes: serde_json::Value| JsonObject(changes.as_object().unwrap().clone());
        assert_eq!(file.clone().with(&changes(json!({}))).unwrap(), file);
        let changed = changes(json!({"temperature": 0.2, "top_k": null, "max_new_tokens": 9}));
        let changed = file.clone().with(&changed).unwrap();
        assert_eq!((changed.temperature, changed.top_k), (Some(0.2), None));
        assert_eq!((changed.min_p, changed.max_new_tokens), (Some(0.1), Some(9)));
        assert_eq!(changed.eos_token_ids, [2]);
        for wrong in [json!({"top_p": "much"}), json!({"top_p": 1.5}), json!({"top_p": 0})] {
            let error = file.clone().with(&changes(wrong)).unwrap_err().to_string();
            assert!(error.starts_with("override_generation_config: `top_p`"), "{error}");
        }
        for wrong in [json!({"temperature": -1}), json!({"top_k": -2}), json!({"min_p": 2})] {
            assert!(file.clone().with(&changes(wrong.clone())).is_err(), "{wrong}");
        }
        let ignored = changes(json!({"do_sample": true, "top_k": -1}));
        assert_eq!(file.with(&ignored).unwrap().top_k, Some(-1));
    }

    #[test]
    fn an_absent_file_sets_nothing() {
        let folder = tempfile::TempDir::new().unwrap();
        let config = GenerationConfig::from_dir(folder.path()).unwrap();
        assert_eq!(config, GenerationConfig::default());
    }
}
