//! The facts that a server of these models needs about prompts.

use std::path::Path;

use super::families::FAMILIES;
use super::plan::TextPlan;
use crate::config::JsonObject;
use crate::model::config::{ConfigError, ConfigSource, Fields};
use crate::model_files;

/// The limits of the encoder's texts, and the tokens with which the decoder begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextPrompts {
    /// Most tokens of a text.
    pub(crate) max_tokens: usize,
    /// Token ids of texts are below this.
    pub(crate) vocab_size: usize,
    /// The first tokens of the decoder: `decoder_start_token_id`, and `forced_bos_token_id` if it
    /// is set.
    pub(crate) decoder_prompt: Vec<u32>,
    /// The settings of generation that would change outputs and are not applied, with their values.
    pub(crate) not_applied: Vec<String>,
}

/// Settings of generation that are not applied, with the value that changes nothing.
const NOT_APPLIED: [(&str, f64); 6] = [
    ("no_repeat_ngram_size", 0.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("encoder_repetition_penalty", 1.0),
    ("min_length", 0.0),
    ("min_new_tokens", 0.0),
    ("num_beams", 1.0),
];

/// The file with the settings of generation.
const GENERATION: &str = "generation_config.json";

impl TextPrompts {
    /// Reads the facts of the model in the folder or GGUF file `model`, if it is an encoder-decoder
    /// for text. `generation_config.json` in the folder `generation` counts before `config.json`,
    /// and `overrides` count before both.
    ///
    /// # Errors
    /// [`ConfigError`] if a field is missing or has no valid value.
    pub(crate) fn of_model(
        model: &Path,
        overrides: Option<&JsonObject>,
        generation: &Path,
    ) -> Result<Option<Self>, ConfigError> {
        let mut config = ConfigSource::read(model)?.fields().clone();
        let mut generation = read(generation)?;
        if let Some(overrides) = overrides {
            config.override_with(overrides);
            generation.iter_mut().for_each(|fields| fields.override_with(overrides));
        }
        Self::of_fields(&config, generation.as_ref())
    }

    fn of_fields(
        fields: &Fields,
        generation: Option<&Fields>,
    ) -> Result<Option<Self>, ConfigError> {
        let listed = fields.value("architectures").and_then(serde_json::Value::as_array);
        let name = listed.and_then(|names| names.first()?.as_str());
        let Some(family) = FAMILIES.iter().find(|family| Some(family.architecture) == name) else {
            return Ok(None);
        };
        let plan = family.read(fields)?;
        let files: Vec<&Fields> = generation.into_iter().chain([fields]).collect();
        let token = |field: &str| {
            let file = files.iter().find(|file| file.value(field).is_some());
            let Some(file) = file else { return Ok(None) };
            match file.token_ids(field)?[..] {
                [token] if (token as usize) < plan.vocab_size => Ok(Some(token)),
                _ => Err(file.invalid(field, &format!("one token below {}", plan.vocab_size))),
            }
        };
        // As HF `GenerationMixin._get_decoder_start_token_id`.
        const START: &str = "decoder_start_token_id";
        let start = match token(START)? {
            Some(start) => Some(start),
            None => token("bos_token_id")?,
        };
        let expected = "the token with which the decoder begins";
        let start = start.ok_or_else(|| fields.missing(START, expected))?;
        let forced = token("forced_bos_token_id")?;
        Ok(Some(Self {
            max_tokens: plan.num_positions,
            vocab_size: plan.encoder_vocab_size,
            decoder_prompt: [start].into_iter().chain(forced).collect(),
            not_applied: not_applied(&files),
        }))
    }
}

/// Returns the settings that would change outputs. The first file that has one counts.
fn not_applied(files: &[&Fields]) -> Vec<String> {
    let set = |(field, neutral): (&str, f64)| {
        let value = files.iter().find_map(|file| file.value(field))?;
        let changes = !value.is_null() && value.as_f64() != Some(neutral);
        changes.then(|| format!("{field} {value}"))
    };
    NOT_APPLIED.into_iter().filter_map(set).collect()
}

/// Reads `generation_config.json` of a folder, if it exists.
fn read(folder: &Path) -> Result<Option<Fields>, ConfigError> {
    let path = folder.join(GENERATION);
    match model_files::exists(&path) {
        true => ConfigSource::file(&path).map(Some),
        false => Ok(None),
    }
}

/// Returns the tokens that the model in the folder `model` must not write: `bad_words_ids`, which
/// OPUS-MT has for its padding. `generation_config.json` counts before `config`.
///
/// # Errors
/// [`ConfigError`] for words of several tokens, and in families whose logits have no bias.
pub(super) fn banned(
    model: &Path,
    config: &Fields,
    plan: &TextPlan,
) -> Result<Vec<u32>, ConfigError> {
    let generation = read(model)?;
    banned_in(generation.as_ref().filter(|file| file.value(BANNED).is_some()), config, plan)
}

const BANNED: &str = "bad_words_ids";

fn banned_in(
    generation: Option<&Fields>,
    config: &Fields,
    plan: &TextPlan,
) -> Result<Vec<u32>, ConfigError> {
    let file = generation.unwrap_or(config);
    let Some(words) = file.value(BANNED).filter(|words| !words.is_null()) else {
        return Ok(Vec::new());
    };
    if plan.tables.logits_bias.is_none() {
        return Err(file.invalid(BANNED, "null: this class has no biases of logits"));
    }
    let token = |word: &serde_json::Value| match word.as_array()?.as_slice() {
        [token] => u32::try_from(token.as_u64()?).ok(),
        _ => None,
    };
    let tokens = words.as_array().map(|words| words.iter().map(token).collect::<Option<Vec<_>>>());
    let tokens = tokens.flatten();
    let in_vocabulary = |token: &u32| (*token as usize) < plan.vocab_size;
    tokens.filter(|tokens| tokens.iter().all(in_vocabulary)).ok_or_else(|| {
        file.invalid(BANNED, &format!("lists of one token each, below {}", plan.vocab_size))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::config::fields;

    fn prompts(
        change: Value,
        generation: Option<Value>,
    ) -> Result<Option<TextPrompts>, ConfigError> {
        let mut config = json!({
            "architectures": ["BartForConditionalGeneration"], "d_model": 8, "vocab_size": 10,
            "max_position_embeddings": 32, "encoder_layers": 1, "encoder_attention_heads": 2,
            "encoder_ffn_dim": 8, "decoder_layers": 1, "decoder_attention_heads": 2,
            "decoder_ffn_dim": 8,
        });
        if let (Some(config), Value::Object(change)) = (config.as_object_mut(), change) {
            config.extend(change);
        }
        TextPrompts::of_fields(&fields(config), generation.map(fields).as_ref())
    }

    #[test]
    fn the_decoder_begins_as_the_files_say() {
        let begins =
            |change, generation| prompts(change, generation).unwrap().unwrap().decoder_prompt;
        assert_eq!(begins(json!({"decoder_start_token_id": 2, "bos_token_id": 0}), None), [2]);
        let both = json!({"decoder_start_token_id": 2, "forced_bos_token_id": 0});
        assert_eq!(begins(both.clone(), None), [2, 0]);
        assert_eq!(begins(both, Some(json!({"forced_bos_token_id": 5}))), [2, 5]);
        assert_eq!(begins(json!({"bos_token_id": 4}), None), [4]);
        assert_eq!(begins(json!({}), Some(json!({"decoder_start_token_id": [7]}))), [7]);
    }

    #[test]
    fn settings_that_are_not_applied_are_named() {
        let start = json!({"decoder_start_token_id": 2, "min_length": 7, "num_beams": 1});
        let found = |generation| prompts(start.clone(), generation).unwrap().unwrap().not_applied;
        assert_eq!(found(None), ["min_length 7"]);
        let generation = json!({
            "no_repeat_ngram_size": 3, "num_beams": 4, "min_length": 0, "min_new_tokens": null,
            "encoder_no_repeat_ngram_size": 0, "encoder_repetition_penalty": 1.0,
        });
        assert_eq!(found(Some(generation)), ["no_repeat_ngram_size 3", "num_beams 4"]);
    }

    #[test]
    fn other_values_are_refused_with_their_field() {
        let refused = |change| prompts(change, None).unwrap_err().to_string();
        assert!(refused(json!({})).contains("decoder_start_token_id"));
        let outside = refused(json!({"decoder_start_token_id": 10}));
        assert!(outside.contains("is 10; expected one token below 10"), "{outside}");
        let two = refused(json!({"decoder_start_token_id": 2, "forced_bos_token_id": [1, 2]}));
        assert!(two.contains("forced_bos_token_id"), "{two}");
    }

    #[test]
    fn tokens_are_banned_as_the_files_say() {
        let (family, config) = (&FAMILIES[0], |words: Value| {
            fields(json!({
                "architectures": ["BartForConditionalGeneration"], "d_model": 8, "vocab_size": 10,
                "max_position_embeddings": 32, "encoder_layers": 1, "encoder_attention_heads": 2,
                "encoder_ffn_dim": 8, "decoder_layers": 1, "decoder_attention_heads": 2,
                "decoder_ffn_dim": 8, "bad_words_ids": words,
            }))
        });
        let of = |words: Value| {
            let config = config(words);
            banned_in(None, &config, &family.read(&config).unwrap())
        };
        assert_eq!(of(json!([[9], [1]])).unwrap(), [9, 1]);
        assert!(of(Value::Null).unwrap().is_empty());
        for wrong in [json!([[1, 2]]), json!([[10]]), json!([3]), json!("pad")] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.contains("bad_words_ids") && error.contains("below 10"), "{error}");
        }
        let (first, file) = (config(json!([[9]])), fields(json!({"bad_words_ids": [[4]]})));
        let plan = family.read(&first).unwrap();
        assert_eq!(banned_in(Some(&file), &first, &plan).unwrap(), [4]);
    }

    /// The file is of llama.cpp's converter, and the token that of the model's `config.json`.
    #[test]
    fn a_gguf_file_says_how_the_decoder_begins() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let of = |model: &str| TextPrompts::of_model(&folder.join(model), None, folder).unwrap();
        let stored = of("tests/formats/converted_texts/t5.gguf").unwrap();
        assert_eq!(stored, of("tests/fidelity/texts/t5").unwrap());
        assert_eq!(stored.decoder_prompt, [1]);
        assert_eq!(of("tests/formats/converted/llama-linear.gguf"), None);
    }

    #[test]
    fn other_classes_have_no_text_for_an_encoder() {
        let other = json!({"architectures": ["Qwen3ForCausalLM"]});
        assert_eq!(prompts(other, None).unwrap(), None);
    }
}
