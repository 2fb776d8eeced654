//! Settings of speculative decoding: vLLM's `--speculative-config`.

use std::path::PathBuf;

use playhouse_actors::logic::drafts::{ngram::NgramLookup, suffix::SuffixConfig};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::EngineConfig;

/// Most guesses of one request in a step: vLLM's limit.
const MAX_SPECULATIVE_TOKENS: usize = 128;
/// Most forced tokens of one request in a step. Keys of JSON objects are rarely longer.
const JUMP_FORWARD_TOKENS: usize = 16;
/// vLLM's lengths of n-grams.
const DEFAULT_LOOKUP: usize = 5;

/// How tokens are guessed that the model verifies several at a time. The output does not depend on
/// it.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeculativeConfig {
    /// The source of guesses.
    pub method: SpeculativeMethod,
    /// Most guesses for one request in a step.
    pub num_speculative_tokens: usize,
}

/// A source of guesses.
#[derive(Debug, Clone, PartialEq)]
pub enum SpeculativeMethod {
    /// The tokens that followed an earlier occurrence of the last tokens.
    Ngram(NgramLookup),
    /// The likeliest continuation in the request's text and in recent outputs.
    Suffix(SuffixConfig),
    /// A smaller model of the same vocabulary.
    DraftModel {
        /// Its folder, or its GGUF file.
        model: PathBuf,
    },
    /// A head over the model's hidden states.
    Head {
        /// Its form.
        method: HeadMethod,
        /// Its folder. Only [`HeadMethod::Mtp`] may have none: the head is in the model's folder.
        model: Option<PathBuf>,
    },
}

/// The form of a head over the model's hidden states. The names are those of vLLM's `method`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadMethod {
    /// EAGLE (<https://arxiv.org/abs/2401.15077>).
    Eagle,
    /// EAGLE-3 (<https://arxiv.org/abs/2503.01840>).
    Eagle3,
    /// A multi-token prediction layer of the model's own checkpoint
    /// (<https://arxiv.org/abs/2412.19437>).
    Mtp,
    /// IBM's MLP speculator (<https://arxiv.org/abs/2404.19124>).
    MlpSpeculator,
}

impl EngineConfig {
    /// Returns the largest number of tokens that follow from a constraint and are verified together
    /// in one step. Without the setting, the device decides.
    pub(crate) fn num_jump_forward_tokens(&self, is_on_cpu: bool) -> usize {
        if self.jump_forward.unwrap_or(is_on_cpu) { JUMP_FORWARD_TOKENS } else { 0 }
    }

    /// Returns the largest number of guesses that a drafter makes for one request and step.
    pub(crate) fn num_speculative_tokens(&self) -> usize {
        self.speculative_config.as_ref().map_or(0, |config| config.num_speculative_tokens)
    }
}

/// The fields as vLLM has them.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_speculative_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_lookup_min: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_lookup_max: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suffix_decoding_max_tree_depth: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suffix_decoding_max_cached_requests: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suffix_decoding_max_spec_factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suffix_decoding_min_token_prob: Option<f64>,
}

/// The methods by their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Ngram,
    Suffix,
    DraftModel,
    Head(HeadMethod),
}

impl Name {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ngram => "ngram",
            Self::Suffix => "suffix",
            Self::DraftModel => "draft_model",
            Self::Head(HeadMethod::Eagle) => "eagle",
            Self::Head(HeadMethod::Eagle3) => "eagle3",
            Self::Head(HeadMethod::Mtp) => "mtp",
            Self::Head(HeadMethod::MlpSpeculator) => "mlp_speculator",
        }
    }

    /// Returns the method of a name. As in vLLM, names of families with such layers mean `mtp`.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "ngram" => Self::Ngram,
            "suffix" => Self::Suffix,
            "draft_model" => Self::DraftModel,
            "eagle" => Self::Head(HeadMethod::Eagle),
            "eagle3" => Self::Head(HeadMethod::Eagle3),
            "mtp" | "deepseek_mtp" | "glm4_moe_mtp" | "qwen3_next_mtp" | "qwen3_5_mtp" => {
                Self::Head(HeadMethod::Mtp)
            }
            "mlp_speculator" => Self::Head(HeadMethod::MlpSpeculator),
            _ => return None,
        })
    }

    /// Returns whether the method has the field `model`.
    fn has_model(self) -> bool {
        matches!(self, Self::DraftModel | Self::Head(_))
    }
}

