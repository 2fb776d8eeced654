//! The sampling parameters of a request: vLLM's `SamplingParams`, its defaults and its ranges.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ids::TokenId, structured_output::StructuredOutput};
use crate::{
    error::RequestError,
    logic::{input::thinking::Thinking, text::stop::RepetitionDetection},
};

/// A request with a lower temperature is greedy.
pub const GREEDY_TEMPERATURE: f32 = 1e-5;
/// Lower positive temperatures are raised to this one, because the softmax would overflow.
pub const MIN_TEMPERATURE: f32 = 1e-2;
/// Maximum number of tokens that a request may name for log-probabilities.
pub const MAX_LOGPROB_TOKEN_IDS: usize = 128;

/// The rules by which one request samples and stops.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplingParams {
    /// Number of choices for one prompt.
    pub n: u32,
    /// In `[-2, 2]`. Subtracted once from the logit of each token that the output contains.
    pub presence_penalty: f32,
    /// In `[-2, 2]`. Subtracted for each occurrence in the output.
    pub frequency_penalty: f32,
    /// Above 0. Divides positive and multiplies negative logits of tokens in prompt or output.
    pub repetition_penalty: f32,
    /// In `[0, 2]`. Below [`GREEDY_TEMPERATURE`] the request is greedy.
    pub temperature: f32,
    /// In `(0, 1]`.
    pub top_p: f32,
    /// Number of most likely tokens to sample from. 0 turns the filter off.
    pub top_k: u32,
    /// In `[0, 1]`.
    pub min_p: f32,
    /// `None`: a seed is drawn and recorded at acceptance.
    pub seed: Option<u64>,
    /// Strings that end the output.
    pub stop: Vec<String>,
    /// Tokens that end the output.
    pub stop_token_ids: Vec<TokenId>,
    /// Word sequences, already as token ids, that must not appear.
    pub bad_words: Vec<Vec<TokenId>>,
    /// Whether the stop string stays in the text.
    pub include_stop_str_in_output: bool,
    /// Whether generation continues past the end-of-sequence token. Reset for a constrained output,
    /// which ends with its structure.
    pub ignore_eos: bool,
    /// At least 1. The input processor fills in the rest of the context when the client gave none.
    pub max_tokens: u32,
    /// No stop before this many output tokens. It does not force a constrained output past its end.
    /// Where its grammar allows only an end, the output ends.
    pub min_tokens: u32,
    /// Log-probabilities of the sampled token and of this many top tokens. `None`: none at all.
    pub logprobs: Option<u32>,
    /// Further tokens whose log-probability is reported at each position. Needs `logprobs`.
    pub logprob_token_ids: Vec<TokenId>,
    /// The same as `logprobs`, for each prompt token. Such a request does not read the prefix
    /// cache.
    pub prompt_logprobs: Option<u32>,
    /// Whether special tokens are left out of the text.
    pub skip_special_tokens: bool,
    /// Whether special tokens in the text have spaces between them.
    pub spaces_between_special_tokens: bool,
    /// Numbers added to the logits of these tokens, clamped to ±100.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Only these tokens may be sampled.
    pub allowed_token_ids: Option<Vec<TokenId>>,
    /// Rule that ends an output that repeats itself.
    pub repetition_detection: Option<RepetitionDetection>,
    /// Number of tokens between two events of a stream.
    pub stream_interval: u32,
    /// Structure of the output, after its thoughts.
    pub structured_output: Option<Arc<StructuredOutput>>,
    /// Markers of the thoughts, if the model has them.
    pub thinking: Option<Arc<Thinking>>,
    /// Token rules that restrict or bias the output's tokens. The engine checks their names and
    /// arguments before it accepts the request.
    pub token_rules: Vec<TokenRuleCall>,
}

/// A token rule that a request asks for. Rule, argument, prompt and committed tokens determine what
/// the rule says, so a replayed step gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRuleCall {
    /// The name that the rule is registered by.
    pub name: String,
    /// Its argument, as the text of a JSON value.
    pub argument: String,
}

