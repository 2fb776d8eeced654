//! What a tool parser is.

use serde_json::Value;

use super::{super::event::ToolEvent, schema::Tools};

/// Finds the tool calls in what a model writes, while it writes. See the
/// [module](super::super) for what every parser promises.
pub trait ToolParser: Send {
    /// Takes the next piece of text.
    fn push(&mut self, text: &str) -> Vec<ToolEvent>;

    /// The text is over. What was held back and is no call becomes content; nothing may be pushed
    /// afterwards.
    fn finish(&mut self) -> Vec<ToolEvent>;

    /// As [`finish`](Self::finish), where the model ended the text and nothing cut it off: a call
    /// that lacks nothing but the markers after it is whole.
    fn finish_stopped(&mut self) -> Vec<ToolEvent> {
        self.finish()
    }

    /// Whether markers of the format are special tokens of its models, which the text must then
    /// show: `skip_special_tokens` has to be off.
    fn needs_special_tokens(&self) -> bool {
        false
    }

    /// What keeps calls to the tools on offer, and those of strict tools to their schemas, while the model calls as it likes: a
    /// structural tag as xgrammar writes it (`{"type": "structural_tag", "format": …}`), which
    /// constrains the text once a call begins. `None`, as by default, for formats whose calls cannot
    /// be told from text before they are over, or are no JSON; and when no tool is strict and others
    /// may be called.
    fn strict_calls(&self, _tools: &Tools, _parallel_tool_calls: bool) -> Option<Value> {
        None
    }

    /// What the id of a call has to look like that the model gave none.
    fn call_id_format(&self) -> CallIdFormat {
        CallIdFormat::Any
    }
}

/// What an id of a call has to look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallIdFormat {
    /// Any string will do.
    Any,
    /// Exactly nine letters and digits: the chat templates of the family refuse any other.
    NineAlphanumerics,
}
