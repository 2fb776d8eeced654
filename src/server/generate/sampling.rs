//! The request fields that most generating routes share: how to sample, when to stop.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::token_names::TokenNames;
use crate::api::{
    Prompt, RawRequest, RepetitionDetection, SamplingParams, TokenRuleCall, TruncationSide,
};
use crate::server::{
    http::{
        error::ApiError,
        fields::{Float, Int, Strings, Token, flag},
        limits::{at_most, cache_salt, choices},
    },
    state::AppState,
};
use crate::{config::LimitSettings, engine::DefaultSampling};

/// Most tokens, or bytes, of a list, summed over all choices.
const MAX_LISTED: usize = 1 << 24;

/// The sampling fields. Absent and `null` always mean the same.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct SamplingFields {
    pub(in crate::server) n: Option<Int>,
    /// Only `n` itself: all choices are returned.
    best_of: Option<Int>,
    temperature: Option<Float>,
    top_p: Option<Float>,
    top_k: Option<Int>,
    min_p: Option<Float>,
    presence_penalty: Option<Float>,
    frequency_penalty: Option<Float>,
    repetition_penalty: Option<Float>,
    seed: Option<Int>,
    stop: Option<Strings>,
    stop_token_ids: Option<Vec<Token>>,
    #[serde(deserialize_with = "flag")]
    include_stop_str_in_output: Option<bool>,
    #[serde(deserialize_with = "flag")]
    ignore_eos: Option<bool>,
    min_tokens: Option<Int>,
    #[serde(deserialize_with = "flag")]
    skip_special_tokens: Option<bool>,
    #[serde(deserialize_with = "flag")]
    spaces_between_special_tokens: Option<bool>,
    #[schema(value_type = Option<HashMap<String, Float>>)]
    logit_bias: Option<IndexMap<String, Float>>,
    allowed_token_ids: Option<Vec<Token>>,
    bad_words: Option<Vec<String>>,
    prompt_logprobs: Option<Int>,
    logprob_token_ids: Option<Vec<Token>>,
    repetition_detection: Option<RepetitionFields>,
    #[serde(deserialize_with = "flag")]
    use_beam_search: Option<bool>,
    length_penalty: Option<Float>,
    stream_interval: Option<Int>,
    truncate_prompt_tokens: Option<Int>,
    truncation_side: Option<Side>,
    priority: Option<Int>,
    cache_salt: Option<String>,
    #[serde(deserialize_with = "flag")]
    stream: Option<bool>,
    #[serde(deserialize_with = "flag")]
    pub(in crate::server) return_token_ids: Option<bool>,
    #[serde(deserialize_with = "flag")]
    return_tokens_as_token_ids: Option<bool>,
    pub(in crate::server) request_id: Option<String>,
    /// Arguments of token rules, by the rules' names.
    #[schema(value_type = Option<HashMap<String, Value>>)]
    vllm_xargs: Option<IndexMap<String, Value>>,
}

