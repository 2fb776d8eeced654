//! Places that no merge of a BPE reaches across: between two characters that no token holds in a
//! row.
//!
//! Merges make tokens, and a token across the place would hold the two in a row. So the merges on
//! each side come in the order that they have without the other side.

use std::collections::HashSet;

use tokenizers::{ModelWrapper, Tokenizer};

/// The pairs of characters within tokens, and the characters that are tokens.
#[derive(Debug)]
pub(super) struct Merges {
    pairs: HashSet<(char, char)>,
    chars: HashSet<char>,
}

impl Merges {
    /// Reads the tokenizer's model. Returns `None` for a model that does more than merge
    /// characters.
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

    /// Returns whether no merge reaches across. A character that is no token may become bytes, or
    /// one unknown token together with its neighbour.
    pub(super) fn part(&self, before: char, after: char) -> bool {
        let are_tokens = self.chars.contains(&before) && self.chars.contains(&after);
        are_tokens && !self.pairs.contains(&(before, after))
    }
}