impl SamplingParams {
    /// Returns the bytes that a copy allocates for its lists.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let texts: usize = self.stop.iter().map(|text| size_of::<String>() + text.len()).sum();
        let words = self.bad_words.iter();
        let words: usize = words.map(|word| size_of_val(word) + size_of_val(&word[..])).sum();
        let allowed = self.allowed_token_ids.as_deref().map_or(0, size_of_val);
        let rules = self.token_rules.iter();
        let rules: usize =
            rules.map(|rule| size_of_val(rule) + rule.name.len() + rule.argument.len()).sum();
        let lists = size_of_val(&self.stop_token_ids[..])
            + size_of_val(&self.logprob_token_ids[..])
            + size_of_val(&self.logit_bias[..]);
        texts + words + allowed + rules + lists
    }
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            n: 1,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            seed: None,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            bad_words: Vec::new(),
            include_stop_str_in_output: false,
            ignore_eos: false,
            max_tokens: 16,
            min_tokens: 0,
            logprobs: None,
            logprob_token_ids: Vec::new(),
            prompt_logprobs: None,
            skip_special_tokens: true,
            spaces_between_special_tokens: true,
            logit_bias: Vec::new(),
            allowed_token_ids: None,
            repetition_detection: None,
            stream_interval: 1,
            structured_output: None,
            thinking: None,
            token_rules: Vec::new(),
        }
    }
}

/// The limits of the model and the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingLimits {
    /// Number of tokens that an output may have. Token ids must be below this.
    pub vocab_size: u32,
    /// Maximum number of log-probabilities at a position.
    pub max_logprobs: u32,
}

impl SamplingLimits {
    fn known(
        &self,
        field: &str,
        mut tokens: impl Iterator<Item = TokenId>,
    ) -> Result<(), RequestError> {
        match tokens.find(|&token| token >= self.vocab_size) {
            None => Ok(()),
            Some(token) => {
                let wanted = format!("token ids below the vocabulary's {}", self.vocab_size);
                Err(RequestError::invalid(field, token, wanted))
            }
        }
    }
}

impl SamplingParams {
    /// A number of log-probabilities: that of the vocabulary's tokens.
    pub const ALL_LOGPROBS: u32 = u32::MAX;

    /// Replaces [`Self::ALL_LOGPROBS`] by the number of tokens.
    pub fn count_logprobs(&mut self, vocab_size: u32) {
        for count in [&mut self.logprobs, &mut self.prompt_logprobs] {
            if *count == Some(Self::ALL_LOGPROBS) {
                *count = Some(vocab_size);
            }
        }
    }

    /// Reports named tokens in place of the likeliest ones, as vLLM's API does.
    pub fn prefer_named_logprobs(&mut self) {
        if !self.logprob_token_ids.is_empty() {
            self.logprobs = self.logprobs.map(|_| 0);
        }
    }