#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
struct RepetitionFields {
    max_pattern_size: Option<Int>,
    min_pattern_size: Option<Int>,
    min_count: Option<Int>,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Side {
    Left,
    Right,
}

impl SamplingFields {
    /// Returns the parameters: the client's values, then those of the model's
    /// `generation_config.json`, then OpenAI's defaults. The engine checks ranges. Values that its
    /// types cannot hold are rejected here. Each route sets `logprobs` itself.
    pub(in crate::server) fn params(
        &self,
        defaults: &DefaultSampling,
    ) -> Result<SamplingParams, ApiError> {
        let ours = SamplingParams::default();
        let float = |given: Option<Float>, default| given.map_or(default, |Float(value)| value);
        let n = self.num_choices()?;
        if let Some(Int(best_of)) = self.best_of.filter(|&best_of| best_of != Int(n.into())) {
            let message = format!("best_of must be n, here {n}, got {best_of}");
            return Err(ApiError::invalid("best_of", message));
        }
        Ok(SamplingParams {
            n,
            presence_penalty: float(
                self.presence_penalty,
                defaults.presence_penalty.unwrap_or(ours.presence_penalty),
            ),
            frequency_penalty: float(
                self.frequency_penalty,
                defaults.frequency_penalty.unwrap_or(ours.frequency_penalty),
            ),
            repetition_penalty: float(
                self.repetition_penalty,
                defaults.repetition_penalty.unwrap_or(ours.repetition_penalty),
            ),
            temperature: float(self.temperature, defaults.temperature.unwrap_or(ours.temperature)),
            top_p: float(self.top_p, defaults.top_p.unwrap_or(ours.top_p)),
            top_k: match self.top_k {
                Some(Int(-1)) => 0,
                Some(k) => k.cast("top_k", "0 or -1 (off), or at least 1")?,
                None => defaults.top_k.unwrap_or(ours.top_k),
            },
            min_p: float(self.min_p, defaults.min_p.unwrap_or(ours.min_p)),
            // Any 64-bit integer is a seed. -1 asks for a random one.
            seed: self.seed.filter(|&seed| seed != Int(-1)).map(|Int(seed)| seed as u64),
            stop: self.stop.clone().map(|Strings(stop)| stop).unwrap_or_default(),
            stop_token_ids: ids(self.stop_token_ids.as_deref()).unwrap_or_default(),
            include_stop_str_in_output: self.include_stop_str_in_output.unwrap_or(false),
            ignore_eos: self.ignore_eos.unwrap_or(false),
            min_tokens: count("min_tokens", self.min_tokens)?.unwrap_or(0),
            prompt_logprobs: logprobs("prompt_logprobs", self.prompt_logprobs)?,
            logprob_token_ids: ids(self.logprob_token_ids.as_deref()).unwrap_or_default(),
            skip_special_tokens: self.skip_special_tokens.unwrap_or(true),
            spaces_between_special_tokens: self.spaces_between_special_tokens.unwrap_or(true),
            logit_bias: self.biases()?,
            allowed_token_ids: ids(self.allowed_token_ids.as_deref()),
            repetition_detection: self.repetition()?,
            stream_interval: match self.stream_interval {
                Some(interval) => interval.cast("stream_interval", "at least 1")?,
                None => ours.stream_interval,
            },
            token_rules: self.token_rules(),
            ..ours
        })
    }

    /// Returns the parameters for an answer that consists of choices. A stream of choices has no
    /// `prompt_logprobs`.
    pub(in crate::server) fn params_of_choices(
        &self,
        defaults: &DefaultSampling,
    ) -> Result<SamplingParams, ApiError> {
        let mut params = self.params(defaults)?;
        if self.is_streamed() && params.prompt_logprobs.take().is_some_and(|count| count > 0) {
            let message = "`prompt_logprobs` are not available when `stream=True`.";
            return Err(ApiError::invalid("prompt_logprobs", message));
        }
        Ok(params)
    }

    /// Returns whether the answer is a stream.
    pub(in crate::server) fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Returns the names of tokens that the client, or else the operator, wants.
    pub(in crate::server) fn token_names(&self, state: &AppState) -> TokenNames {
        let as_ids = self.return_tokens_as_token_ids;
        let as_ids = as_ids.unwrap_or(state.config.return_tokens_as_token_ids);
        TokenNames::new(state.engine.codec().clone(), as_ids)
    }

    /// Returns the request for one prompt.
    pub(in crate::server) fn raw_request(
        &self,
        prompt: Prompt,
        params: SamplingParams,
        max_tokens: Option<u32>,
    ) -> Result<RawRequest, ApiError> {
        let truncate = self.truncate_prompt_tokens.map(|Int(tokens)| tokens);
        if let Some(tokens) = truncate.filter(|&tokens| tokens < -1) {
            let message = format!("truncate_prompt_tokens must be at least -1, got {tokens}");
            return Err(ApiError::invalid("truncate_prompt_tokens", message));
        }
        cache_salt(self.cache_salt.as_deref())?;
        Ok(RawRequest {
            params,
            max_tokens,
            bad_words: self.bad_words.clone().unwrap_or_default(),
            truncate_prompt_tokens: truncate,
            truncation_side: match self.truncation_side {
                Some(Side::Right) => TruncationSide::Right,
                Some(Side::Left) | None => TruncationSide::Left,
            },
            priority: self.priority.unwrap_or(Int(0)).cast("priority", "a 32-bit integer")?,
            cache_salt: self.cache_salt.clone(),
            ..RawRequest::new(prompt)
        })
    }

