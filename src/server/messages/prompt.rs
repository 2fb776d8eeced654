//! The fields of the prompt, which both routes read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{
    conversation::Conversation,
    thinking::{Thinking, ThinkingField},
    tools::{ToolChoiceField, ToolField, chat_tools, first_strict, tool_choice},
};
use crate::api::{ChatPrompt, OutputFormat, RawRequest, SamplingParams, StructuredOutput};
use crate::{
    config::LimitSettings,
    server::{
        chat::{given_kwargs, with_default_kwargs},
        http::{error::ApiError, limits::at_most},
        media::MediaParts,
        memory::RequestMemory,
        state::AppState,
        turn::{ToolChoice, TurnRequest, TurnStyle},
    },
};

const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct PromptFields {
    model: Option<String>,
    system: Option<Value>,
    messages: Option<Vec<Value>>,
    tools: Option<Vec<ToolField>>,
    tool_choice: Option<ToolChoiceField>,
    thinking: Option<ThinkingField>,
    output_config: Option<OutputConfig>,
    /// The older name of `output_config.format`.
    output_format: Option<FormatField>,
    /// vLLM's variables of the chat template. They go before those of `thinking` and of the effort.
    chat_template_kwargs: Option<Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
struct OutputConfig {
    effort: Option<String>,
    format: Option<FormatField>,
}

#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
struct FormatField {
    r#type: Option<String>,
    schema: Option<Map<String, Value>>,
}

impl PromptFields {
    /// Returns the model that the client asks for.
    pub(super) fn asked_model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the name to answer under.
    ///
    /// # Errors
    /// If there is none, or no model has this name.
    pub(super) fn model(&self, state: &AppState) -> Result<String, ApiError> {
        match &self.model {
            Some(model) if !model.is_empty() => state.model_name(Some(model)),
            _ => Err(ApiError::validation("body.model", "Field required")),
        }
    }

    /// Rejects more messages or tools than one request may have.
    pub(super) fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        at_most("messages", self.messages.as_ref().map_or(0, Vec::len), limits.max_messages)?;
        at_most("tools", self.tools.as_ref().map_or(0, Vec::len), limits.max_tools)
    }

    /// Returns whether the client sees the thoughts. Otherwise it sees only that there are some.
    pub(super) fn shows_thinking(&self) -> Result<bool, ApiError> {
        Ok(Thinking::read(self.thinking.as_ref())?.is_shown)
    }

    /// Returns the request for the engine, without the facts about its client, and the style that
    /// reads its answer. The content of images is leased on `memory`.
    ///
    /// # Errors
    /// If a field is not supported, or an image is not accepted.
    pub(super) async fn plan(
        &self,
        state: &AppState,
        memory: &RequestMemory,
        params: SamplingParams,
        max_tokens: Option<u32>,
    ) -> Result<(RawRequest, TurnStyle), ApiError> {
        given_kwargs(self.chat_template_kwargs.as_ref(), state)?;
        let mut media = state.media_parts(self.model.as_deref().unwrap_or_default());
        let turn = self.turn(&mut media, state.engine.template_may_reject())?;
        let mut turn = TurnRequest { params, max_tokens, ..turn };
        let kwargs = std::mem::take(&mut turn.chat.chat_template_kwargs);
        turn.chat.chat_template_kwargs = with_default_kwargs(kwargs, state);
        let (request, style) = self.plan_turn(state, turn)?;
        let media = media.load(&state.media, memory).await?;
        Ok((RawRequest { media, ..request }, style))
    }

    fn plan_turn(
        &self,
        state: &AppState,
        turn: TurnRequest,
    ) -> Result<(RawRequest, TurnStyle), ApiError> {
        let is_auto = turn.tool_choice == ToolChoice::Auto;
        let planned = turn.plan(state).map_err(|error| match error.param.as_deref() {
            Some("thinking_token_budget") => {
                let message = "thinking.budget_tokens needs a model whose thoughts are marked: \
                               set --reasoning-parser, or ask for type 'adaptive'";
                ApiError::invalid("thinking.budget_tokens", message)
            }
            _ => error,
        })?;
        let strict = first_strict(self.tools.as_deref().unwrap_or_default());
        match strict.filter(|_| is_auto && !planned.1.holds_strict_calls()) {
            None => Ok(planned),
            Some(index) => {
                let place = format!("body.tools.{index}.strict");
                let message = "calls in this model's format, or beside output_config.format, are \
                               only held to their schema where tool_choice forces them";
                Err(ApiError::invalid(&place, format!("{place}: {message}")))
            }
        }
    }

    /// Reads the request. Templates that may reject messages get `one_system` message at most, at
    /// the beginning. Others keep each in its place, so that earlier turns stay in the cache.
    fn turn(&self, media: &mut MediaParts<'_>, one_system: bool) -> Result<TurnRequest, ApiError> {
        let Some(messages) = &self.messages else {
            return Err(ApiError::validation("body.messages", "Field required"));
        };
        let offered = self.tools.as_deref().unwrap_or_default();
        let tool_choice = tool_choice(self.tool_choice.as_ref(), offered)?;
        let tools = chat_tools(offered)?;
        let thinking = Thinking::read(self.thinking.as_ref())?;
        let conversation = Conversation::read(self.system.as_ref(), messages, media)?;
        let goes_on = conversation.goes_on();
        let conversation = match one_system {
            true => conversation.with_one_system(),
            false => conversation,
        };
        let mut chat_template_kwargs = thinking.template_kwargs();
        if let Some(effort) = self.effort()? {
            chat_template_kwargs.insert("reasoning_effort".to_owned(), Value::from(effort));
        }
        chat_template_kwargs.extend(self.chat_template_kwargs.clone().unwrap_or_default());
        Ok(TurnRequest {
            chat: ChatPrompt {
                messages: conversation.into_messages(),
                tools,
                add_generation_prompt: !goes_on,
                continue_final_message: goes_on,
                chat_template_kwargs,
                ..ChatPrompt::default()
            },
            tool_choice,
            parallel_tool_calls: self.tool_choice.as_ref().is_none_or(ToolChoiceField::is_parallel),
            format: self.format()?,
            thinking_token_budget: thinking.budget,
            include_reasoning: true,
            params: SamplingParams::default(),
            max_tokens: None,
        })
    }

    fn effort(&self) -> Result<Option<&str>, ApiError> {
        let effort = self.output_config.as_ref().and_then(|config| config.effort.as_deref());
        match effort {
            Some(effort) if !EFFORTS.contains(&effort) => {
                let wanted = format!("Input should be one of {EFFORTS:?}");
                Err(ApiError::validation("body.output_config.effort", wanted))
            }
            effort => Ok(effort),
        }
    }

    fn format(&self) -> Result<Option<StructuredOutput>, ApiError> {
        let newer = self.output_config.as_ref().and_then(|config| config.format.as_ref());
        let (place, format) = match (newer, &self.output_format) {
            (Some(format), _) => ("body.output_config.format", format),
            (None, Some(format)) => ("body.output_format", format),
            (None, None) => return Ok(None),
        };
        match (format.r#type.as_deref(), &format.schema) {
            (Some("json_schema"), Some(schema)) => {
                let schema = Value::Object(schema.clone());
                Ok(Some(OutputFormat::JsonSchema(schema.to_string()).into()))
            }
            (Some("json_schema"), None) => {
                Err(ApiError::validation(&format!("{place}.schema"), "Field required"))
            }
            _ => {
                let place = format!("{place}.type");
                Err(ApiError::validation(&place, "Input should be 'json_schema'"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::{http::extract::parse_object, media::AskedModel, turn::ToolChoice};

    fn turn(mut body: Value) -> Result<TurnRequest, String> {
        if body.get("messages").is_none() {
            body["messages"] = json!([{"role": "user", "content": "hi"}]);
        }
        let fields: PromptFields = parse_object(&body.to_string()).unwrap();
        let model = AskedModel { name: "tiny", serves_text_alone: false };
        let mut media = MediaParts::new(model, None);
        fields.turn(&mut media, false).map_err(|error| error.param.unwrap())
    }

    #[test]
    fn nothing_but_messages_is_needed() {
        let turn = turn(json!({})).unwrap();
        assert_eq!(turn.chat.messages, [json!({"role": "user", "content": "hi"})]);
        assert!(turn.chat.add_generation_prompt && !turn.chat.continue_final_message);
        assert_eq!((turn.chat.tools, turn.tool_choice), (None, ToolChoice::None));
        assert!(turn.chat.chat_template_kwargs.is_empty() && turn.parallel_tool_calls);
        assert_eq!((turn.format, turn.thinking_token_budget), (None, None));
    }

    #[test]
    fn an_open_answer_is_continued() {
        let begun = json!([
            {"role": "user", "content": "hi"}, {"role": "assistant", "content": "I"},
        ]);
        let turn = turn(json!({ "messages": begun })).unwrap();
        assert!(turn.chat.continue_final_message && !turn.chat.add_generation_prompt);
    }

    #[test]
    fn requested_values_arrive() {
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}});
        let turn = turn(json!({
            "tools": [{"name": "now", "input_schema": {}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "thinking": {"type": "enabled", "budget_tokens": 9},
            "output_config": {
                "effort": "low", "format": {"type": "json_schema", "schema": schema},
            },
        }))
        .unwrap();
        assert_eq!((turn.tool_choice, turn.parallel_tool_calls), (ToolChoice::Required, false));
        assert_eq!(turn.chat.tools.map(|tools| tools.len()), Some(1));
        assert_eq!(turn.thinking_token_budget, Some(9));
        assert_eq!(turn.chat.chat_template_kwargs["enable_thinking"], true);
        assert_eq!(turn.chat.chat_template_kwargs["reasoning_effort"], "low");
        let format = OutputFormat::JsonSchema(schema.to_string()).into();
        assert_eq!(turn.format, Some(format));
    }

    /// vLLM 0.33: `AnthropicServingMessages` hands them to the chat's request.
    #[test]
    fn variables_of_the_template_are_passed_on() {
        let turn = turn(json!({
            "thinking": {"type": "adaptive"},
            "chat_template_kwargs": {"enable_thinking": false, "style": "short"},
        }));
        let kwargs = turn.unwrap().chat.chat_template_kwargs;
        let expected = json!({"enable_thinking": false, "thinking": true, "style": "short"});
        assert_eq!(Value::Object(kwargs), expected);
    }

    #[test]
    fn the_older_name_of_the_format_is_known() {
        let format = json!({"type": "json_schema", "schema": {}});
        let turn = turn(json!({ "output_format": format })).unwrap();
        assert_eq!(turn.format, Some(OutputFormat::JsonSchema("{}".to_owned()).into()));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let wrong = [
            (json!({"messages": null}), "body.messages"),
            (json!({"output_config": {"effort": "none"}}), "body.output_config.effort"),
            (json!({"output_config": {"format": {}}}), "body.output_config.format.type"),
            (json!({"output_format": {"type": "json_schema"}}), "body.output_format.schema"),
            (json!({"tool_choice": {"type": "any"}}), "tool_choice"),
        ];
        for (body, place) in wrong {
            assert_eq!(turn(body.clone()).err().as_deref(), Some(place), "{body}");
        }
    }
}
