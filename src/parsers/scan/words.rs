//! The words that a scanner looks for.

use std::sync::Arc;

/// Words of a format, or words that an answer itself makes known.
#[derive(Debug, Clone)]
pub(in super::super) enum Words {
    Fixed(&'static [&'static str]),
    Made(Arc<[String]>),
}

impl Words {
    /// Returns the index of the first word for which `is` holds.
    pub(super) fn position(&self, is: impl FnMut(&str) -> bool) -> Option<usize> {
        match self {
            Self::Fixed(words) => words.iter().copied().position(is),
            Self::Made(words) => words.iter().map(String::as_str).position(is),
        }
    }

    /// Returns the word of this index, or an empty one.
    pub(in super::super) fn get(&self, index: usize) -> &str {
        match self {
            Self::Fixed(words) => words.get(index).copied().unwrap_or_default(),
            Self::Made(words) => words.get(index).map(String::as_str).unwrap_or_default(),
        }
    }
}

impl From<&'static [&'static str]> for Words {
    fn from(words: &'static [&'static str]) -> Self {
        Self::Fixed(words)
    }
}

impl<const N: usize> From<&'static [&'static str; N]> for Words {
    fn from(words: &'static [&'static str; N]) -> Self {
        Self::Fixed(words)
    }
}

impl From<Vec<String>> for Words {
    fn from(words: Vec<String>) -> Self {
        Self::Made(words.into())
    }
}
