//! Reads one choice's output as it arrives.

use std::sync::Arc;

use super::{call_id::CallIds, reasoning_tokens::ReasoningTokens};
use crate::api::{FinishReason, OutputDelta, StopReason};
use crate::parsers::{MessageEvent, MessageParser, ToolEvent};

/// A part of the assistant's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TurnEvent {
    /// More of the model's thoughts.
    Reasoning(String),
    /// More of the answer's text.
    Content(String),
    /// A call begins. All its parts come before any other call.
    ToolCallStart {
        /// Index of the call in the turn, from 0.
        index: usize,
        /// The call's own id.
        id: String,
        /// The function's name. The model may have invented it.
        name: String,
    },
    /// More of the arguments' JSON text.
    ToolCallArguments {
        /// Index of the call.
        index: usize,
        /// The next piece. It is never empty.
        delta: String,
    },
    /// The call is complete.
    ToolCallEnd {
        /// Index of the call.
        index: usize,
    },
    /// The call was cut off, or is malformed. It stays an incomplete call with the arguments that
    /// came, in a stream as in a whole answer. The finish reason shows that no call is to be run.
    ToolCallBroken {
        /// Index of the call.
        index: usize,
    },
}

/// A function that learns of each reading of a text in which the model may call: whether it found a
/// part of a call.
pub(crate) type NoteReading = Arc<dyn Fn(bool) + Send + Sync>;

/// Splits one choice's output into its parts. A [`TurnStyle`](super::TurnStyle) makes it.
pub(crate) struct TurnReader {
    pub(super) parser: MessageParser,
    pub(super) ids: CallIds,
    /// Whether the request named the function to call.
    pub(super) is_named: bool,
    pub(super) include_reasoning: bool,
    pub(super) reasoning_tokens: Option<ReasoningTokens>,
    pub(super) has_reasoned: bool,
    /// Complete calls.
    pub(super) num_calls: usize,
    pub(super) note: Option<NoteReading>,
}

impl TurnReader {
    /// Returns the events for new output. The delta with a finish reason is the last one.
    pub(crate) fn push(&mut self, delta: &OutputDelta) -> Vec<TurnEvent> {
        let mut parts = self.parser.push(&delta.text);
        parts.extend(match &delta.finish {
            None => Vec::new(),
            // A stop string cuts the model off.
            Some(FinishReason::Stop(None | Some(StopReason::Token(_)))) => {
                self.parser.finish_stopped()
            }
            Some(_) => self.parser.finish(),
        });
        if let Some(note) = &self.note {
            note(parts.iter().any(is_of_call));
        }
        self.has_reasoned |= parts.iter().any(|part| matches!(part, MessageEvent::Reasoning(_)));
        if let Some(counter) = &mut self.reasoning_tokens {
            delta.tokens.iter().for_each(|token| counter.push(token.token_id));
            if matches!(parts.last(), Some(MessageEvent::Answer(_))) {
                counter.end();
            }
        }
        parts.into_iter().filter_map(|part| self.event(part)).collect()
    }

    /// Returns the API's word for the end of the turn. It is `tool_calls` if the model stopped
    /// after complete calls. If the request named the function, it stays `stop`, as in OpenAI's
    /// API.
    pub(crate) fn finish_reason(&self, finish: &FinishReason) -> &'static str {
        match finish {
            FinishReason::Stop(_) if self.num_calls > 0 && !self.is_named => "tool_calls",
            _ => finish.as_str(),
        }
    }

    /// Returns the tokens of thought so far. `None` if thoughts are not distinguished.
    pub(crate) fn num_reasoning_tokens(&self) -> Option<usize> {
        let counter = self.reasoning_tokens.as_ref()?;
        Some(if self.has_reasoned { counter.count() } else { 0 })
    }

    fn event(&mut self, part: MessageEvent) -> Option<TurnEvent> {
        Some(match part {
            MessageEvent::Reasoning(_) if !self.include_reasoning => return None,
            MessageEvent::Reasoning(text) => TurnEvent::Reasoning(text),
            MessageEvent::Answer(ToolEvent::Content(text)) => TurnEvent::Content(text),
            MessageEvent::Answer(ToolEvent::CallStart { index, name, id }) => {
                let id = id.unwrap_or_else(|| self.ids.id(index));
                TurnEvent::ToolCallStart { index, id, name }
            }
            MessageEvent::Answer(ToolEvent::CallArguments { index, delta }) => {
                TurnEvent::ToolCallArguments { index, delta }
            }
            MessageEvent::Answer(ToolEvent::CallEnd { index }) => {
                self.num_calls += 1;
                TurnEvent::ToolCallEnd { index }
            }
            MessageEvent::Answer(ToolEvent::CallBroken { index }) => {
                TurnEvent::ToolCallBroken { index }
            }
        })
    }
}

fn is_of_call(part: &MessageEvent) -> bool {
    matches!(part, MessageEvent::Answer(event) if !matches!(event, ToolEvent::Content(_)))
}