impl Fields {
    /// Returns the method. As in vLLM, a model without a method is a draft model.
    fn name(&self) -> Result<Name, String> {
        match (self.method.as_deref(), &self.model) {
            (Some(name), _) => Name::of(name)
                .ok_or_else(|| format!("method is {name}, which is not supported: {ACCEPTED}")),
            (None, Some(_)) => Ok(Name::DraftModel),
            (None, None) => Err(format!("method is missing: {ACCEPTED}")),
        }
    }

    /// Rejects fields that the method does not read.
    fn check_unread(&self, name: Name) -> Result<(), String> {
        let fields = [
            ("prompt_lookup_min", self.prompt_lookup_min.is_some(), Name::Ngram),
            ("prompt_lookup_max", self.prompt_lookup_max.is_some(), Name::Ngram),
            (
                "suffix_decoding_max_tree_depth",
                self.suffix_decoding_max_tree_depth.is_some(),
                Name::Suffix,
            ),
            (
                "suffix_decoding_max_cached_requests",
                self.suffix_decoding_max_cached_requests.is_some(),
                Name::Suffix,
            ),
            (
                "suffix_decoding_max_spec_factor",
                self.suffix_decoding_max_spec_factor.is_some(),
                Name::Suffix,
            ),
            (
                "suffix_decoding_min_token_prob",
                self.suffix_decoding_min_token_prob.is_some(),
                Name::Suffix,
            ),
        ];
        if self.model.is_some() && !name.has_model() {
            let name = name.as_str();
            return Err(format!("model belongs to methods with weights, and the method is {name}"));
        }
        let unread = fields.into_iter().find(|&(_, is_given, of)| is_given && of != name);
        match unread {
            Some((field, _, of)) => {
                let (name, of) = (name.as_str(), of.as_str());
                Err(format!("{field} belongs to the method {of}, and the method is {name}"))
            }
            None => Ok(()),
        }
    }

    fn ngram(&self) -> Result<NgramLookup, String> {
        let (min, max) = match (self.prompt_lookup_min, self.prompt_lookup_max) {
            (None, None) => (DEFAULT_LOOKUP, DEFAULT_LOOKUP),
            (Some(min), None) => (min, min),
            (None, Some(max)) => (max, max),
            (Some(min), Some(max)) => (min, max),
        };
        if min == 0 {
            return Err("prompt_lookup_min is 0, and must be at least 1".to_owned());
        }
        if min > max {
            return Err(format!(
                "prompt_lookup_min is {min}, and must be at most prompt_lookup_max, {max}"
            ));
        }
        Ok(NgramLookup { min, max })
    }

    fn suffix(&self) -> Result<SuffixConfig, String> {
        let default = SuffixConfig::default();
        let max_tree_depth = self.suffix_decoding_max_tree_depth.unwrap_or(default.max_tree_depth);
        if max_tree_depth == 0 {
            return Err("suffix_decoding_max_tree_depth is 0, and must be at least 1".to_owned());
        }
        let max_spec_factor =
            self.suffix_decoding_max_spec_factor.unwrap_or(default.max_spec_factor);
        if max_spec_factor < 0.0 {
            return Err(format!(
                "suffix_decoding_max_spec_factor is {max_spec_factor}, and must be at least 0"
            ));
        }
        let min_token_prob = self.suffix_decoding_min_token_prob.unwrap_or(default.min_token_prob);
        if !(0.0..=1.0).contains(&min_token_prob) {
            return Err(format!(
                "suffix_decoding_min_token_prob is {min_token_prob}, and must be in [0, 1]"
            ));
        }
        let cached = self.suffix_decoding_max_cached_requests;
        let max_cached_requests = cached.unwrap_or(default.max_cached_requests);
        Ok(SuffixConfig { max_tree_depth, max_cached_requests, max_spec_factor, min_token_prob })
    }
}

