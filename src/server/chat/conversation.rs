//! The fields that become a prompt through the model's chat template.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::messages::check_messages;
use crate::api::ChatPrompt;
use crate::{
    config::{JsonObject, LimitSettings},
    server::{
        http::{error::ApiError, fields::flag, limits::at_most},
        media::{MediaParts, media_kwargs},
        memory::json::json_bytes,
        openapi::{ChatMessageParam, ToolChoiceParam, ToolParam},
        state::AppState,
        turn::{ToolChoice, check_tools, shown_tool},
    },
};

const REASONING_EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// A conversation and the settings to render it.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct ConversationFields {
    #[schema(value_type = Option<Vec<ChatMessageParam>>)]
    messages: Option<Vec<Value>>,
    #[schema(value_type = Option<Vec<ToolParam>>)]
    tools: Option<Vec<Value>>,
    #[schema(value_type = Option<ToolChoiceParam>)]
    tool_choice: Option<Value>,
    documents: Option<Vec<Value>>,
    #[serde(deserialize_with = "flag")]
    add_generation_prompt: Option<bool>,
    #[serde(deserialize_with = "flag")]
    continue_final_message: Option<bool>,
    #[serde(deserialize_with = "flag")]
    add_special_tokens: Option<bool>,
    chat_template: Option<String>,
    chat_template_kwargs: Option<Map<String, Value>>,
    reasoning_effort: Option<String>,
    mm_processor_kwargs: Option<Map<String, Value>>,
    media_io_kwargs: Option<Map<String, Value>>,
}

impl ConversationFields {
    /// Returns whether the field `messages` is present.
    pub(in crate::server) fn is_given(&self) -> bool {
        self.messages.is_some()
    }

    /// Returns the most bytes that its text has.
    pub(in crate::server) fn text_bytes(&self) -> usize {
        let lists = [&self.messages, &self.tools, &self.documents];
        lists.into_iter().flatten().map(json_bytes).sum()
    }

    /// Returns whether the tokenizer adds the special tokens around a text. Most templates write
    /// them.
    pub(in crate::server) fn adds_special_tokens(&self) -> bool {
        self.add_special_tokens.unwrap_or(false)
    }

    /// Returns the same for a route where an empty list of tools is none.
    #[must_use]
    pub(in crate::server) fn with_optional_tools(self) -> Self {
        Self { tools: self.tools.filter(|tools| !tools.is_empty()), ..self }
    }

    /// Rejects more messages or tools than one request may have.
    pub(in crate::server) fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        let count = |list: &Option<Vec<Value>>| list.as_ref().map_or(0, Vec::len);
        at_most("messages", count(&self.messages), limits.max_messages)?;
        at_most("tools", count(&self.tools), limits.max_tools)
    }

    /// Returns the checked conversation, whether tools are to be called, and the images, videos and
    /// sounds.
    pub(in crate::server) fn prompt<'m>(
        &self,
        state: &AppState,
        model: &'m str,
    ) -> Result<(ChatPrompt, ToolChoice, MediaParts<'m>), ApiError> {
        let Some(messages) = &self.messages else {
            return Err(ApiError::validation("body.messages", "Field required"));
        };
        let add_generation_prompt = self.add_generation_prompt.unwrap_or(true);
        let continue_final_message = self.continue_final_message.unwrap_or(false);
        if add_generation_prompt && continue_final_message {
            let message =
                "Cannot set both `continue_final_message` and `add_generation_prompt` to True.";
            return Err(ApiError::invalid("continue_final_message", message));
        }
        check_tools(self.tools.as_deref())?;
        let mut tools = self.tools.clone();
        let choice = ToolChoice::read_and_limit(self.tool_choice.as_ref(), &mut tools)?;
        let (processor, io) = (self.mm_processor_kwargs.as_ref(), self.media_io_kwargs.as_ref());
        let kwargs = media_kwargs(state, processor, io)?;
        let mut media = state.media_parts(model).with_kwargs(kwargs);
        let chat = ChatPrompt {
            messages: check_messages(messages, &mut media)?,
            tools: tools.map(|tools| tools.iter().map(shown_tool).collect()),
            documents: self.documents.clone(),
            add_generation_prompt,
            continue_final_message,
            chat_template: request_template(self.chat_template.as_ref(), state)?,
            chat_template_kwargs: self.kwargs(state)?,
            joins_placeholders: false,
        };
        Ok((chat, choice, media))
    }

    fn kwargs(&self, state: &AppState) -> Result<Map<String, Value>, ApiError> {
        let kwargs = given_kwargs(self.chat_template_kwargs.as_ref(), state)?;
        complete_kwargs(kwargs, "body.reasoning_effort", self.reasoning_effort.as_deref(), state)
    }
}

