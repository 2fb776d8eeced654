//! Added tokens, which are found in a text before it is cut into words.

use std::collections::BTreeSet;

use tokenizers::{NormalizedString, Normalizer, Tokenizer};

/// The properties of added tokens that matter at a cut.
#[derive(Debug, Default)]
pub(super) struct AddedTokens {
    /// Neighbouring characters within a token.
    pairs: BTreeSet<(char, char)>,
    firsts: BTreeSet<char>,
    /// Last characters of the tokens that are found before the normalizer runs. The normalizer
    /// starts anew behind them.
    lasts_before_normalizer: BTreeSet<char>,
    /// Whether any token takes the white space before it.
    takes_before: bool,
    /// Last characters of the tokens that take the white space behind them.
    lasts_taking_behind: BTreeSet<char>,
    /// First and last characters of the tokens that must not be part of a word.
    edges_of_words: BTreeSet<char>,
}

impl AddedTokens {
    /// Reads the added tokens of a tokenizer. Returns `None` if its normalizer fails on one.
    pub(super) fn read(tokenizer: &Tokenizer) -> Option<Self> {
        let mut all = Self::default();
        for token in tokenizer.get_added_vocabulary().get_added_tokens_decoder().values() {
            let chars: Vec<char> = token.content.chars().collect();
            let mut normalized = NormalizedString::from(token.content.as_str());
            if let Some(normalizer) = tokenizer.get_normalizer() {
                normalizer.normalize(&mut normalized).ok()?;
            }
            let normalized: Vec<char> = normalized.get().chars().collect();
            let spellings = [Some(&chars), token.normalized.then_some(&normalized)];
            for spelling in spellings.into_iter().flatten() {
                all.pairs.extend(spelling.windows(2).map(|pair| (pair[0], pair[1])));
                let (first, last) = (spelling.first().copied(), spelling.last().copied());
                all.firsts.extend(first);
                if !token.normalized {
                    all.lasts_before_normalizer.extend(last);
                }
                if token.rstrip {
                    all.lasts_taking_behind.extend(last);
                }
                if token.single_word {
                    all.edges_of_words.extend(first.into_iter().chain(last));
                }
            }
            all.takes_before |= token.lstrip;
        }
        Some(all)
    }

    /// Returns whether an added token may begin with `c`.
    pub(super) fn may_begin_with(&self, c: char) -> bool {
        self.firsts.contains(&c)
    }

    /// Returns whether a token that the normalizer does not see may end with `c`. The normalizer
    /// starts anew behind it.
    pub(super) fn may_end_unnormalized(&self, c: char) -> bool {
        self.lasts_before_normalizer.contains(&c)
    }

    /// Returns whether a text has the same added tokens whole and cut between `before` and `after`.
    /// `mapped` are these two characters after the normalizer.
    pub(super) fn may_be_cut(&self, before: char, after: char, mapped: (char, char)) -> bool {
        let is_within = self.pairs.contains(&(before, after)) || self.pairs.contains(&mapped);
        let is_at_word =
            [before, after, mapped.0, mapped.1].iter().any(|c| self.edges_of_words.contains(c));
        let is_taken =
            self.may_take_space(before, after) || self.may_take_space(mapped.0, mapped.1);
        !(is_within || is_taken || is_at_word)
    }

    /// Returns whether a token may take white space on the other side of a cut. A token takes a
    /// whole row of white space, so it may stand further away than at the cut.
    fn may_take_space(&self, before: char, after: char) -> bool {
        let is_behind_row = before.is_whitespace() && !self.lasts_taking_behind.is_empty();
        let is_taken_behind =
            after.is_whitespace() && (is_behind_row || self.lasts_taking_behind.contains(&before));
        // A cut between such a token and its row stands behind white space, wherever the row
        // begins.
        (self.takes_before && before.is_whitespace()) || is_taken_behind
    }
}