const ACCEPTED: &str = "expected ngram, suffix, draft_model, eagle, eagle3, mtp or mlp_speculator";

impl TryFrom<Fields> for SpeculativeConfig {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let name = fields.name()?;
        fields.check_unread(name)?;
        let method = match name {
            Name::Ngram => SpeculativeMethod::Ngram(fields.ngram()?),
            Name::Suffix => SpeculativeMethod::Suffix(fields.suffix()?),
            Name::DraftModel => match &fields.model {
                Some(model) => SpeculativeMethod::DraftModel { model: model.clone() },
                None => return Err("model is missing: the folder of the draft model".to_owned()),
            },
            Name::Head(method) if method != HeadMethod::Mtp && fields.model.is_none() => {
                return Err("model is missing: the folder of the head".to_owned());
            }
            Name::Head(method) => SpeculativeMethod::Head { method, model: fields.model.clone() },
        };
        let by_default = match &method {
            SpeculativeMethod::Suffix(config) => {
                Some(config.max_tree_depth.min(MAX_SPECULATIVE_TOKENS))
            }
            // Published models have one layer, which vLLM uses once by default.
            SpeculativeMethod::Head { method: HeadMethod::Mtp, .. } => Some(1),
            SpeculativeMethod::Ngram(_)
            | SpeculativeMethod::DraftModel { .. }
            | SpeculativeMethod::Head { .. } => None,
        };
        let range = format!("1 to {MAX_SPECULATIVE_TOKENS}");
        match fields.num_speculative_tokens.or(by_default) {
            Some(number) if (1..=MAX_SPECULATIVE_TOKENS).contains(&number) => {
                Ok(Self { method, num_speculative_tokens: number })
            }
            Some(number) => Err(format!("num_speculative_tokens is {number}, and must be {range}")),
            None => Err(format!("num_speculative_tokens is missing, and must be {range}")),
        }
    }
}

impl From<&SpeculativeConfig> for Fields {
    fn from(config: &SpeculativeConfig) -> Self {
        let num_speculative_tokens = Some(config.num_speculative_tokens);
        let fields = Self { num_speculative_tokens, ..Self::default() };
        match &config.method {
            SpeculativeMethod::Ngram(lookup) => Self {
                method: Some(Name::Ngram.as_str().to_owned()),
                prompt_lookup_min: Some(lookup.min),
                prompt_lookup_max: Some(lookup.max),
                ..fields
            },
            SpeculativeMethod::Suffix(suffix) => Self {
                method: Some(Name::Suffix.as_str().to_owned()),
                suffix_decoding_max_tree_depth: Some(suffix.max_tree_depth),
                suffix_decoding_max_cached_requests: Some(suffix.max_cached_requests),
                suffix_decoding_max_spec_factor: Some(suffix.max_spec_factor),
                suffix_decoding_min_token_prob: Some(suffix.min_token_prob),
                ..fields
            },
            SpeculativeMethod::DraftModel { model } => Self {
                method: Some(Name::DraftModel.as_str().to_owned()),
                model: Some(model.clone()),
                ..fields
            },
            SpeculativeMethod::Head { method, model } => Self {
                method: Some(Name::Head(*method).as_str().to_owned()),
                model: model.clone(),
                ..fields
            },
        }
    }
}

impl Serialize for SpeculativeConfig {
    /// Writes the object as text, as the flag takes it.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&serde_json::to_string(&Fields::from(self)).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for SpeculativeConfig {
    /// Reads a text with a JSON object, as the flag has it, or a table of the file.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a JSON object, as text or as a table")]
        enum Written {
            Text(String),
            Object(serde_json::Map<String, serde_json::Value>),
        }
        let fields: Result<Fields, _> = match Written::deserialize(from)? {
            Written::Text(text) => serde_json::from_str(&text),
            Written::Object(object) => serde_json::from_value(object.into()),
        };
        fields.map_err(de::Error::custom)?.try_into().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<SpeculativeConfig, String> {
        serde_json::from_value(json.into()).map_err(|error: serde_json::Error| error.to_string())
    }

