//! Parsers of parrots' texts: thoughts end with the word "so", and `look paris .` calls the tool
//! `weather`.

use playhouse::parsers::{ReasoningEvent, ReasoningParser, ToolEvent, ToolParser};
use serde_json::json;

/// Reads the tool calls of an answer.
#[derive(Default)]
pub(crate) struct Look {
    held: String,
    num_calls: usize,
}

/// Reads the thoughts of an answer.
#[derive(Default)]
pub(crate) struct Hmm {
    held: String,
    is_answer: bool,
}

/// Returns the length in bytes of the part of `text` that cannot belong to a `marker`.
fn before(text: &str, marker: &str) -> usize {
    let mut starts = text.char_indices().map(|(start, _)| start);
    starts.find(|&start| marker.starts_with(&text[start..])).unwrap_or(text.len())
}

impl ToolParser for Look {
    fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        self.held.push_str(text);
        let mut events = Vec::new();
        while let Some((content, call)) = self.held.split_once("look ") {
            // A call is reported once it is complete.
            let Some((city, rest)) = call.split_once(" .") else { return events };
            if !content.trim().is_empty() {
                events.push(ToolEvent::Content(content.to_owned()));
            }
            let index = self.num_calls;
            let delta = json!({"city": city}).to_string();
            events.push(ToolEvent::CallStart { index, name: "weather".to_owned(), id: None });
            events.push(ToolEvent::CallArguments { index, delta });
            events.push(ToolEvent::CallEnd { index });
            self.num_calls += 1;
            self.held = rest.to_owned();
        }
        let content: String = self.held.drain(..before(&self.held, "look ")).collect();
        if !content.trim().is_empty() {
            events.push(ToolEvent::Content(content));
        }
        events
    }

    fn finish(&mut self) -> Vec<ToolEvent> {
        let rest = std::mem::take(&mut self.held);
        let is_text = !rest.trim().is_empty();
        is_text.then_some(ToolEvent::Content(rest)).into_iter().collect()
    }
}

impl ReasoningParser for Hmm {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        if self.is_answer {
            return vec![ReasoningEvent::Content(text.to_owned())];
        }
        self.held.push_str(text);
        let Some((thought, answer)) = self.held.split_once(" so") else {
            let thought: String = self.held.drain(..before(&self.held, " so")).collect();
            let is_text = !thought.is_empty();
            return is_text.then_some(ReasoningEvent::Reasoning(thought)).into_iter().collect();
        };
        let events = [
            ReasoningEvent::Reasoning(thought.to_owned()),
            ReasoningEvent::Content(answer.to_owned()),
        ];
        (self.is_answer, self.held) = (true, String::new());
        let is_text = |event: &ReasoningEvent| match event {
            ReasoningEvent::Reasoning(text) | ReasoningEvent::Content(text) => !text.is_empty(),
        };
        events.into_iter().filter(is_text).collect()
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        let rest = std::mem::take(&mut self.held);
        (!rest.is_empty()).then_some(ReasoningEvent::Reasoning(rest)).into_iter().collect()
    }

    fn starts_in_reasoning(&self) -> bool {
        true
    }
}
