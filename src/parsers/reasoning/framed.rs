//! Thoughts, and an answer within tags of its own: `<response>…</response>`. The tags are dropped,
//! with the white space before the first one and the line breaks at the inner sides of both.

use super::{
    super::{event::ReasoningEvent, scan::MarkerFinder},
    parser::{ReasoningMarkers, ReasoningParser, ReasoningStart},
    tagged::{TaggedFormat, TaggedReasoning},
};

/// The tags around an answer.
#[derive(Debug)]
pub(super) struct Frame {
    /// The tags that may open the answer. None is the beginning of another.
    pub(super) opens: &'static [&'static str],
    /// The tags that close it, each also after a line break.
    pub(super) closes: &'static [&'static str],
}

/// Reads thoughts, and then an answer that may be in a frame.
#[derive(Debug)]
pub(super) struct FramedReasoning {
    thoughts: TaggedReasoning,
    frame: &'static Frame,
    state: State,
    finder: MarkerFinder,
}

#[derive(Debug)]
enum State {
    /// White space and the beginning of a tag, or less.
    Before(String),
    /// Just after the opening tag.
    Opened,
    Inside,
    /// The closing tag, and white space after it. It is no closing tag if other text follows.
    Closed(String),
    /// The answer has no frame.
    Plain,
}

impl FramedReasoning {
    /// Returns a reader of thoughts in `format`, and of an answer in `frame`. The prompt may have
    /// opened the answer.
    pub(super) fn new(
        frame: &'static Frame,
        format: &'static TaggedFormat,
        start: &ReasoningStart<'_>,
    ) -> Self {
        let prompt = start.prompt.map(str::trim_end).unwrap_or_default();
        let is_open = frame.opens.iter().any(|open| prompt.ends_with(open));
        let state = if is_open { State::Opened } else { State::Before(String::new()) };
        let thoughts = TaggedReasoning::new(format, start);
        Self { thoughts, frame, state, finder: MarkerFinder::new(frame.closes) }
    }

    /// Passes on the events of the thoughts, and the answer without its frame.
    fn unframed(&mut self, events: Vec<ReasoningEvent>) -> Vec<ReasoningEvent> {
        let mut unframed = Vec::with_capacity(events.len());
        for event in events {
            match event {
                ReasoningEvent::Reasoning(_) => unframed.push(event),
                ReasoningEvent::Content(text) => {
                    let mut content = String::new();
                    text.chars().for_each(|c| self.step(c, &mut content));
                    if !content.is_empty() {
                        unframed.push(ReasoningEvent::Content(content));
                    }
                }
            }
        }
        unframed
    }

    /// Takes a character of the answer. Appends to `content` the text that is certain by now.
    fn step(&mut self, c: char, content: &mut String) {
        match &mut self.state {
            State::Before(held) => {
                held.push(c);
                let begun = held.trim_start();
                if self.frame.opens.contains(&begun) {
                    self.state = State::Opened;
                } else if !self.frame.opens.iter().any(|open| open.starts_with(begun)) {
                    content.push_str(held);
                    self.state = State::Plain;
                }
            }
            State::Plain => content.push(c),
            State::Opened => {
                self.state = State::Inside;
                if c != '\n' {
                    self.step(c, content);
                }
            }
            State::Inside => {
                if let Some(close) = self.finder.push(c, content) {
                    self.state = State::Closed(self.frame.closes[close].to_owned());
                }
            }
            State::Closed(held) if c.is_whitespace() => held.push(c),
            State::Closed(held) => {
                content.push_str(held);
                self.state = State::Inside;
                self.step(c, content);
            }
        }
    }

    /// Returns the held text that became no tag.
    fn rest(&mut self) -> String {
        match &mut self.state {
            State::Before(held) => std::mem::take(held),
            State::Inside => self.finder.take_held(),
            State::Opened | State::Closed(_) | State::Plain => String::new(),
        }
    }
}

impl ReasoningParser for FramedReasoning {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        let events = self.thoughts.push(text);
        self.unframed(events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        let events = self.thoughts.finish();
        let mut events = self.unframed(events);
        let rest = self.rest();
        if !rest.is_empty() {
            events.push(ReasoningEvent::Content(rest));
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