    /// Returns the length penalty if the request asks for a beam search.
    ///
    /// # Errors
    /// 400 for parameters that a search would ignore, because it follows the model's own
    /// log-probabilities.
    pub(in crate::server) fn beam_search(&self) -> Result<Option<f32>, ApiError> {
        if self.use_beam_search != Some(true) {
            return Ok(None);
        }
        if self.stream == Some(true) {
            let message = "Streaming is not currently supported with beam search";
            return Err(ApiError::invalid("stream", message));
        }
        let changes =
            |value: Option<Float>, neutral| value.is_some_and(|Float(value)| value != neutral);
        let ignored = [
            ("presence_penalty", changes(self.presence_penalty, 0.0)),
            ("frequency_penalty", changes(self.frequency_penalty, 0.0)),
            ("repetition_penalty", changes(self.repetition_penalty, 1.0)),
            ("stop", self.stop.as_ref().is_some_and(|Strings(stop)| !stop.is_empty())),
            ("stop_token_ids", self.stop_token_ids.as_ref().is_some_and(|ids| !ids.is_empty())),
            ("min_tokens", self.min_tokens.is_some_and(|tokens| tokens != Int(0))),
            ("logit_bias", self.logit_bias.as_ref().is_some_and(|biases| !biases.is_empty())),
            ("bad_words", self.bad_words.as_ref().is_some_and(|words| !words.is_empty())),
            ("repetition_detection", self.repetition_detection.is_some()),
            ("logprob_token_ids", self.logprob_token_ids.is_some()),
            ("vllm_xargs", self.vllm_xargs.as_ref().is_some_and(|rules| !rules.is_empty())),
        ];
        if let Some((field, _)) = ignored.iter().find(|(_, given)| *given) {
            let message = format!("`{field}` is not supported with beam search");
            return Err(ApiError::invalid(field, message));
        }
        Ok(Some(self.length_penalty.map_or(1.0, |Float(penalty)| penalty)))
    }

    /// Returns whether the prompt may be cut before the model sees it.
    pub(in crate::server) fn truncates(&self) -> bool {
        self.truncate_prompt_tokens.is_some()
    }

    /// Rejects more choices, stop strings or bad words than one request may have.
    pub(in crate::server) fn check_limits(
        &self,
        limits: &LimitSettings,
        prompts: usize,
    ) -> Result<(), ApiError> {
        choices(self.num_choices()? as usize, prompts, limits.max_n_sequences)?;
        let stop = self.stop.as_ref().map_or(0, |Strings(stop)| stop.len());
        at_most("stop", stop, limits.max_stop_strings)?;
        let bad_words = self.bad_words.as_ref().map_or(0, Vec::len);
        at_most("bad_words", bad_words, limits.max_num_bad_words)?;
        self.check_copies(prompts)
    }

    /// Checks the sum of the lists, because every choice of every prompt has copies of its own.
    fn check_copies(&self, prompts: usize) -> Result<(), ApiError> {
        let copies = prompts.max(1).saturating_mul(self.num_choices()? as usize);
        let bytes =
            |texts: Option<&Vec<String>>| texts.into_iter().flatten().map(String::len).sum();
        let lists = [
            ("allowed_token_ids", self.allowed_token_ids.as_ref().map_or(0, Vec::len)),
            ("stop_token_ids", self.stop_token_ids.as_ref().map_or(0, Vec::len)),
            ("logit_bias", self.logit_bias.as_ref().map_or(0, IndexMap::len)),
            ("stop", bytes(self.stop.as_ref().map(|Strings(stop)| stop))),
            ("bad_words", bytes(self.bad_words.as_ref())),
            ("vllm_xargs", self.token_rules().iter().map(|rule| rule.argument.len()).sum()),
        ];
        for (name, len) in lists {
            if len.saturating_mul(copies) > MAX_LISTED {
                let message = format!(
                    "{name} is too long for {copies} choices: it may hold {} in each",
                    MAX_LISTED / copies
                );
                return Err(ApiError::invalid(name, message));
            }
        }
        Ok(())
    }

    fn num_choices(&self) -> Result<u32, ApiError> {
        self.n.unwrap_or(Int(1)).cast("n", "at least 1")
    }

    fn biases(&self) -> Result<Vec<(u32, f32)>, ApiError> {
        let biases = self.logit_bias.iter().flatten();
        let parsed = biases.map(|(token, &Float(bias))| {
            let id = token.trim().parse().map_err(|_| {
                let message = format!("logit_bias must have token ids as keys, got {token:?}");
                ApiError::invalid("logit_bias", message)
            });
            id.map(|id| (id, bias))
        });
        parsed.collect()
    }

    fn token_rules(&self) -> Vec<TokenRuleCall> {
        let rules = self.vllm_xargs.iter().flatten();
        let call = |(name, argument): (&String, &Value)| TokenRuleCall {
            name: name.clone(),
            argument: argument.to_string(),
        };
        rules.map(call).collect()
    }

