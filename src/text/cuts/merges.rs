//! Where the merges of a BPE cannot reach across: between two characters that are next to each other
//! in no token.
//!
//! Merges make tokens, and a token that reached across would hold the two in a row. So those on both
//! sides come in the order that they have alone.

use std::collections::HashSet;

use tokenizers::{ModelWrapper, Tokenizer};

/// The pairs of characters within tokens, and the characters that are tokens.
#[derive(Debug)]
pub(super) struct Merges {
    pairs: HashSet<(char, char)>,
    chars: HashSet<char>,
}

impl Merges {
    /// Reads the tokenizer's model, or gives `None` for one that is more than merges of characters.
    pub(super) fn read(tokenizer: &Tokenizer) -> Option<Self> {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else { return None };
        let is_plain = model.dropout.is_none_or(|dropout| dropout == 0.0)
            && model.continuing_subword_prefix.is_none()
            && model.end_of_word_suffix.is_none()
            && !model.ignore_merges;
        if !is_plain {
            return None;
        }
        let (mut pairs, mut chars) = (HashSet::new(), HashSet::new());
        for token in model.get_vocab().keys() {
            let mut before = None;
            for c in token.chars() {
                if let Some(before) = before.replace(c) {
                    pairs.insert((before, c));
                }
            }
            let mut spelling = token.chars();
            chars.extend(spelling.next().filter(|_| spelling.next().is_none()));
        }
        Some(Self { pairs, chars })
    }

    /// Whether no merge reaches across. What is no token may become bytes, or one unknown with what
    /// is next to it.
    pub(super) fn part(&self, before: char, after: char) -> bool {
        let are_tokens = self.chars.contains(&before) && self.chars.contains(&after);
        are_tokens && !self.pairs.contains(&(before, after))
    }
}
