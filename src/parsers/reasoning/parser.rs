//! What a reasoning parser is.

use super::super::event::ReasoningEvent;

/// Parts what a model thinks from what it answers, while it writes. See the
/// [module](super::super) for what every parser promises.
pub trait ReasoningParser: Send {
    /// Takes the next piece of text.
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent>;

    /// The text is over: what was held back is given. Nothing may be pushed afterwards.
    fn finish(&mut self) -> Vec<ReasoningEvent>;

    /// Whether the text begins with thoughts, before any marker.
    fn starts_in_reasoning(&self) -> bool {
        false
    }

    /// Whether markers of the format are special tokens of its models, which the text must then
    /// show: `skip_special_tokens` has to be off.
    fn needs_special_tokens(&self) -> bool {
        false
    }

    /// The texts that usually begin and end thoughts, for who looks at tokens instead of text: who
    /// counts thoughts, bounds them, or constrains only what follows them. None: nobody can.
    fn markers(&self) -> Option<ReasoningMarkers> {
        None
    }
}

/// What begins and ends thoughts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningMarkers {
    /// Begins them, in the prompt or in the text.
    pub begin: String,
    /// Ends them; the answer follows at once.
    pub end: String,
}

/// What tells whether a text begins with thoughts.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReasoningStart<'a> {
    /// The rendered prompt, if it is at hand: many templates open the thoughts, or close them at
    /// once. Its end is enough.
    pub prompt: Option<&'a str>,
    /// Whether the request turned thinking on or off (`enable_thinking`, `thinking`).
    pub thinking: Option<bool>,
}
