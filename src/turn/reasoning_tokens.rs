//! The number of an output's tokens that are thoughts, for `usage`.

use std::sync::Arc;

use crate::api::Thinking;

/// Counts the tokens between the markers of thoughts.
#[derive(Debug)]
pub(super) struct ReasoningTokens {
    markers: Arc<Thinking>,
    state: State,
    /// The last tokens, as many as the longer marker has.
    tail: Vec<u32>,
    count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Thinking,
    After,
}

impl ReasoningTokens {
    pub(super) fn new(markers: Arc<Thinking>, starts_in_reasoning: bool) -> Self {
        let state = if starts_in_reasoning { State::Thinking } else { State::Before };
        Self { markers, state, tail: Vec::new(), count: 0 }
    }

    pub(super) fn push(&mut self, token: u32) {
        let (begin, end) = (&self.markers.begin, &self.markers.end);
        if self.tail.len() >= begin.len().max(end.len()).max(1) {
            self.tail.remove(0);
        }
        self.tail.push(token);
        match self.state {
            State::Before if self.tail.ends_with(begin) => self.state = State::Thinking,
            State::Thinking => {
                self.count += 1;
                if self.tail.ends_with(begin) {
                    // The model repeats the marker at the prompt's end.
                    self.count = self.count.saturating_sub(begin.len());
                } else if self.tail.ends_with(end) {
                    self.count = self.count.saturating_sub(end.len());
                    self.state = State::After;
                }
            }
            State::Before | State::After => {}
        }
    }

    /// Ends the thoughts without a marker.
    pub(super) fn end(&mut self) {
        if self.state == State::Thinking {
            self.state = State::After;
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(starts: bool, tokens: &[u32]) -> usize {
        let markers = Thinking { begin: vec![7, 8], end: vec![9], budget: None };
        let mut counter = ReasoningTokens::new(Arc::new(markers), starts);
        tokens.iter().for_each(|&token| counter.push(token));
        counter.count()
    }

    #[test]
    fn tokens_between_the_markers_count() {
        assert_eq!(count(false, &[7, 8, 1, 2, 3, 9, 4]), 3);
        assert_eq!(count(false, &[7, 8, 1]), 1, "cut off");
        assert_eq!(count(false, &[1, 2, 9, 4]), 0, "never begun");
        assert_eq!(count(true, &[1, 2, 9, 4]), 2, "begun in the prompt");
        assert_eq!(count(true, &[7, 8, 1, 2, 9]), 2, "begun twice");
        assert_eq!(count(true, &[9, 1, 2]), 0);
        assert_eq!(count(false, &[7, 8, 1, 9, 7, 8, 1, 9]), 1, "thoughts come once");
    }

    #[test]
    fn thoughts_may_end_without_a_marker() {
        let markers = Thinking { begin: vec![7], end: vec![9], budget: None };
        let mut counter = ReasoningTokens::new(Arc::new(markers), true);
        counter.push(1);
        counter.end();
        counter.push(2);
        assert_eq!(counter.count(), 1);
    }
}
