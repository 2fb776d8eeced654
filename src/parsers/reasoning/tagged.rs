//! Thoughts between two markers.

use super::{
    super::{
        event::ReasoningEvent,
        scan::{MarkerFinder, Words},
    },
    parser::{ReasoningMarkers, ReasoningParser, ReasoningStart},
};

/// A format's markers of thoughts.
#[derive(Debug)]
pub(super) struct TaggedFormat {
    /// First the start markers, then the end markers, then markers that end thoughts and belong to
    /// the answer. No marker may be the beginning of another.
    pub(super) markers: &'static [&'static str],
    pub(super) num_starts: usize,
    pub(super) num_ends: usize,
    /// The place where thoughts may start.
    pub(super) place: Place,
    /// Whether the text begins with thoughts by default.
    pub(super) thinks_unless_told: bool,
    /// Whether the text also begins with thoughts if the prompt is known and ends without a marker.
    pub(super) thinks_unless_prompted: bool,
    /// Whether markers are special tokens.
    pub(super) special_tokens: bool,
}

/// The place where thoughts may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At the beginning of the text. Later, a start marker is ordinary text.
    Beginning,
    /// Anywhere, but only once.
    Anywhere,
}

/// Reads thoughts of a [`TaggedFormat`].
#[derive(Debug)]
pub(super) struct TaggedReasoning {
    format: &'static TaggedFormat,
    /// Those of the format, unless the prompt shows others.
    markers: Words,
    starts_in_reasoning: bool,
    finder: MarkerFinder,
    state: State,
    events: Vec<ReasoningEvent>,
}

#[derive(Debug)]
enum State {
    /// Only white space has arrived. This is it.
    Beginning(String),
    /// No thoughts yet, but they may start.
    Before,
    Thoughts,
    Answer,
}

impl TaggedReasoning {
    pub(super) fn new(format: &'static TaggedFormat, start: &ReasoningStart<'_>) -> Self {
        Self::with_markers(format, format.markers.into(), start)
    }

    /// Returns a reader of `format` with other markers in the place of its own. In the prompt of
    /// `start`, they are those of the format.
    pub(super) fn with_markers(
        format: &'static TaggedFormat,
        markers: Words,
        start: &ReasoningStart<'_>,
    ) -> Self {
        Self {
            format,
            markers: markers.clone(),
            starts_in_reasoning: format.starts_in_reasoning(start),
            finder: MarkerFinder::new(markers),
            state: State::Beginning(String::new()),
            events: Vec::new(),
        }
    }

    fn step(&mut self, c: char) {
        if matches!(self.state, State::Answer) {
            return self.content(c.encode_utf8(&mut [0; 4]));
        }
        let mut text = String::new();
        let marker = self.finder.push(c, &mut text);
        self.text(&text);
        if let Some(marker) = marker {
            self.marker(marker);
        }
        if matches!(self.state, State::Answer) {
            // Markers are no longer expected. Text that could have become one is plain text, and
            // comes first.
            let held = self.finder.take_held();
            self.content(&held);
        }
    }

    fn text(&mut self, text: &str) {
        let mut text = text;
        let begun;
        if let State::Beginning(blank) = &mut self.state {
            blank.push_str(text);
            if text.trim().is_empty() {
                return;
            }
            begun = std::mem::take(blank);
            text = &begun;
            self.state = match self.format.place {
                _ if self.starts_in_reasoning => State::Thoughts,
                Place::Beginning => State::Answer,
                Place::Anywhere => State::Before,
            };
        }
        match self.state {
            State::Thoughts => self.reasoning(text),
            _ => self.content(text),
        }
    }

    fn marker(&mut self, marker: usize) {
        let words = self.markers.get(marker).to_owned();
        let (starts, ends) = (self.format.num_starts, self.format.num_ends);
        let is_start = marker < starts;
        let is_end = !is_start && marker < starts + ends;
        let thinks = match self.state {
            State::Beginning(_) => self.starts_in_reasoning,
            State::Thoughts => true,
            State::Before | State::Answer => false,
        };
        match self.state {
            State::Beginning(_) | State::Before if is_start => self.state = State::Thoughts,
            // An end without a start: the prompt has ended the thoughts, and the model ends them
            // again.
            State::Beginning(_) if is_end => self.state = State::Answer,
            _ if thinks && !is_start => {
                self.state = State::Answer;
                self.content(if is_end { "" } else { &words });
            }
            _ => self.text(&words),
        }
    }

    fn reasoning(&mut self, text: &str) {
        match self.events.last_mut() {
            _ if text.is_empty() => {}
            Some(ReasoningEvent::Reasoning(last)) => last.push_str(text),
            _ => self.events.push(ReasoningEvent::Reasoning(text.to_owned())),
        }
    }

    fn content(&mut self, text: &str) {
        match self.events.last_mut() {
            _ if text.is_empty() => {}
            Some(ReasoningEvent::Content(last)) => last.push_str(text),
            _ => self.events.push(ReasoningEvent::Content(text.to_owned())),
        }
    }
}

impl TaggedFormat {
    fn starts_in_reasoning(&self, start: &ReasoningStart<'_>) -> bool {
        let ends_with = |markers: &[&str]| {
            let prompt = start.prompt.map(str::trim_end);
            prompt.is_some_and(|prompt| markers.iter().any(|marker| prompt.ends_with(marker)))
        };
        let (starts, rest) = self.markers.split_at(self.num_starts);
        if ends_with(starts) {
            return true;
        }
        if ends_with(&rest[..self.num_ends]) || start.thinking == Some(false) {
            return false;
        }
        match start.prompt {
            Some(_) => self.thinks_unless_prompted,
            None => self.thinks_unless_told,
        }
    }
}

impl ReasoningParser for TaggedReasoning {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        text.chars().for_each(|c| self.step(c));
        std::mem::take(&mut self.events)
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        let held = self.finder.take_held();
        if !held.is_empty() {
            self.text(&held);
        }
        if let State::Beginning(blank) = &mut self.state {
            let blank = std::mem::take(blank);
            if self.starts_in_reasoning { self.reasoning(&blank) } else { self.content(&blank) }
        }
        std::mem::take(&mut self.events)
    }

    fn starts_in_reasoning(&self) -> bool {
        self.starts_in_reasoning
    }

    fn needs_special_tokens(&self) -> bool {
        self.format.special_tokens
    }

    fn markers(&self) -> Option<ReasoningMarkers> {
        let TaggedFormat { num_starts, num_ends, .. } = self.format;
        let has_both = *num_starts > 0 && *num_ends > 0;
        let (begin, end) = (self.markers.get(0), self.markers.get(*num_starts));
        has_both.then(|| ReasoningMarkers { begin: begin.to_owned(), end: end.to_owned() })
    }
}
