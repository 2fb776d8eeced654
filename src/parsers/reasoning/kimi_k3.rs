//! `<|open|>think<|sep|>…<|close|>think<|sep|>` of Kimi K3. The answer is in a channel `response`,
//! whose markers are dropped. Calls are in a channel `tools`, which stays as it is.

use super::{
    super::{event::ReasoningEvent, scan::MarkerFinder},
    parser::{ReasoningMarkers, ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const RESPONSE: &str = "<|open|>response<|sep|>";
const TOOLS: &str = "<|open|>tools<|sep|>";
const TOOLS_END: &str = "<|close|>tools<|sep|>";

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<|open|>think<|sep|>", "<|close|>think<|sep|>", RESPONSE, TOOLS],
    num_starts: 1,
    num_ends: 1,
    place: Place::Beginning,
    thinks_unless_told: true,
    thinks_unless_prompted: true,
    special_tokens: true,
};

/// The markers after thoughts.
const CHANNELS: &[&str] =
    &[RESPONSE, "<|close|>response<|sep|>", "<|close|>message<|sep|>", TOOLS, TOOLS_END];

/// Reads thoughts, and unwraps the answer.
struct ChannelReasoning {
    thoughts: TaggedReasoning,
    finder: MarkerFinder,
    is_in_tools: bool,
}

impl ChannelReasoning {
    /// Returns the events, with the answer out of its channel.
    fn unwrapped(&mut self, events: Vec<ReasoningEvent>) -> Vec<ReasoningEvent> {
        let mut unwrapped = Vec::with_capacity(events.len());
        for event in events {
            match event {
                ReasoningEvent::Reasoning(_) => unwrapped.push(event),
                ReasoningEvent::Content(text) => {
                    let mut content = String::new();
                    text.chars().for_each(|c| self.step(c, &mut content));
                    if !content.is_empty() {
                        unwrapped.push(ReasoningEvent::Content(content));
                    }
                }
            }
        }
        unwrapped
    }

    fn step(&mut self, c: char, content: &mut String) {
        let Some(marker) = self.finder.push(c, content) else { return };
        let words = CHANNELS[marker];
        if self.is_in_tools || words == TOOLS {
            content.push_str(words);
            self.is_in_tools = words != TOOLS_END;
        }
    }
}

impl ReasoningParser for ChannelReasoning {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        let events = self.thoughts.push(text);
        self.unwrapped(events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        let events = self.thoughts.finish();
        let mut events = self.unwrapped(events);
        let held = self.finder.take_held();
        if !held.is_empty() {
            events.push(ReasoningEvent::Content(held));
        }
        events
    }

    fn starts_in_reasoning(&self) -> bool {
        self.thoughts.starts_in_reasoning()
    }

    fn needs_special_tokens(&self) -> bool {
        self.thoughts.needs_special_tokens()
    }

    fn markers(&self) -> Option<ReasoningMarkers> {
        self.thoughts.markers()
    }
}

pub(in super::super) fn kimi_k3(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    let answers = start.prompt.is_some_and(|prompt| prompt.trim_end().ends_with(RESPONSE));
    let thinking = if answers { Some(false) } else { start.thinking };
    let thoughts = TaggedReasoning::new(&FORMAT, &ReasoningStart { thinking, ..*start });
    ChannelReasoning { thoughts, finder: MarkerFinder::new(CHANNELS), is_in_tools: false }
}