    /// Returns whether the most likely token is always taken.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_TEMPERATURE
    }

    /// Brings the parameters into the form that the sampler uses. Tiny temperatures are raised, and
    /// greedy requests lose the filters that cannot change them. Biases are clamped, and
    /// constrained outputs end where their structure does.
    pub fn normalize(&mut self) {
        self.ignore_eos &= self.structured_output.is_none();
        if self.is_greedy() {
            self.temperature = 0.0;
            self.top_p = 1.0;
            self.top_k = 0;
            self.min_p = 0.0;
        } else if self.temperature < MIN_TEMPERATURE {
            self.temperature = MIN_TEMPERATURE;
        }
        for (_, bias) in &mut self.logit_bias {
            *bias = bias.clamp(-100.0, 100.0);
        }
    }

    /// Rejects values out of range.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] names the field, the value and what is accepted.
    pub fn validate(&self, limits: &SamplingLimits) -> Result<(), RequestError> {
        self.validate_ranges()?;
        self.validate_counts(limits)?;
        self.structured_output.as_ref().map_or(Ok(()), |output| output.validate())?;
        self.validate_tokens(limits)
    }

    fn validate_ranges(&self) -> Result<(), RequestError> {
        let within = |name, value: f32, low: f32, high: f32| {
            if value >= low && value <= high {
                return Ok(());
            }
            Err(RequestError::invalid(name, value, format!("a number in [{low}, {high}]")))
        };
        within("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        within("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        within("temperature", self.temperature, 0.0, 2.0)?;
        within("min_p", self.min_p, 0.0, 1.0)?;
        if !(self.top_p > 0.0 && self.top_p <= 1.0) {
            return Err(RequestError::invalid("top_p", self.top_p, "a number in (0, 1]"));
        }
        if !(self.repetition_penalty > 0.0 && self.repetition_penalty.is_finite()) {
            let value = self.repetition_penalty;
            return Err(RequestError::invalid("repetition_penalty", value, "a number above 0"));
        }
        Ok(())
    }

    fn validate_counts(&self, limits: &SamplingLimits) -> Result<(), RequestError> {
        if self.n == 0 {
            return Err(RequestError::invalid("n", 0, "at least 1"));
        }
        if self.n > 1 && self.is_greedy() {
            return Err(RequestError::invalid("n", self.n, "1 when sampling is greedy"));
        }
        if self.max_tokens == 0 {
            return Err(RequestError::invalid("max_tokens", 0, "at least 1"));
        }
        if self.min_tokens > self.max_tokens {
            let most = format!("at most max_tokens ({})", self.max_tokens);
            return Err(RequestError::invalid("min_tokens", self.min_tokens, most));
        }
        let counts = [("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)];
        for (name, count) in counts {
            if let Some(count) = count.filter(|&count| count > limits.max_logprobs) {
                let most = format!("at most {}", limits.max_logprobs);
                return Err(RequestError::invalid(name, count, most));
            }
        }
        let named = self.logprob_token_ids.len();
        if named > MAX_LOGPROB_TOKEN_IDS {
            let most = format!("at most {MAX_LOGPROB_TOKEN_IDS} token ids");
            return Err(RequestError::invalid("logprob_token_ids", named, most));
        }
        if named > 0 && self.logprobs.is_none() {
            let accepted = "empty where no logprobs are asked for";
            return Err(RequestError::invalid("logprob_token_ids", named, accepted));
        }
        if let Some(repetition) = &self.repetition_detection {
            if repetition.min_count < 2 {
                let count = repetition.min_count;
                return Err(RequestError::invalid("repetition_detection.min_count", count, "≥ 2"));
            }
            let (least, most) = (repetition.min_pattern_size, repetition.max_pattern_size);
            if least == 0 || least > most {
                let wanted = format!("in 1..={most} (max_pattern_size)");
                let name = "repetition_detection.min_pattern_size";
                return Err(RequestError::invalid(name, least, wanted));
            }
        }
        Ok(())
    }

    fn validate_tokens(&self, limits: &SamplingLimits) -> Result<(), RequestError> {
        if self.stop.iter().any(String::is_empty) {
            return Err(RequestError::invalid("stop", "\"\"", "non-empty strings"));
        }
        if self.allowed_token_ids.as_ref().is_some_and(Vec::is_empty) {
            return Err(RequestError::invalid("allowed_token_ids", "[]", "at least one token id"));
        }
        let biased = self.logit_bias.iter().map(|&(token, _)| token);
        limits.known("logit_bias", biased)?;
        limits.known("allowed_token_ids", self.allowed_token_ids.iter().flatten().copied())?;
        limits.known("logprob_token_ids", self.logprob_token_ids.iter().copied())?;
        limits.known("stop_token_ids", self.stop_token_ids.iter().copied())?;
        limits.known("bad_words", self.bad_words.iter().flatten().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::request::structured_output::OutputFormat;

    const LIMITS: SamplingLimits = SamplingLimits { vocab_size: 100, max_logprobs: 20 };

    fn check(change: impl FnOnce(&mut SamplingParams)) -> Result<(), String> {
        let mut params = SamplingParams::default();
        change(&mut params);
        params.validate(&LIMITS).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(check(|_| ()), Ok(()));
    }

    #[test]
    fn all_log_probabilities_are_those_of_the_vocabulary() {
        let all = Some(SamplingParams::ALL_LOGPROBS);
        let default = SamplingParams::default();
        let mut params = SamplingParams { logprobs: all, prompt_logprobs: all, ..default };
        params.count_logprobs(100);
        assert_eq!((params.logprobs, params.prompt_logprobs), (Some(100), Some(100)));
        let refused = params.validate(&LIMITS).map_err(|error| error.to_string()).unwrap_err();
        assert!(refused.contains("100"), "{refused}");
        assert!(params.validate(&SamplingLimits { max_logprobs: 100, ..LIMITS }).is_ok());
        let mut few = SamplingParams { logprobs: Some(3), ..SamplingParams::default() };
        few.count_logprobs(100);
        assert_eq!((few.logprobs, few.prompt_logprobs), (Some(3), None));
    }

    #[test]
    fn named_tokens_are_reported_in_place_of_the_likeliest() {
        let preferred = |logprobs, logprob_token_ids: Vec<u32>| {
            let default = SamplingParams::default();
            let mut params = SamplingParams { logprobs, logprob_token_ids, ..default };
            params.prefer_named_logprobs();
            params.logprobs
        };
        assert_eq!(preferred(Some(3), vec![1]), Some(0));
        assert_eq!(preferred(Some(3), Vec::new()), Some(3));
        assert_eq!(preferred(None, vec![1]), None);
    }

    #[test]
    fn each_range_is_held() {
        assert!(check(|p| p.temperature = -1.0).is_err());
        assert!(check(|p| p.temperature = f32::NAN).is_err());
        assert!(check(|p| p.temperature = 2.0).is_ok());
        assert!(check(|p| p.temperature = 2.1).is_err());
        assert!(check(|p| p.top_p = 0.0).is_err());
        assert!(check(|p| p.top_p = 1.5).is_err());
        assert!(check(|p| p.min_p = 2.0).is_err());
        assert!(check(|p| p.presence_penalty = 3.0).is_err());
        assert!(check(|p| p.frequency_penalty = -3.0).is_err());
        assert!(check(|p| p.repetition_penalty = 0.0).is_err());
        assert!(check(|p| p.n = 0).is_err());
        assert!(check(|p| p.max_tokens = 0).is_err());
        assert!(check(|p| p.min_tokens = 17).is_err());
        assert!(check(|p| p.logprobs = Some(21)).is_err());
        assert!(check(|p| p.prompt_logprobs = Some(20)).is_ok());
        assert!(check(|p| p.logprob_token_ids = vec![1]).is_err());
        let named = |ids: Vec<u32>| check(|p| (p.logprobs, p.logprob_token_ids) = (Some(0), ids));
        assert!(named(vec![1; 128]).is_ok());
        assert!(named(vec![1; 129]).is_err());
        assert!(named(vec![100]).is_err());
        assert!(check(|p| p.stop = vec![String::new()]).is_err());
        assert!(check(|p| p.allowed_token_ids = Some(vec![])).is_err());
        assert!(check(|p| p.allowed_token_ids = Some(vec![100])).is_err());
        assert!(check(|p| p.logit_bias = vec![(100, 1.0)]).is_err());
        let greedy_pair = |p: &mut SamplingParams| {
            p.temperature = 0.0;
            p.n = 2;
        };
        assert!(check(greedy_pair).is_err());
    }

    #[test]
    fn a_constrained_output_ends_with_its_structure() {
        let constrained = Some(Arc::new(OutputFormat::JsonObject.into()));
        let mut params = SamplingParams {
            ignore_eos: true,
            structured_output: constrained,
            ..Default::default()
        };
        params.normalize();
        assert!(!params.ignore_eos);
        let mut free = SamplingParams { ignore_eos: true, ..Default::default() };
        free.normalize();
        assert!(free.ignore_eos);
    }

    #[test]
    fn formats_that_allow_nothing_are_refused() {
        let with = |format: OutputFormat| {
            check(|p| p.structured_output = Some(Arc::new(format.clone().into())))
        };
        assert!(with(OutputFormat::Choice(vec![])).is_err());
        assert!(with(OutputFormat::Grammar(" \n".to_owned())).is_err());
        assert_eq!(with(OutputFormat::Choice(vec!["a".to_owned()])), Ok(()));
    }

    #[test]
    fn an_error_names_field_value_and_what_is_accepted() {
        let message = check(|p| p.top_p = 1.5).unwrap_err();
        assert_eq!(message, "top_p must be a number in (0, 1], got 1.5");
    }

    #[test]
    fn greedy_drops_the_filters_and_tiny_temperatures_are_raised() {
        let mut params = SamplingParams { temperature: 1e-6, top_k: 3, ..Default::default() };
        params.normalize();
        assert_eq!((params.temperature, params.top_k), (0.0, 0));
        let mut params = SamplingParams { temperature: 1e-3, ..Default::default() };
        params.normalize();
        assert_eq!(params.temperature, MIN_TEMPERATURE);
    }
}
