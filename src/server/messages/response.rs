//! The answer in one piece, and the parts that streams share with it.

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    content::{ContentBlock, content},
    protocol::Style,
};
use crate::api::{FinishReason, OutputDelta, StopReason as Stopped};
use crate::server::{
    generate::choices::{Choices, FinishedChoice},
    http::error::ApiError,
    turn::{TurnEvent, TurnReader},
};

/// A message of the model.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = ModelMessage)]
pub(in crate::server) struct Message {
    id: String,
    r#type: &'static str,
    role: &'static str,
    model: String,
    content: Vec<ContentBlock>,
    #[serde(flatten)]
    stop: Stop,
    usage: Usage,
}

/// Why the message ended. Both are empty until it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Stop {
    stop_reason: Option<StopReason>,
    stop_sequence: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StopReason {
    EndTurn,
    MaxTokens,
    StopSequence,
    ToolUse,
    PauseTurn,
}

/// The tokens of a message. `input_tokens` and `cache_read_input_tokens` add up to the prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = MessageUsage)]
pub(super) struct Usage {
    input_tokens: usize,
    output_tokens: usize,
    /// Tokens charged for writing the cache: always zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_creation_input_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_read_input_tokens: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens_details: Option<OutputTokensDetails>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
struct OutputTokensDetails {
    thinking_tokens: usize,
}

impl Message {
    /// Returns a message without content.
    pub(super) fn begun(id: String, model: String, choices: &Choices) -> Self {
        let usage = Usage { input_tokens: choices.num_prompt_tokens(), ..Usage::default() };
        let (content, stop) = (Vec::new(), Stop::default());
        Self { id, r#type: "message", role: "assistant", model, content, stop, usage }
    }

    /// Returns the message with the content that `reader` makes of `done`.
    ///
    /// # Errors
    /// If the request failed.
    pub(super) fn completed(
        self,
        style: &Style,
        choices: &Choices,
        mut reader: TurnReader,
        done: FinishedChoice,
    ) -> Result<Self, ApiError> {
        let events = reader.push(&OutputDelta {
            text: done.text,
            tokens: done.tokens,
            finish: Some(done.finish.clone()),
            ..OutputDelta::default()
        });
        let calls = events.iter().any(|event| matches!(event, TurnEvent::ToolCallEnd { .. }));
        let content = content(events, style.shows_thinking);
        let stop = Stop::new(&done.finish, calls)?;
        Ok(Self { content, stop, usage: Usage::of(choices, &reader, style), ..self })
    }
}

impl Stop {
    /// Returns the API's word for `finish`. `calls` says whether the message has complete calls.
    ///
    /// # Errors
    /// If the request failed.
    pub(super) fn new(finish: &FinishReason, calls: bool) -> Result<Self, ApiError> {
        let reason = match finish {
            FinishReason::Stop(Some(Stopped::String(text))) => {
                let stop_sequence = Some(text.clone());
                return Ok(Self { stop_reason: Some(StopReason::StopSequence), stop_sequence });
            }
            FinishReason::Stop(_) if calls => StopReason::ToolUse,
            FinishReason::Stop(_) | FinishReason::Repetition => StopReason::EndTurn,
            FinishReason::Length => StopReason::MaxTokens,
            // A message that an operator aborts keeps its text, and another request may continue
            // it.
            FinishReason::Abort => StopReason::PauseTurn,
            FinishReason::Error(failure) => return Err(failure.into()),
        };
        Ok(Self { stop_reason: Some(reason), stop_sequence: None })
    }
}

impl Usage {
    /// Returns the usage of `choices`. If the operator hides the tokens from the prefix cache, the
    /// whole prompt is input.
    pub(super) fn of(choices: &Choices, reader: &TurnReader, style: &Style) -> Self {
        let cached = if style.shows_cached { choices.num_cached_tokens() } else { 0 };
        let thinking_tokens = reader.num_reasoning_tokens();
        Self {
            input_tokens: choices.num_prompt_tokens().saturating_sub(cached),
            output_tokens: choices.num_output_tokens(),
            cache_creation_input_tokens: Some(0),
            cache_read_input_tokens: Some(cached),
            output_tokens_details: thinking_tokens
                .map(|thinking_tokens| OutputTokensDetails { thinking_tokens }),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::Failure;

    #[test]
    fn every_end_has_its_word() {
        let stop = |finish: &FinishReason, calls| {
            serde_json::to_value(Stop::new(finish, calls).unwrap()).unwrap()
        };
        let told = |reason: &str| json!({"stop_reason": reason, "stop_sequence": null});
        let ended = FinishReason::Stop(None);
        assert_eq!(stop(&ended, false), told("end_turn"));
        assert_eq!(stop(&ended, true), told("tool_use"));
        assert_eq!(stop(&FinishReason::Stop(Some(Stopped::Token(3))), false), told("end_turn"));
        assert_eq!(stop(&FinishReason::Length, true), told("max_tokens"));
        let stopped = FinishReason::Stop(Some(Stopped::String("END".to_owned())));
        let sequence = json!({"stop_reason": "stop_sequence", "stop_sequence": "END"});
        assert_eq!(stop(&stopped, true), sequence);
        assert_eq!(stop(&FinishReason::Abort, true), told("pause_turn"));
        let failed = FinishReason::Error(Failure::NumericalGarbage);
        assert_eq!(Stop::new(&failed, false).unwrap_err().status, 500);
    }

    #[test]
    fn a_message_has_the_keys_that_clients_look_for() {
        let choices = Choices::new(vec![([1, 2, 3].into(), vec![])]);
        let message = Message::begun("msg_1".to_owned(), "demo".to_owned(), &choices);
        let expected = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "demo", "content": [],
            "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 3, "output_tokens": 0},
        });
        assert_eq!(serde_json::to_value(message).unwrap(), expected);
    }
}
