//! `<think>…</think>` of Granite 4.2, whose text begins with thoughts. Calls end them, too. The
//! line breaks after them are no part of the answer.

use super::{
    super::event::ReasoningEvent,
    parser::{ReasoningMarkers, ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<think>", "</think>", "<tool_call>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: true,
    thinks_unless_prompted: true,
    special_tokens: false,
};

/// Reads thoughts, and an answer without line breaks before it.
struct GraniteThinking {
    tagged: TaggedReasoning,
    has_content: bool,
}

impl GraniteThinking {
    fn trimmed(&mut self, events: Vec<ReasoningEvent>) -> Vec<ReasoningEvent> {
        let trimmed = events.into_iter().filter_map(|event| match event {
            ReasoningEvent::Content(text) if !self.has_content => {
                let text = text.trim_start_matches('\n');
                self.has_content = !text.is_empty();
                self.has_content.then(|| ReasoningEvent::Content(text.to_owned()))
            }
            event => Some(event),
        });
        trimmed.collect()
    }
}

impl ReasoningParser for GraniteThinking {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        let events = self.tagged.push(text);
        self.trimmed(events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        let events = self.tagged.finish();
        self.trimmed(events)
    }

    fn starts_in_reasoning(&self) -> bool {
        self.tagged.starts_in_reasoning()
    }

    fn needs_special_tokens(&self) -> bool {
        self.tagged.needs_special_tokens()
    }

    fn markers(&self) -> Option<ReasoningMarkers> {
        self.tagged.markers()
    }
}

pub(in super::super) fn granite_thinking(
    start: &ReasoningStart<'_>,
) -> impl ReasoningParser + use<> {
    GraniteThinking { tagged: TaggedReasoning::new(&FORMAT, start), has_content: false }
}