    fn repetition(&self) -> Result<Option<RepetitionDetection>, ApiError> {
        let Some(fields) = &self.repetition_detection else { return Ok(None) };
        let size = |name: &str, value: Option<Int>| {
            let field = format!("repetition_detection.{name}");
            value.unwrap_or(Int(0)).cast::<usize>(&field, "at least 0")
        };
        let found = RepetitionDetection {
            max_pattern_size: size("max_pattern_size", fields.max_pattern_size)?,
            min_pattern_size: size("min_pattern_size", fields.min_pattern_size)?.max(1),
            min_count: size("min_count", fields.min_count)?,
        };
        // As in vLLM, a largest size of 0 detects nothing.
        Ok(Some(found).filter(|found| found.max_pattern_size > 0 || found.min_pattern_size > 1))
    }
}

fn ids(tokens: Option<&[Token]>) -> Option<Vec<u32>> {
    tokens.map(|tokens| tokens.iter().map(|&Token(id)| id).collect())
}

fn count(field: &str, value: Option<Int>) -> Result<Option<u32>, ApiError> {
    value.map(|value| value.cast(field, "at least 0")).transpose()
}

/// Returns a number of log-probabilities. -1 asks for the whole vocabulary.
pub(in crate::server) fn logprobs(
    field: &str,
    value: Option<Int>,
) -> Result<Option<u32>, ApiError> {
    match value {
        Some(Int(-1)) => Ok(Some(SamplingParams::ALL_LOGPROBS)),
        Some(count) => count.cast(field, "at least 0, or -1 for all").map(Some),
        None => Ok(None),
    }
}

/// Returns the number of output tokens that a client asked for.
pub(in crate::server) fn output_tokens(
    field: &str,
    value: Option<Int>,
) -> Result<Option<u32>, ApiError> {
    let tokens: Option<u32> = value.map(|value| value.cast(field, "at least 1")).transpose()?;
    match tokens {
        Some(0) => Err(ApiError::invalid(field, format!("{field} must be at least 1, got 0"))),
        tokens => Ok(tokens),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::http::extract::parse_object;

    fn fields(body: Value) -> SamplingFields {
        parse_object(&body.to_string()).unwrap()
    }

    fn params(body: Value) -> Result<SamplingParams, ApiError> {
        fields(body).params(&DefaultSampling::default())
    }

    #[test]
    fn nothing_given_means_the_defaults() {
        assert_eq!(params(json!({})).unwrap(), SamplingParams::default());
        let nulls = json!({"n": null, "stop": null, "seed": null, "skip_special_tokens": null});
        assert_eq!(params(nulls).unwrap(), SamplingParams::default());
    }

    #[test]
    fn the_client_goes_before_the_model() {
        let defaults = DefaultSampling {
            temperature: Some(0.6),
            top_p: Some(0.9),
            top_k: Some(20),
            presence_penalty: Some(1.5),
            frequency_penalty: Some(0.5),
            ..Default::default()
        };
        let given = fields(json!({"temperature": 0, "top_k": -1, "frequency_penalty": 0}));
        let params = given.params(&defaults).unwrap();
        assert_eq!((params.temperature, params.top_p, params.top_k), (0.0, 0.9, 0));
        assert_eq!((params.presence_penalty, params.frequency_penalty), (1.5, 0.0));
    }

    #[test]
    fn values_arrive() {
        let body = json!({
            "n": 2, "seed": -1, "stop": "a", "stop_token_ids": [7], "logit_bias": {"5": -1.5},
            "allowed_token_ids": [], "prompt_logprobs": 2, "min_tokens": 3.0, "ignore_eos": true,
            "vllm_xargs": {"b": [1, "x"], "a": null},
        });
        let params = params(body).unwrap();
        assert_eq!((params.n, params.seed, params.min_tokens), (2, None, 3));
        assert_eq!((params.stop, params.stop_token_ids), (vec!["a".to_owned()], vec![7]));
        assert_eq!(params.logit_bias, [(5, -1.5)]);
        assert_eq!(params.allowed_token_ids, Some(vec![]));
        assert_eq!((params.prompt_logprobs, params.ignore_eos), (Some(2), true));
        let rule = |name: &str, argument: &str| TokenRuleCall {
            name: name.to_owned(),
            argument: argument.to_owned(),
        };
        assert_eq!(params.token_rules, [rule("b", "[1,\"x\"]"), rule("a", "null")]);
    }

    #[test]
    fn as_many_choices_as_are_returned_may_be_asked_for() {
        let n = |body: Value| params(body).map(|params| params.n).map_err(|error| error.message);
        assert_eq!(n(json!({"best_of": 1})), Ok(1));
        assert_eq!(n(json!({"n": 3, "best_of": 3})), Ok(3));
        let error = n(json!({"n": 2, "best_of": 3})).unwrap_err();
        assert_eq!(error, "best_of must be n, here 2, got 3");
    }

    #[test]
    fn a_beam_search_refuses_what_it_would_ignore() {
        let search = |mut body: Value| {
            body["use_beam_search"] = true.into();
            fields(body).beam_search().map_err(|error| error.param.unwrap())
        };
        assert_eq!(fields(json!({"length_penalty": 2})).beam_search(), Ok(None));
        assert_eq!(search(json!({"n": 2, "temperature": 0.5, "stop": []})), Ok(Some(1.0)));
        assert_eq!(search(json!({"length_penalty": 0, "repetition_penalty": 1})), Ok(Some(0.0)));
        assert_eq!(search(json!({"allowed_token_ids": [5]})), Ok(Some(1.0)));
        let ignored = [
            json!({"stream": true}),
            json!({"stop": "a"}),
            json!({"min_tokens": 1}),
            json!({"presence_penalty": 0.5}),
            json!({"vllm_xargs": {"a": 1}}),
        ];
        for body in ignored {
            let field = body.as_object().unwrap().keys().next().unwrap().clone();
            assert_eq!(search(body), Err(field));
        }
    }

    #[test]
    fn more_than_a_request_may_hold_is_refused_by_name() {
        let refused = |body: Value, prompts| {
            let checked = fields(body).check_limits(&LimitSettings::default(), prompts);
            checked.err().map(|error| error.param.unwrap())
        };
        assert_eq!(refused(json!({"n": 1024}), 1), None);
        assert_eq!(refused(json!({"n": 1025}), 1).as_deref(), Some("n"));
        assert_eq!(refused(json!({"n": 16}), 64 + 1).as_deref(), Some("n"));
        assert_eq!(refused(json!({"stop": ["a", "b", "c", "d"]}), 1), None);
        assert_eq!(refused(json!({"stop": ["a", "b", "c", "d", "e"]}), 1).as_deref(), Some("stop"));
        let words = vec!["a"; 129];
        assert_eq!(refused(json!({"bad_words": words}), 1).as_deref(), Some("bad_words"));
        // One list for each choice.
        let tokens = vec![7; 1 << 14];
        assert_eq!(refused(json!({"allowed_token_ids": tokens}), 1 << 10), None);
        let refused_for = refused(json!({"allowed_token_ids": vec![7; 1 << 15]}), 1 << 10);
        assert_eq!(refused_for.as_deref(), Some("allowed_token_ids"));
        let stop = "x".repeat(1 << 15);
        assert_eq!(refused(json!({"stop": [stop]}), 1 << 10).as_deref(), Some("stop"));
    }

    #[test]
    fn what_the_types_cannot_hold_is_refused_by_name() {
        let wrong = [
            json!({"n": -1}),
            json!({"best_of": 2}),
            json!({"top_k": -5}),
            json!({"min_tokens": -1}),
            json!({"prompt_logprobs": -2}),
            json!({"logit_bias": {"x": 1}}),
            json!({"stream_interval": -1}),
        ];
        for body in &wrong {
            let field = body.as_object().unwrap().keys().next().unwrap();
            let error = params(body.clone()).unwrap_err();
            assert_eq!(error.param.as_ref(), Some(field), "{body}");
        }
        let raw = |body: Value| {
            let prompt = Prompt::Text("x".to_owned());
            fields(body).raw_request(prompt, SamplingParams::default(), None)
        };
        assert!(raw(json!({"truncate_prompt_tokens": -2})).is_err());
        assert!(raw(json!({"cache_salt": "a/b"})).is_err());
        assert!(raw(json!({"cache_salt": "é".repeat(128)})).is_ok());
        assert!(raw(json!({"cache_salt": "x".repeat(129)})).is_err());
        assert!(raw(json!({"cache_salt": ""})).is_err());
        assert!(raw(json!({"cache_salt": "a\0b"})).is_err());
        assert_eq!(raw(json!({"priority": -3})).unwrap().priority, -3);
    }
}
