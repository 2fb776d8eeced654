//! The trait of reasoning parsers.

use super::super::event::ReasoningEvent;

/// Separates a model's thoughts from its answer while the text arrives. The [module](super::super)
/// lists the promises of all parsers.
pub trait ReasoningParser: Send {
    /// Takes the next piece of text.
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent>;

    /// Ends the text, and returns the events of the text that was held back. Nothing may be pushed
    /// afterwards.
    fn finish(&mut self) -> Vec<ReasoningEvent>;

    /// Returns whether the text begins with thoughts, before any marker.
    fn starts_in_reasoning(&self) -> bool {
        false
    }

    /// Returns whether markers of the format are special tokens of its models. The text must then
    /// show them: `skip_special_tokens` has to be off.
    fn needs_special_tokens(&self) -> bool {
        false
    }

    /// Returns the texts that usually begin and end thoughts. Code that examines tokens in place of
    /// text uses them: it counts thoughts, limits them, or constrains only the text after them.
    /// `None` makes these impossible.
    fn markers(&self) -> Option<ReasoningMarkers> {
        None
    }
}

/// The markers around thoughts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningMarkers {
    /// Begins thoughts, in the prompt or in the text.
    pub begin: String,
    /// Ends thoughts. The answer follows at once.
    pub end: String,
}

/// Facts that show whether a text begins with thoughts.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReasoningStart<'a> {
    /// The rendered prompt, if it is known. Many templates open the thoughts, or close them at
    /// once. The end of the prompt is enough.
    pub prompt: Option<&'a str>,
    /// Whether the request turned thinking on or off (`enable_thinking`, `thinking`).
    pub thinking: Option<bool>,
}