/// Returns the template that a request brings.
///
/// # Errors
/// If there is one and the server accepts none.
pub(in crate::server) fn request_template(
    given: Option<&String>,
    state: &AppState,
) -> Result<Option<String>, ApiError> {
    match given {
        Some(_) if !state.config.trust_request_chat_template => Err(untrusted()),
        template => Ok(template.cloned()),
    }
}

/// Returns the request's variables for the template, and the server's.
///
/// # Errors
/// As [`given_kwargs`].
pub(in crate::server) fn template_kwargs(
    given: Option<&Map<String, Value>>,
    state: &AppState,
) -> Result<Map<String, Value>, ApiError> {
    Ok(with_default_kwargs(given_kwargs(given, state)?, state))
}

/// Returns the request's own variables for the template.
///
/// # Errors
/// If they include a template and the server accepts none, or `tokenize`.
pub(in crate::server) fn given_kwargs(
    given: Option<&Map<String, Value>>,
    state: &AppState,
) -> Result<Map<String, Value>, ApiError> {
    let kwargs = given.cloned().unwrap_or_default();
    if kwargs.contains_key("chat_template") && !state.config.trust_request_chat_template {
        return Err(untrusted());
    }
    refuse_tokenize(&kwargs)?;
    Ok(kwargs)
}

/// Rejects an argument of the Python function that fills a template, in vLLM's words. It is no
/// variable there.
fn refuse_tokenize(kwargs: &Map<String, Value>) -> Result<(), ApiError> {
    if !kwargs.contains_key("tokenize") {
        return Ok(());
    }
    let message = "Found unexpected chat template kwargs from request: {'tokenize'}";
    Err(ApiError::invalid("chat_template_kwargs", message))
}

/// Adds the variables of an effort, which `place` names, to those that a request gives. The
/// server's come last: the effort is the request's own choice, too.
///
/// # Errors
/// If the effort is unknown.
pub(in crate::server) fn complete_kwargs(
    kwargs: Map<String, Value>,
    place: &str,
    effort: Option<&str>,
    state: &AppState,
) -> Result<Map<String, Value>, ApiError> {
    completed(kwargs, place, effort, state.config.default_chat_template_kwargs.as_ref())
}

fn completed(
    mut kwargs: Map<String, Value>,
    place: &str,
    effort: Option<&str>,
    defaults: Option<&JsonObject>,
) -> Result<Map<String, Value>, ApiError> {
    if let Some(effort) = effort {
        add_reasoning_effort(&mut kwargs, place, effort)?;
    }
    Ok(with_defaults(kwargs, defaults))
}

/// Returns a request's variables for the template, with those of the server that it does not set.
pub(in crate::server) fn with_default_kwargs(
    kwargs: Map<String, Value>,
    state: &AppState,
) -> Map<String, Value> {
    with_defaults(kwargs, state.config.default_chat_template_kwargs.as_ref())
}

fn with_defaults(
    mut kwargs: Map<String, Value>,
    defaults: Option<&JsonObject>,
) -> Map<String, Value> {
    for (name, value) in defaults.into_iter().flat_map(|JsonObject(object)| object) {
        // As in vLLM, null and "auto" leave the choice to the server.
        if kwargs.get(name).is_none_or(|given| given.is_null() || given == "auto") {
            kwargs.insert(name.clone(), value.clone());
        }
    }
    kwargs
}

