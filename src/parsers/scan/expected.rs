//! A scanner for one of several words that must come next, after white space.

use super::words::Words;

/// Reads up to one of `words`.
#[derive(Debug)]
pub(in super::super) struct Expected {
    words: Words,
    seen: String,
}

/// The result of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Match {
    /// White space, or a part of a word.
    Partial,
    /// The last character of the word with this index.
    Whole(usize),
    /// None of the words comes next.
    No,
}

impl Expected {
    /// No word may be the beginning of another.
    pub(in super::super) fn new(words: impl Into<Words>) -> Self {
        Self { words: words.into(), seen: String::new() }
    }

    pub(in super::super) fn step(&mut self, c: char) -> Match {
        if self.seen.is_empty() && c.is_whitespace() {
            return Match::Partial;
        }
        self.seen.push(c);
        if let Some(index) = self.words.position(|word| word == self.seen) {
            self.seen.clear();
            return Match::Whole(index);
        }
        if self.words.position(|word| word.starts_with(&self.seen)).is_some() {
            Match::Partial
        } else {
            Match::No
        }
    }
}
