//! The trait of tool parsers.

use serde_json::Value;

use super::{super::event::ToolEvent, schema::Tools};

/// Finds the tool calls in a model's text while the text arrives. The [module](super::super) lists
/// the promises of all parsers.
pub trait ToolParser: Send {
    /// Takes the next piece of text.
    fn push(&mut self, text: &str) -> Vec<ToolEvent>;

    /// Ends the text. Text that was held back and is no call becomes content. Nothing may be pushed
    /// afterwards.
    fn finish(&mut self) -> Vec<ToolEvent>;

    /// As [`finish`](Self::finish), for a text that the model ended and that was not cut off. A
    /// call that lacks only the markers after it is complete.
    fn finish_stopped(&mut self) -> Vec<ToolEvent> {
        self.finish()
    }

    /// Returns whether markers of the format are special tokens of its models. The text must then
    /// show them: `skip_special_tokens` has to be off.
    fn needs_special_tokens(&self) -> bool {
        false
    }

    /// Returns a structural tag in xgrammar's notation (`{"type": "structural_tag", "format": …}`),
    /// for a model that decides itself when to call. Once a call begins, it limits calls to the
    /// request's tools, and those of strict tools to their schemas.
    ///
    /// `None`, the default, if the format's calls are no JSON or cannot be told from text before
    /// they end. Also `None` if no tool is strict and other tools may be called.
    fn strict_calls(&self, _tools: &Tools, _parallel_tool_calls: bool) -> Option<Value> {
        None
    }

    /// Returns the required format of an id for a call without one.
    fn call_id_format(&self) -> CallIdFormat {
        CallIdFormat::Any
    }
}

/// The required format of a call's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallIdFormat {
    /// Any string.
    Any,
    /// Exactly nine letters and digits, because the chat templates of the family reject any other.
    NineAlphanumerics,
}