/// Passes to a template how much the model may think.
///
/// # Errors
/// If the effort is unknown. `place` names the field.
fn add_reasoning_effort(
    kwargs: &mut Map<String, Value>,
    place: &str,
    effort: &str,
) -> Result<(), ApiError> {
    if !REASONING_EFFORTS.contains(&effort) {
        let wanted = format!("Input should be one of {REASONING_EFFORTS:?}");
        return Err(ApiError::validation(place, wanted));
    }
    kwargs.entry("reasoning_effort").or_insert_with(|| Value::from(effort));
    // For templates that know a switch rather than an effort. Some of them do not think by default.
    kwargs.entry("enable_thinking").or_insert(Value::Bool(effort != "none"));
    Ok(())
}

fn untrusted() -> ApiError {
    let message = "the request brings a chat template, which this server takes only with \
                   `trust_request_chat_template`";
    ApiError::invalid("chat_template", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_goes_before_the_servers_variables() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let defaults = JsonObject(object(json!({"enable_thinking": false, "effort": "low"})));
        let merged = |given| Value::Object(with_defaults(object(given), Some(&defaults)));
        let expected = json!({"enable_thinking": false, "effort": "low"});
        assert_eq!(merged(json!({})), expected);
        assert_eq!(merged(json!({"enable_thinking": null, "effort": "auto"})), expected);
        let given = json!({"enable_thinking": true, "effort": "high", "more": null});
        assert_eq!(merged(given.clone()), given);
        assert_eq!(Value::Object(with_defaults(object(given.clone()), None)), given);
    }

    /// vLLM 0.33: `resolve_chat_template_kwargs`.
    #[test]
    fn tokenize_is_no_variable() {
        let refused = |kwargs: Value| {
            let refused = refuse_tokenize(kwargs.as_object().unwrap());
            refused.err().map(|error| error.param.unwrap())
        };
        assert_eq!(refused(json!({"enable_thinking": true})), None);
        let field = Some("chat_template_kwargs".to_owned());
        assert_eq!(refused(json!({"tokenize": false})), field);
    }

    /// As in vLLM.
    #[test]
    fn an_effort_goes_before_the_servers_variables() {
        let defaults = json!({"enable_thinking": false, "reasoning_effort": "low", "style": "a"});
        let defaults = JsonObject(defaults.as_object().cloned().unwrap());
        let of = |effort| {
            let kwargs = completed(Map::new(), "body.reasoning_effort", effort, Some(&defaults));
            kwargs.map(Value::Object).map_err(|error| error.param)
        };
        let high = json!({"reasoning_effort": "high", "enable_thinking": true, "style": "a"});
        assert_eq!(of(Some("high")), Ok(high));
        assert_eq!(of(None), Ok(Value::Object(defaults.0.clone())));
    }

    /// As in vLLM.
    #[test]
    fn an_effort_turns_thinking_on_or_off_unless_the_request_does() {
        let kwargs = |given: Value, effort: &str| {
            let mut kwargs = given.as_object().unwrap().clone();
            let added = add_reasoning_effort(&mut kwargs, "body.reasoning_effort", effort);
            added.map(|()| Value::Object(kwargs)).map_err(|error| error.param)
        };
        let on = json!({"reasoning_effort": "low", "enable_thinking": true});
        assert_eq!(kwargs(json!({}), "low"), Ok(on));
        let off = json!({"reasoning_effort": "none", "enable_thinking": false});
        assert_eq!(kwargs(json!({}), "none"), Ok(off));
        let given = json!({"reasoning_effort": "high", "enable_thinking": false});
        assert_eq!(kwargs(given.clone(), "low"), Ok(given));
        let wrong = Some("body.reasoning_effort".to_owned());
        assert_eq!(kwargs(json!({}), "extreme"), Err(wrong));
    }
}
