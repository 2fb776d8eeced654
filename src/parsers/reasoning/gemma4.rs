//! `<|channel>thought` and a line break, thoughts, `<channel|>`: Gemma 4. A tool call ends thoughts
//! as well.

use super::{
    super::event::ReasoningEvent,
    parser::{ReasoningMarkers, ReasoningParser, ReasoningStart},
    tagged::{Place, TaggedFormat, TaggedReasoning},
};

const FORMAT: TaggedFormat = TaggedFormat {
    markers: &["<|channel>", "<channel|>", "<|tool_call>"],
    num_starts: 1,
    num_ends: 1,
    place: Place::Anywhere,
    thinks_unless_told: false,
    thinks_unless_prompted: false,
    special_tokens: true,
};

/// The name of the channel of thoughts, which is no thought.
const LABEL: &str = "thought\n";

/// Reads thoughts, and leaves out the name of their channel.
struct GemmaReasoning {
    tagged: TaggedReasoning,
    /// The beginning of thoughts that may still become the name. `None`: it is decided.
    held: Option<String>,
}

impl GemmaReasoning {
    /// Returns the events without the name of the channel.
    fn unlabelled(&mut self, events: Vec<ReasoningEvent>) -> Vec<ReasoningEvent> {
        let mut left = Vec::with_capacity(events.len());
        for event in events {
            match (event, self.held.take()) {
                (ReasoningEvent::Reasoning(text), Some(held)) => {
                    let text = held + &text;
                    if LABEL.starts_with(&text) && text != LABEL {
                        self.held = Some(text);
                        continue;
                    }
                    let text = text.strip_prefix(LABEL).unwrap_or(&text).to_owned();
                    left.push(ReasoningEvent::Reasoning(text));
                }
                (ReasoningEvent::Content(text), held) => {
                    // Thoughts may come after this text, but not after text that they precede.
                    match held {
                        Some(held) if held.is_empty() => self.held = Some(held),
                        Some(held) => left.push(ReasoningEvent::Reasoning(held)),
                        None => {}
                    }
                    left.push(ReasoningEvent::Content(text));
                }
                (event, None) => left.push(event),
            }
        }
        left.retain(|event| *event != ReasoningEvent::Reasoning(String::new()));
        left
    }
}

impl ReasoningParser for GemmaReasoning {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        let events = self.tagged.push(text);
        self.unlabelled(events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        let events = self.tagged.finish();
        let mut events = self.unlabelled(events);
        let held = self.held.take().filter(|held| !held.is_empty());
        events.extend(held.map(ReasoningEvent::Reasoning));
        events
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

pub(in super::super) fn gemma4(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    // A prompt that opens the channel names it, too.
    let unnamed = |prompt: &'_ str| -> usize {
        let prompt = prompt.trim_end();
        prompt.strip_suffix(LABEL.trim_end()).unwrap_or(prompt).len()
    };
    let prompt = start.prompt.map(|prompt| &prompt[..unnamed(prompt)]);
    let start = ReasoningStart { prompt, ..*start };
    GemmaReasoning { tagged: TaggedReasoning::new(&FORMAT, &start), held: Some(String::new()) }
}
