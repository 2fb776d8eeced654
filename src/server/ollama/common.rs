//! The fields that chats and prompts share.

use std::time::Instant;

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    answer::{OllamaAnswer, Shape},
    error::lacks,
    known_name,
    line::Line,
    options::Options,
};
use crate::{
    api::{ChatPrompt, OutputFormat, SamplingParams, StructuredOutput},
    config::LimitSettings,
    server::{
        chat::with_default_kwargs,
        generate::{logprobs::ChatLogprobsWriter, sampling::logprobs, token_names::TokenNames},
        http::{error::ApiError, fields::Int},
        state::AppState,
        turn::{ToolChoice, TurnRequest, TurnStyle},
    },
};

/// The names of the switch for thoughts in templates.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];
/// The words of `think`, with the efforts that templates know. No template knows a higher one.
const EFFORTS: [(&str, &str); 4] =
    [("low", "low"), ("medium", "medium"), ("high", "high"), ("max", "high")];

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct CommonFields {
    pub(super) model: Option<String>,
    stream: Option<bool>,
    /// `"json"`, or a JSON schema.
    format: Option<Value>,
    options: Option<Options>,
    /// Whether to think, or how much: `"low"`, `"medium"`, `"high"` or `"max"`.
    think: Option<Value>,
    logprobs: Option<bool>,
    top_logprobs: Option<Int>,
    /// Changes nothing: the model is always loaded.
    keep_alive: Option<Value>,
    /// Changes nothing: a prompt that does not fit is refused.
    #[serde(rename = "truncate")]
    _truncate: Option<bool>,
    /// Changes nothing: an answer ends where the context does.
    #[serde(rename = "shift")]
    _shift: Option<bool>,
}

impl CommonFields {
    pub(super) fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.options.as_ref().map_or(Ok(()), |options| options.check_limits(limits))
    }

    /// Gives the model the name that the server has for it.
    pub(super) fn resolve(&mut self, state: &AppState) {
        self.model = self.model.take().map(|asked| known_name(state, &asked));
    }

    /// Returns whether the answer comes line by line, as it does by default.
    pub(super) fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(true)
    }

    /// Returns the answer to a request that asks only for the model to be loaded, or unloaded. Some
    /// clients do the latter when they end, and fail without the answer. The next request would
    /// load the model again, so it stays loaded.
    ///
    /// # Errors
    /// If there is no such model.
    pub(super) fn loading(&self, state: &AppState) -> Result<Line, ApiError> {
        let is_unloading = is_zero(self.keep_alive.as_ref());
        let done_reason = if is_unloading { "unload" } else { "load" };
        Ok(Line::ended(&state.model_name(self.model.as_deref())?, done_reason))
    }

    /// Returns the parameters, and the most tokens of output.
    pub(super) fn params(
        &self,
        state: &AppState,
    ) -> Result<(SamplingParams, Option<u32>), ApiError> {
        let options = self.options.clone().unwrap_or_default();
        let mut params = options.params(state.engine.default_sampling())?;
        params.logprobs = self.num_logprobs()?;
        Ok((params, options.max_tokens()?))
    }

    /// Returns the turn that continues `chat`.
    ///
    /// # Errors
    /// If a field is wrong, or the model cannot do what it asks for.
    pub(super) fn turn(
        &self,
        state: &AppState,
        model: &str,
        chat: ChatPrompt,
    ) -> Result<TurnRequest, ApiError> {
        let (params, max_tokens) = self.params(state)?;
        let tool_choice = match &chat.tools {
            None => ToolChoice::None,
            Some(_) if !state.parsers.finds_calls() => return Err(lacks(model, "tools")),
            Some(_) => ToolChoice::Auto,
        };
        let kwargs = think(self.think.as_ref())?;
        let wants_thoughts = kwargs.get(SWITCHES[0]) == Some(&Value::Bool(true));
        if wants_thoughts && !state.parsers.finds_thoughts() {
            return Err(lacks(model, "thinking"));
        }
        Ok(TurnRequest {
            chat: ChatPrompt { chat_template_kwargs: with_default_kwargs(kwargs, state), ..chat },
            tool_choice,
            parallel_tool_calls: true,
            format: self.format()?,
            thinking_token_budget: None,
            include_reasoning: true,
            params,
            max_tokens,
        })
    }

    /// Returns the structure of the output, if one is asked for.
    pub(super) fn format(&self) -> Result<Option<StructuredOutput>, ApiError> {
        match &self.format {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(word)) if word.is_empty() => Ok(None),
            Some(Value::String(word)) if word == "json" => {
                Ok(Some(OutputFormat::JsonObject.into()))
            }
            Some(schema @ Value::Object(_)) => {
                Ok(Some(OutputFormat::JsonSchema(schema.to_string()).into()))
            }
            Some(_) => {
                let message = "format must be \"json\" or a JSON schema";
                Err(ApiError::invalid("format", message))
            }
        }
    }

    /// Returns the writer of an answer. `style` reads a turn. Without it, all output is content.
    pub(super) fn answer(
        &self,
        state: &AppState,
        id: String,
        model: String,
        shape: Shape,
        style: Option<TurnStyle>,
    ) -> Result<OllamaAnswer, ApiError> {
        let names = || TokenNames::new(state.engine.codec().clone(), false);
        let logprobs = self.num_logprobs()?;
        let logprobs = logprobs.map(|top| ChatLogprobsWriter::new(names(), top as usize));
        let (began, is_streamed) = (Instant::now(), self.is_streamed());
        Ok(OllamaAnswer { id, model, shape, style, logprobs, began, is_streamed })
    }

    fn num_logprobs(&self) -> Result<Option<u32>, ApiError> {
        let top = logprobs("top_logprobs", self.top_logprobs)?.unwrap_or(0);
        match (self.logprobs.unwrap_or(false), top) {
            (true, top) => Ok(Some(top)),
            (false, 0) => Ok(None),
            (false, _) => {
                Err(ApiError::invalid("top_logprobs", "top_logprobs needs logprobs to be true"))
            }
        }
    }
}

