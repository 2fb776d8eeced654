//! The fields of a request that only this API has.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{
    response::{Asked, CacheOptions, CacheRetention, ReasoningAsked, TextAsked},
    text_format::TextFields,
};
use crate::api::{SamplingParams, StructuredOutput};
use crate::server::{
    generate::sampling::logprobs,
    http::{
        error::ApiError,
        fields::{Int, flag},
    },
};

/// The value that `include` may ask for.
const LOGPROBS: &str = "message.output_text.logprobs";
/// Values that add nothing: answers have these fields anyway, or only hosted tools and images
/// would.
const NOTHING_TO_INCLUDE: [&str; 7] = [
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];

const METADATA_PAIRS_MAX: usize = 16;
/// Most characters.
const METADATA_KEY_MAX: usize = 64;
const METADATA_VALUE_MAX: usize = 512;

/// The fields. Absent and `null` always mean the same.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct ResponsesFields {
    pub(super) model: Option<String>,
    pub(super) input: Option<Value>,
    pub(super) instructions: Option<String>,
    pub(super) previous_response_id: Option<String>,
    #[serde(deserialize_with = "flag")]
    pub(super) store: Option<bool>,
    #[serde(deserialize_with = "flag")]
    pub(super) background: Option<bool>,
    pub(super) tools: Option<Vec<Value>>,
    pub(super) tool_choice: Option<Value>,
    #[serde(deserialize_with = "flag")]
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) max_output_tokens: Option<Int>,
    max_tool_calls: Option<Int>,
    reasoning: Option<ReasoningFields>,
    text: Option<TextFields>,
    include: Option<Vec<String>>,
    top_logprobs: Option<Int>,
    truncation: Option<Truncation>,
    metadata: Option<Map<String, Value>>,
    /// Ignored, because there is one tier.
    #[serde(rename = "service_tier")]
    _service_tier: Option<String>,
    user: Option<String>,
    prompt_cache_key: Option<String>,
    prompt_cache_options: Option<CacheOptions>,
    prompt_cache_retention: Option<CacheRetention>,
    safety_identifier: Option<String>,
    pub(super) chat_template_kwargs: Option<Map<String, Value>>,
    pub(super) mm_processor_kwargs: Option<Map<String, Value>>,
    pub(super) media_io_kwargs: Option<Map<String, Value>>,
    #[serde(deserialize_with = "flag")]
    pub(super) include_reasoning: Option<bool>,
    thinking_token_budget: Option<Int>,
}

#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
struct ReasoningFields {
    effort: Option<String>,
    summary: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Truncation {
    Auto,
    Disabled,
}

impl ResponsesFields {
    /// Returns the fields that the response repeats. The sampling parameters come from elsewhere.
    pub(super) fn asked(&self, model: String) -> Result<Asked, ApiError> {
        let has_tools = self.tools.as_ref().is_some_and(|tools| !tools.is_empty());
        let default_choice = || Value::from(if has_tools { "auto" } else { "none" });
        let tool_choice = self.tool_choice.clone().filter(|choice| !choice.is_null());
        Ok(Asked {
            model,
            instructions: self.instructions.clone(),
            previous_response_id: self.previous_response_id.clone(),
            background: self.background.unwrap_or(false),
            max_tool_calls: self.max_tool_calls()?,
            tools: self.tools.clone().unwrap_or_default(),
            tool_choice: tool_choice.unwrap_or_else(default_choice),
            parallel_tool_calls: self.parallel_tool_calls.unwrap_or(true),
            reasoning: self.reasoning()?,
            text: self.text(),
            top_logprobs: logprobs("top_logprobs", self.top_logprobs)?.unwrap_or(0),
            truncation: if self.truncates() { "auto" } else { "disabled" }.into(),
            service_tier: "default".into(),
            metadata: self.metadata()?,
            user: self.user.clone(),
            prompt_cache_key: self.prompt_cache_key.clone(),
            prompt_cache_options: self.prompt_cache_options.clone(),
            prompt_cache_retention: self.prompt_cache_retention,
            safety_identifier: self.safety_identifier.clone(),
            ..Asked::default()
        })
    }

    /// Returns whether a prompt that is too long loses its beginning.
    pub(super) fn truncates(&self) -> bool {
        self.truncation == Some(Truncation::Auto)
    }

