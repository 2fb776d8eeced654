//! A turn in one piece.

use super::reader::TurnEvent;

/// All of one choice's output.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// The model's thoughts.
    pub reasoning: Option<String>,
    /// The answer's text. `None` if there are only thoughts or calls. Empty if there is no output
    /// at all.
    pub content: Option<String>,
    /// The tools it calls. The last call is incomplete if the turn was cut off in it.
    pub tool_calls: Vec<ToolCall>,
    /// Why the turn ended: `stop`, `length`, `abort`, or `tool_calls` if the model stopped after
    /// complete calls that the request did not force by name.
    pub finish_reason: &'static str,
    /// Tokens of thought. `None` if thoughts are not distinguished.
    pub num_reasoning_tokens: Option<usize>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolCall {
    /// The call's own id. The message with its result repeats the id.
    pub id: String,
    /// The function's name. The model may have invented it.
    pub name: String,
    /// The text of a JSON value. Only its beginning, if the call is incomplete.
    pub arguments: String,
}

impl Turn {
    /// Returns the turn that `events` describe.
    pub(crate) fn of(
        events: impl IntoIterator<Item = TurnEvent>,
        finish_reason: &'static str,
        num_reasoning_tokens: Option<usize>,
    ) -> Self {
        let (mut reasoning, mut content) = (String::new(), String::new());
        let mut tool_calls: Vec<ToolCall> = Vec::new();
        for event in events {
            match event {
                TurnEvent::Reasoning(text) => reasoning.push_str(&text),
                TurnEvent::Content(text) => content.push_str(&text),
                TurnEvent::ToolCallStart { id, name, .. } => {
                    tool_calls.push(ToolCall { id, name, arguments: String::new() });
                }
                TurnEvent::ToolCallArguments { delta, .. } => {
                    if let Some(call) = tool_calls.last_mut() {
                        call.arguments.push_str(&delta);
                    }
                }
                TurnEvent::ToolCallEnd { .. } | TurnEvent::ToolCallBroken { .. } => {}
            }
        }
        let says_nothing = content.is_empty() && !(reasoning.is_empty() && tool_calls.is_empty());
        Self {
            reasoning: (!reasoning.is_empty()).then_some(reasoning),
            content: (!says_nothing).then_some(content),
            tool_calls,
            finish_reason,
            num_reasoning_tokens,
        }
    }
}
