//! A turn in one piece.

use super::reader::{TurnEvent, TurnReader};
use crate::api::OutputDelta;
use crate::server::generate::choices::FinishedChoice;

/// All of one choice's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct Turn {
    /// The model's thoughts.
    pub(in crate::server) reasoning: Option<String>,
    /// The answer's text. `None` if there are only thoughts or calls. Empty if there is no output
    /// at all.
    pub(in crate::server) content: Option<String>,
    /// The tools it calls. The last call is incomplete if the turn was cut off in it.
    pub(in crate::server) tool_calls: Vec<ToolCall>,
    /// Why the turn ended: see [`TurnReader::finish_reason`].
    pub(in crate::server) finish_reason: &'static str,
    /// Tokens of thought. `None` if thoughts are not distinguished.
    pub(in crate::server) num_reasoning_tokens: Option<usize>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct ToolCall {
    pub(in crate::server) id: String,
    pub(in crate::server) name: String,
    /// The text of a JSON value. Only its beginning, if the call is incomplete.
    pub(in crate::server) arguments: String,
}

impl Turn {
    /// Reads a complete choice.
    pub(in crate::server) fn read(mut reader: TurnReader, done: &FinishedChoice) -> Self {
        let events = reader.push(&OutputDelta {
            text: done.text.clone(),
            tokens: done.tokens.clone(),
            finish: Some(done.finish.clone()),
            ..OutputDelta::default()
        });
        let finish_reason = reader.finish_reason(&done.finish);
        Self::of(events, finish_reason, reader.num_reasoning_tokens())
    }

    /// Returns the turn that `events` describe.
    pub(super) fn of(
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
