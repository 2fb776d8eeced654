//! MiniMax-M2 with its thoughts in the answer. The prompt has opened them with `<think>`, which is
//! put before the text, so that clients can send the whole message again.

use super::{
    super::event::ReasoningEvent,
    parser::{ReasoningMarkers, ReasoningParser},
};

const START: &str = "<think>";
const END: &str = "</think>";

#[derive(Debug)]
struct AppendThink {
    has_begun: bool,
}

impl ReasoningParser for AppendThink {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        if text.is_empty() {
            return Vec::new();
        }
        let start = if std::mem::replace(&mut self.has_begun, true) { "" } else { START };
        vec![ReasoningEvent::Content([start, text].concat())]
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        Vec::new()
    }

    fn starts_in_reasoning(&self) -> bool {
        true
    }

    fn markers(&self) -> Option<ReasoningMarkers> {
        Some(ReasoningMarkers { begin: START.to_owned(), end: END.to_owned() })
    }
}

pub(in super::super) fn minimax_m2_append_think() -> impl ReasoningParser {
    AppendThink { has_begun: false }
}
