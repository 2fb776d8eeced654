//! `<think>…</think>` of MiniCPM-V, as in Qwen3. Its tokenizer has tokens for line breaks that are
//! written as the two characters `\n`, which become line breaks. Markers of its tokenizer are
//! dropped. Calls stay as they are, for the tool parser `qwen3_coder`.

use super::{
    super::{
        event::ReasoningEvent,
        scan::{MarkerFinder, WrittenNewlines},
    },
    parser::{ReasoningMarkers, ReasoningParser, ReasoningStart},
    qwen3,
    tagged::TaggedReasoning,
};

/// The markers around calls. Each end follows its beginning.
const CALLS: [&str; 4] = ["<tool_call>", "</tool_call>", "<function=", "</function>"];

/// The markers of an answer: those of calls, and those that are dropped.
const MARKERS: &[&str] = &[
    CALLS[0],
    CALLS[1],
    CALLS[2],
    CALLS[3],
    "<|im_end|>",
    "<reserved_12>",
    "<reserved_13>",
    "<reserved_14>",
    "<reserved_15>",
    "<|reserved_12|>",
    "<|reserved_13|>",
    "<|reserved_14|>",
    "<|reserved_15|>",
];

/// Cleans thoughts, or an answer.
struct Cleaner {
    finder: MarkerFinder,
    newlines: WrittenNewlines,
    /// Whether calls stay as they are.
    has_calls: bool,
    /// The end of the call that the text is in.
    call_end: Option<&'static str>,
}

impl Cleaner {
    fn new(has_calls: bool) -> Self {
        let finder = MarkerFinder::new(MARKERS);
        Self { finder, newlines: WrittenNewlines::default(), has_calls, call_end: None }
    }

    /// Returns `text` as it is shown, as far as it is decided.
    fn push(&mut self, text: &str) -> String {
        let mut shown = String::new();
        let mut plain = String::new();
        for c in text.chars() {
            let marker = self.finder.push(c, &mut plain);
            self.text(&plain, &mut shown);
            plain.clear();
            if let Some(marker) = marker {
                self.marker(marker, &mut shown);
            }
        }
        shown
    }

    fn text(&mut self, text: &str, shown: &mut String) {
        if self.call_end.is_some() {
            shown.push_str(text);
        } else {
            text.chars().for_each(|c| self.newlines.push(c, shown));
        }
    }

    fn marker(&mut self, marker: usize, shown: &mut String) {
        let words = MARKERS[marker];
        let is_of_call = marker < CALLS.len();
        if self.call_end.is_some() {
            shown.push_str(words);
            self.call_end = self.call_end.filter(|end| *end != words);
        } else if is_of_call && self.has_calls && marker.is_multiple_of(2) {
            self.newlines.release(shown);
            shown.push_str(words);
            self.call_end = Some(CALLS[marker + 1]);
        } else if is_of_call {
            self.text(words, shown);
        }
    }

    /// Returns the text that was held back.
    fn finish(&mut self) -> String {
        let mut shown = String::new();
        let held = self.finder.take_held();
        self.text(&held, &mut shown);
        self.newlines.release(&mut shown);
        shown
    }
}

struct CleanReasoning {
    tagged: TaggedReasoning,
    thoughts: Cleaner,
    answer: Cleaner,
}

impl CleanReasoning {
    fn cleaned(&mut self, events: Vec<ReasoningEvent>) -> Vec<ReasoningEvent> {
        let mut cleaned = Vec::with_capacity(events.len() + 1);
        for event in events {
            match event {
                ReasoningEvent::Reasoning(text) => {
                    cleaned.push(ReasoningEvent::Reasoning(self.thoughts.push(&text)));
                }
                ReasoningEvent::Content(text) => {
                    // The thoughts are complete.
                    cleaned.push(ReasoningEvent::Reasoning(self.thoughts.finish()));
                    cleaned.push(ReasoningEvent::Content(self.answer.push(&text)));
                }
            }
        }
        cleaned.retain(|event| match event {
            ReasoningEvent::Reasoning(text) | ReasoningEvent::Content(text) => !text.is_empty(),
        });
        cleaned
    }
}

impl ReasoningParser for CleanReasoning {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        let events = self.tagged.push(text);
        self.cleaned(events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        let events = self.tagged.finish();
        let mut events = self.cleaned(events);
        let thoughts = ReasoningEvent::Reasoning(self.thoughts.finish());
        let answer = ReasoningEvent::Content(self.answer.finish());
        events.extend([thoughts, answer].into_iter().filter(|event| match event {
            ReasoningEvent::Reasoning(text) | ReasoningEvent::Content(text) => !text.is_empty(),
        }));
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

pub(in super::super) fn minicpmv(start: &ReasoningStart<'_>) -> impl ReasoningParser + use<> {
    CleanReasoning {
        tagged: TaggedReasoning::new(&qwen3::FORMAT, start),
        thoughts: Cleaner::new(false),
        answer: Cleaner::new(true),
    }
}
