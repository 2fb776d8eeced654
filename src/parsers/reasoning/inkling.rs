//! Inkling, whose text is blocks, each of a kind:
//! ```text
//! <|message_model|><|content_thinking|>…<|end_message|>
//! <|message_model|><|content_text|>…<|end_message|>
//! ```
//! Thoughts and texts lose their markers. Calls keep them, for the tool parser `inkling`. The name
//! that may stand before a kind is dropped.

use super::{
    super::{event::ReasoningEvent, scan::MarkerFinder},
    parser::{ReasoningMarkers, ReasoningParser, ReasoningStart},
};

const MESSAGE: &str = "<|message_model|>";
const THINKING: &str = "<|content_thinking|>";
const TEXT: &str = "<|content_text|>";
const CALL: &str = "<|content_invoke_tool_json|>";
const CALL_TEXT: &str = "<|content_invoke_tool_text|>";
const CALL_ERROR: &str = "<|content_tool_error|>";
const END: &str = "<|end_message|>";
const END_SAMPLING: &str = "<|content_model_end_sampling|>";

const MARKERS: &[&str] = &[MESSAGE, THINKING, TEXT, CALL, CALL_TEXT, CALL_ERROR, END, END_SAMPLING];

/// Reads the blocks of a text.
struct BlockReasoning {
    finder: MarkerFinder,
    state: State,
    starts_in_reasoning: bool,
    events: Vec<ReasoningEvent>,
}

enum State {
    /// Before the kind of a block. This is the text there.
    Header(String),
    Thoughts,
    Text,
    Call,
}

impl BlockReasoning {
    fn step(&mut self, c: char) {
        let mut text = String::new();
        let marker = self.finder.push(c, &mut text);
        self.text(&text);
        if let Some(marker) = marker {
            self.marker(MARKERS[marker]);
        }
    }

    fn text(&mut self, text: &str) {
        match &mut self.state {
            _ if text.is_empty() => {}
            State::Header(held) => held.push_str(text),
            State::Thoughts => self.events.push(ReasoningEvent::Reasoning(text.to_owned())),
            State::Text | State::Call => {
                self.events.push(ReasoningEvent::Content(text.to_owned()));
            }
        }
    }

    fn marker(&mut self, marker: &str) {
        let ends = matches!(marker, END | END_SAMPLING);
        if matches!(self.state, State::Call) {
            // The arguments may hold any text but the end of the call.
            self.text(marker);
            if ends {
                self.state = State::Text;
            }
            return;
        }
        if ends {
            // A text that no kind came before.
            self.flush();
        }
        self.state = match marker {
            MESSAGE => State::Header(String::new()),
            THINKING => State::Thoughts,
            CALL => State::Call,
            _ => State::Text,
        };
        if marker == CALL {
            self.text(marker);
        }
    }

    /// Takes the text of a header for content.
    fn flush(&mut self) {
        if let State::Header(held) = &mut self.state {
            let held = std::mem::take(held);
            self.state = State::Text;
            self.text(&held);
        }
    }
}

impl ReasoningParser for BlockReasoning {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        text.chars().for_each(|c| self.step(c));
        std::mem::take(&mut self.events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        let held = self.finder.take_held();
        self.text(&held);
        self.flush();
        std::mem::take(&mut self.events)
    }

    fn starts_in_reasoning(&self) -> bool {
        self.starts_in_reasoning
    }

    fn needs_special_tokens(&self) -> bool {
        true
    }

    fn markers(&self) -> Option<ReasoningMarkers> {
        Some(ReasoningMarkers { begin: THINKING.to_owned(), end: END.to_owned() })
    }
}

pub(in super::super) fn inkling(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    let prompt = start.prompt.map(str::trim_end).unwrap_or_default();
    let starts_in_reasoning = prompt.ends_with(THINKING);
    let state = match prompt {
        _ if starts_in_reasoning => State::Thoughts,
        prompt if prompt.ends_with(TEXT) => State::Text,
        _ => State::Header(String::new()),
    };
    let finder = MarkerFinder::new(MARKERS);
    BlockReasoning { finder, state, starts_in_reasoning, events: Vec::new() }
}