/// Returns whether a time is zero: a number of seconds, or a text with a unit.
fn is_zero(time: Option<&Value>) -> bool {
    match time {
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::String(text)) => {
            let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            number.parse() == Ok(0.0)
        }
        _ => false,
    }
}

/// Returns the variables of templates for `think`.
fn think(field: Option<&Value>) -> Result<Map<String, Value>, ApiError> {
    let effort_of = |given: &str| EFFORTS.iter().find(|(name, _)| *name == given);
    let (is_on, effort) = match field {
        None | Some(Value::Null) => return Ok(Map::new()),
        Some(Value::Bool(is_on)) => (*is_on, None),
        Some(other) => match other.as_str().and_then(effort_of) {
            Some((_, effort)) => (true, Some(*effort)),
            None => {
                let message = "think must be true, false, \"low\", \"medium\", \"high\" or \"max\"";
                return Err(ApiError::invalid("think", message));
            }
        },
    };
    let switches = SWITCHES.map(|name| (name.to_owned(), Value::Bool(is_on)));
    let effort = effort.map(|effort| ("reasoning_effort".to_owned(), Value::from(effort)));
    Ok(switches.into_iter().chain(effort).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::http::extract::parse_object;

    fn fields(body: Value) -> CommonFields {
        parse_object(&body.to_string()).unwrap()
    }

    #[test]
    fn a_format_is_json_or_a_schema() {
        let format = |body| fields(body).format().map_err(|error| error.param.unwrap());
        for none in [json!({}), json!({"format": null}), json!({"format": ""})] {
            assert_eq!(format(none), Ok(None));
        }
        assert_eq!(format(json!({"format": "json"})), Ok(Some(OutputFormat::JsonObject.into())));
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        let expected = OutputFormat::JsonSchema(schema.to_string()).into();
        assert_eq!(format(json!({ "format": schema })), Ok(Some(expected)));
        for wrong in [json!("yaml"), json!(7), json!(["json"])] {
            assert_eq!(format(json!({ "format": wrong })), Err("format".to_owned()));
        }
    }

    #[test]
    fn thoughts_are_switched_under_the_names_that_templates_know() {
        assert!(think(None).unwrap().is_empty());
        let off = json!({"enable_thinking": false, "thinking": false});
        assert_eq!(Value::from(think(Some(&json!(false))).unwrap()), off);
        let high = json!({"enable_thinking": true, "thinking": true, "reasoning_effort": "high"});
        assert_eq!(Value::from(think(Some(&json!("high"))).unwrap()), high);
        assert_eq!(Value::from(think(Some(&json!("max"))).unwrap()), high);
        assert!(think(Some(&json!("much"))).is_err() && think(Some(&json!(1))).is_err());
    }

    #[test]
    fn streams_are_the_default_and_times_have_units() {
        assert!(fields(json!({})).is_streamed() && !fields(json!({"stream": false})).is_streamed());
        for zero in [json!(0), json!("0"), json!("0s"), json!("0m")] {
            assert!(is_zero(Some(&zero)), "{zero}");
        }
        for other in [json!(-1), json!("5m"), json!("h"), json!(300), Value::Null] {
            assert!(!is_zero(Some(&other)), "{other}");
        }
    }
}