    /// Returns how much to think.
    pub(super) fn effort(&self) -> Option<&str> {
        self.reasoning.as_ref()?.effort.as_deref()
    }

    /// Returns how long the answer shall be.
    pub(super) fn verbosity(&self) -> Option<&'static str> {
        Some(self.text.as_ref()?.verbosity?.as_str())
    }

    /// Returns the structure of the answer.
    pub(super) fn format(&self) -> Result<Option<StructuredOutput>, ApiError> {
        self.text.as_ref().map_or(Ok(None), TextFields::constraint)
    }

    /// Returns the most tokens of thought. -1 means no limit.
    pub(super) fn thinking_token_budget(&self) -> Result<Option<u32>, ApiError> {
        let budget = self.thinking_token_budget.filter(|&budget| budget != Int(-1));
        let wanted = "-1 (no bound), or at least 0";
        budget.map(|budget| budget.cast("thinking_token_budget", wanted)).transpose()
    }

    /// Returns how many likely tokens to report with each token. `None`: not even the token's own
    /// log-probability.
    pub(super) fn logprobs(&self) -> Result<Option<u32>, ApiError> {
        let top = logprobs("top_logprobs", self.top_logprobs)?;
        let include = self.include.as_deref().unwrap_or_default();
        let is_unknown =
            |name: &&String| *name != LOGPROBS && !NOTHING_TO_INCLUDE.contains(&name.as_str());
        if let Some(name) = include.iter().find(is_unknown) {
            let message = format!(
                "include: '{name}' is not supported by this server; of what it can include there \
                 is '{LOGPROBS}'"
            );
            return Err(ApiError::invalid("include", message));
        }
        // Without it `top_logprobs` has no effect, as in vLLM.
        let is_included = include.iter().any(|name| name == LOGPROBS);
        Ok(is_included.then(|| top.unwrap_or(0)))
    }

    /// Rejects parameters that a response cannot have.
    pub(super) fn check_params(params: &SamplingParams) -> Result<(), ApiError> {
        if params.n != 1 {
            let message = format!("n must be 1: a response is one, got {}", params.n);
            return Err(ApiError::invalid("n", message));
        }
        match params.prompt_logprobs {
            Some(_) => Err(ApiError::unsupported("prompt_logprobs")),
            None => Ok(()),
        }
    }

    /// Returns the limit on calls of hosted tools, which do not exist here.
    fn max_tool_calls(&self) -> Result<Option<u32>, ApiError> {
        self.max_tool_calls.map(|most| most.cast("max_tool_calls", "at least 0")).transpose()
    }

    fn reasoning(&self) -> Result<ReasoningAsked, ApiError> {
        let Some(ReasoningFields { effort, summary }) = &self.reasoning else {
            return Ok(ReasoningAsked::default());
        };
        match summary.as_deref() {
            // None of them has an effect, as in vLLM: thoughts are shown as they are.
            None | Some("auto" | "concise" | "detailed") => {}
            Some(_) => {
                let wanted = "Input should be 'auto', 'concise' or 'detailed'";
                return Err(ApiError::validation("body.reasoning.summary", wanted));
            }
        }
        Ok(ReasoningAsked { effort: effort.clone(), summary: summary.clone() })
    }

    fn text(&self) -> TextAsked {
        let format = self.text.as_ref().and_then(|text| text.format.clone());
        TextAsked {
            format: format.unwrap_or_else(|| json!({"type": "text"})),
            verbosity: self.verbosity().unwrap_or("medium").to_owned().into(),
        }
    }

