//! Settings of speculative decoding: vLLM's `--speculative-config`.

mod others;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use playhouse_actors::logic::drafts::{ngram::NgramLookup, suffix::SuffixConfig};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use super::EngineConfig;

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
    /// Most guesses for one request in a step. 0 stands for the number in the config of the draft
    /// model or the head.
    pub num_speculative_tokens: usize,
    /// The longest text, in tokens, after which a draft model or a head guesses. `None`: the
    /// longest that it reads.
    pub max_model_len: Option<usize>,
}

impl SpeculativeConfig {
    /// Most guesses for one request in a step: vLLM's limit.
    pub(crate) const MAX_SPECULATIVE_TOKENS: usize = 128;

    /// Returns the settings of a method with so many guesses, after texts of any length.
    #[must_use]
    pub fn new(method: SpeculativeMethod, num_speculative_tokens: usize) -> Self {
        Self { method, num_speculative_tokens, max_model_len: None }
    }
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
#[serde(default)]
struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_speculative_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<usize>,
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
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// vLLM's names of the layers in families' own checkpoints, which all mean `mtp`.
const OF_FAMILIES: [&str; 27] = [
    "bailing_hybrid_mtp",
    "bailing_hybrid_v3_mtp",
    "deepseek_mtp",
    "dots3_note_mtp",
    "ernie_mtp",
    "exaone4_5_mtp",
    "exaone_moe_mtp",
    "gemma4_mtp",
    "glm4_moe_lite_mtp",
    "glm4_moe_mtp",
    "glm5_next_mtp",
    "glm_ocr_mtp",
    "hy_v3_mtp",
    "hy_v4_mtp",
    "inkling_mtp",
    "kimi_k3_mtp",
    "longcat_flash_mtp",
    "mimo_mtp",
    "mimo_v2_mtp",
    "minimax_m3_mtp",
    "nemotron_h_mtp",
    "pangu_ultra_moe_mtp",
    "qwen3_5_mtp",
    "qwen3_next_mtp",
    "qwen4_exp_mtp",
    "step3p5_mtp",
    "step5_mtp",
];

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

    /// Returns the method of a name.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            // The guesses are the same on any device.
            "ngram" | "[ngram]" | "ngram_gpu" => Self::Ngram,
            "suffix" => Self::Suffix,
            "draft_model" => Self::DraftModel,
            "eagle" => Self::Head(HeadMethod::Eagle),
            "eagle3" => Self::Head(HeadMethod::Eagle3),
            "mtp" => Self::Head(HeadMethod::Mtp),
            name if OF_FAMILIES.contains(&name) => Self::Head(HeadMethod::Mtp),
            "mlp_speculator" => Self::Head(HeadMethod::MlpSpeculator),
            _ => return None,
        })
    }

    /// Returns the method of a model that is given without one, by its name as in vLLM.
    fn of_model(model: &str) -> Self {
        match model.to_lowercase() {
            name if name == "ngram" || name == "[ngram]" => Self::Ngram,
            name if name.contains("eagle-") => Self::Head(HeadMethod::Eagle),
            name if name.contains("eagle3") => Self::Head(HeadMethod::Eagle3),
            _ => Self::DraftModel,
        }
    }

    /// Returns whether the method has the field `model`.
    fn has_model(self) -> bool {
        matches!(self, Self::DraftModel | Self::Head(_))
    }
}

impl Fields {
    /// Returns the method.
    fn name(&self) -> Result<Name, String> {
        match (self.method.as_deref(), &self.model) {
            (Some(name), _) => Name::of(name)
                .ok_or_else(|| format!("method is {name}, which is not supported: {ACCEPTED}")),
            (None, Some(model)) => Ok(Name::of_model(&model.to_string_lossy())),
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
        // vLLM lets a method without weights stand as its own model.
        let is_method = |model: &PathBuf| Name::of(&model.to_string_lossy()) == Some(name);
        if !name.has_model() && self.model.as_ref().is_some_and(|model| !is_method(model)) {
            let name = name.as_str();
            return Err(format!("model belongs to methods with weights, and the method is {name}"));
        }
        if !name.has_model() && self.max_model_len.is_some() {
            let name = name.as_str();
            let belongs = "max_model_len belongs to methods with weights";
            return Err(format!("{belongs}, and the method is {name}"));
        }
        if self.max_model_len == Some(0) {
            return Err("max_model_len is 0, and must be at least 1".to_owned());
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
        others::check(&fields.others)?;
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
                Some(config.max_tree_depth.min(Self::MAX_SPECULATIVE_TOKENS))
            }
            // Published models have one layer, which vLLM uses once by default.
            SpeculativeMethod::Head { method: HeadMethod::Mtp, .. } => Some(1),
            SpeculativeMethod::Ngram(_)
            | SpeculativeMethod::DraftModel { .. }
            | SpeculativeMethod::Head { .. } => None,
        };
        let range = 1..=Self::MAX_SPECULATIVE_TOKENS;
        let shown = format!("{} to {}", range.start(), range.end());
        let num_speculative_tokens = match fields.num_speculative_tokens.or(by_default) {
            Some(number) if range.contains(&number) => number,
            Some(number) => {
                return Err(format!("num_speculative_tokens is {number}, and must be {shown}"));
            }
            None if name.has_model() => 0,
            None => {
                return Err(format!("num_speculative_tokens is missing, and must be {shown}"));
            }
        };
        Ok(Self { method, num_speculative_tokens, max_model_len: fields.max_model_len })
    }
}

impl From<&SpeculativeConfig> for Fields {
    fn from(config: &SpeculativeConfig) -> Self {
        let num_speculative_tokens = Some(config.num_speculative_tokens).filter(|most| *most > 0);
        let max_model_len = config.max_model_len;
        let fields = Self { num_speculative_tokens, max_model_len, ..Self::default() };
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