    #[test]
    fn methods_are_described_as_vllm_does() {
        let ngram = r#"{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4,
            "prompt_lookup_min": 2}"#;
        let lookup = NgramLookup { min: 2, max: 4 };
        let method = SpeculativeMethod::Ngram(lookup);
        assert_eq!(read(ngram), Ok(SpeculativeConfig { method, num_speculative_tokens: 3 }));
        let suffix = read(r#"{"method": "suffix"}"#).unwrap();
        assert_eq!(suffix.num_speculative_tokens, 24, "the depth of the tree");
        let model = read(r#"{"model": "draft", "num_speculative_tokens": 5}"#).unwrap();
        assert_eq!(model.method, SpeculativeMethod::DraftModel { model: "draft".into() });
        for name in ["deepseek_mtp", "glm4_moe_mtp", "qwen3_next_mtp", "qwen3_5_mtp"] {
            let mtp = read(&format!(r#"{{"method": "{name}"}}"#)).unwrap();
            let method = SpeculativeMethod::Head { method: HeadMethod::Mtp, model: None };
            assert_eq!(mtp, SpeculativeConfig { method, num_speculative_tokens: 1 });
        }
    }

    #[test]
    fn lengths_of_ngrams_have_vllms_defaults() {
        let lookup = |more: &str| {
            let json = format!(r#"{{"method": "ngram", "num_speculative_tokens": 3{more}}}"#);
            match read(&json).unwrap().method {
                SpeculativeMethod::Ngram(lookup) => (lookup.min, lookup.max),
                _ => unreachable!(),
            }
        };
        assert_eq!(lookup(""), (5, 5));
        assert_eq!(lookup(r#", "prompt_lookup_max": 3"#), (3, 3));
        assert_eq!(lookup(r#", "prompt_lookup_min": 2"#), (2, 2));
    }

    #[test]
    fn what_is_written_is_read_again() {
        for json in [
            r#"{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}"#,
            r#"{"method": "suffix", "suffix_decoding_min_token_prob": 0.25}"#,
            r#"{"method": "draft_model", "model": "m", "num_speculative_tokens": 2}"#,
            r#"{"method": "eagle3", "model": "m", "num_speculative_tokens": 2}"#,
            r#"{"method": "deepseek_mtp"}"#,
        ] {
            let config = read(json).unwrap();
            let written = serde_json::to_value(&config).unwrap();
            assert_eq!(serde_json::from_value::<SpeculativeConfig>(written).unwrap(), config);
        }
    }

    #[test]
    fn bad_values_are_named() {
        let cases = [
            (r#"{"method": "medusa", "model": "m", "num_speculative_tokens": 3}"#, "medusa"),
            (r#"{"method": "eagle", "num_speculative_tokens": 3}"#, "model is missing"),
            (r#"{"method": "ngram", "model": "m", "num_speculative_tokens": 3}"#, "with weights"),
            (r#"{"num_speculative_tokens": 3}"#, "method is missing"),
            (r#"{"method": "ngram"}"#, "num_speculative_tokens is missing"),
            (r#"{"method": "ngram", "num_speculative_tokens": 0}"#, "1 to 128"),
            (r#"{"method": "ngram", "num_speculative_tokens": 129}"#, "129"),
            (r#"{"method": "draft_model", "num_speculative_tokens": 3}"#, "model is missing"),
            (r#"{"method": "suffix", "prompt_lookup_max": 3}"#, "belongs to the method ngram"),
            (
                r#"{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 4,
                 "prompt_lookup_max": 3}"#,
                "at most prompt_lookup_max, 3",
            ),
            (r#"{"method": "suffix", "suffix_decoding_min_token_prob": 1.5}"#, "in [0, 1]"),
            (r#"{"metod": "ngram"}"#, "metod"),
            ("ngram", "expected"),
        ];
        for (json, part) in cases {
            let error = read(json).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
    }
}