    fn metadata(&self) -> Result<Map<String, Value>, ApiError> {
        let refuse = |message: String| Err(ApiError::invalid("metadata", message));
        let metadata = self.metadata.clone().unwrap_or_default();
        if metadata.len() > METADATA_PAIRS_MAX {
            return refuse(format!("metadata may hold at most {METADATA_PAIRS_MAX} pairs"));
        }
        for (key, value) in &metadata {
            let fits = |text: &str, most: usize| text.chars().count() <= most;
            if !fits(key, METADATA_KEY_MAX) {
                return refuse(format!(
                    "a key of metadata may have at most {METADATA_KEY_MAX} characters"
                ));
            }
            if !value.as_str().is_some_and(|value| fits(value, METADATA_VALUE_MAX)) {
                return refuse(format!(
                    "metadata: '{key}' must be a string of at most {METADATA_VALUE_MAX} characters"
                ));
            }
        }
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::http::extract::parse_object;

    fn fields(body: &Value) -> ResponsesFields {
        parse_object(&body.to_string()).unwrap()
    }

    fn refused(body: Value) -> Option<String> {
        let fields = fields(&body);
        let outcome = fields.asked(String::new()).and(fields.logprobs());
        outcome.err().map(|error| error.param.unwrap())
    }

    #[test]
    fn an_absent_field_has_the_documented_value() {
        let asked = fields(&json!({})).asked("tiny".to_owned()).unwrap();
        let asked = serde_json::to_value(asked).unwrap();
        assert_eq!(asked["tool_choice"], "none");
        assert_eq!(asked["text"], json!({"format": {"type": "text"}, "verbosity": "medium"}));
        assert_eq!((&asked["truncation"], &asked["metadata"]), (&json!("disabled"), &json!({})));
        let tool = json!({"type": "function", "name": "now"});
        let asked = fields(&json!({"tools": [tool]})).asked(String::new()).unwrap();
        assert_eq!(asked.tool_choice, "auto");
    }

    #[test]
    fn what_a_client_says_of_its_cache_is_repeated() {
        // As `ResponsesResponse.from_request` of vLLM 0.33 has it.
        let asked = |body: Value| {
            let asked = fields(&body).asked("tiny".to_owned()).unwrap();
            serde_json::to_value(asked).unwrap()
        };
        let nothing = asked(json!({}));
        let cache = ["prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"];
        assert!(cache.iter().all(|field| nothing[field].is_null()), "{nothing}");
        let told = asked(json!({
            "prompt_cache_key": "k",
            "prompt_cache_options": {"mode": "explicit", "prewarm": true},
            "prompt_cache_retention": "in-memory",
        }));
        let options = json!({"mode": "explicit", "ttl": "30m", "comparison_response_id": null});
        assert_eq!(
            (&told["prompt_cache_key"], &told["prompt_cache_options"]),
            (&json!("k"), &options)
        );
        assert_eq!(told["prompt_cache_retention"], "in_memory");
        let long = asked(json!({"prompt_cache_retention": "24h"}));
        assert_eq!(long["prompt_cache_retention"], "24h");
        for body in
            [r#"{"prompt_cache_retention": "7d"}"#, r#"{"prompt_cache_options": {"ttl": "1h"}}"#]
        {
            assert!(parse_object::<ResponsesFields>(body).is_err(), "{body}");
        }
    }

    #[test]
    fn logprobs_come_with_include() {
        let logprobs = |body| fields(&body).logprobs();
        let include = [LOGPROBS];
        assert_eq!(logprobs(json!({})), Ok(None));
        assert_eq!(logprobs(json!({"include": ["reasoning.encrypted_content"]})), Ok(None));
        assert_eq!(logprobs(json!({"include": include})), Ok(Some(0)));
        assert_eq!(logprobs(json!({"include": include, "top_logprobs": 3})), Ok(Some(3)));
        assert_eq!(logprobs(json!({"top_logprobs": 3})), Ok(None), "as in vLLM 0.33");
        assert_eq!(refused(json!({"top_logprobs": -3})).as_deref(), Some("top_logprobs"));
        assert_eq!(refused(json!({"include": ["weather"]})).as_deref(), Some("include"));
    }

    #[test]
    fn an_unsupported_field_is_rejected_by_name() {
        let pairs: Map<String, Value> = (0..17).map(|i| (i.to_string(), json!("x"))).collect();
        let wrong = [
            (json!({"max_tool_calls": -1}), "max_tool_calls"),
            (json!({"reasoning": {"summary": "short"}}), "body.reasoning.summary"),
            (json!({ "metadata": pairs }), "metadata"),
            (json!({"metadata": {"k".repeat(65): "x"}}), "metadata"),
            (json!({"metadata": {"k": "x".repeat(513)}}), "metadata"),
            (json!({"metadata": {"k": 1}}), "metadata"),
        ];
        for (body, param) in wrong {
            assert_eq!(refused(body.clone()).as_deref(), Some(param), "{body}");
        }
        for summary in ["auto", "concise", "detailed"] {
            assert_eq!(refused(json!({"reasoning": {"effort": "low", "summary": summary}})), None);
        }
        let several = SamplingParams { n: 2, ..SamplingParams::default() };
        let error = ResponsesFields::check_params(&several).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("n"));
    }
}
