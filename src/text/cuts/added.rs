//! Added tokens, which are found in a text before it is cut into words.

use std::collections::BTreeSet;

use tokenizers::{NormalizedString, Normalizer, Tokenizer};

/// What of them matters at a cut.
#[derive(Debug, Default)]
pub(super) struct AddedTokens {
    /// Two characters in a row within one.
    pairs: BTreeSet<(char, char)>,
    firsts: BTreeSet<char>,
    /// What those that are found before the normalizer runs end with: it runs anew behind them.
    lasts_before_normalizer: BTreeSet<char>,
    /// One takes the white space before it.
    takes_before: bool,
    /// What those that take the white space behind them end with.
    lasts_taking_behind: BTreeSet<char>,
    /// What those that are no part of a word begin and end with.
    edges_of_words: BTreeSet<char>,
}

impl AddedTokens {
    /// Reads them from a tokenizer, or gives `None` where its normalizer fails on one.
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

    /// Whether one may begin with `c`.
    pub(super) fn may_begin_with(&self, c: char) -> bool {
        self.firsts.contains(&c)
    }

    /// Whether the normalizer may begin a text behind `c`, where one that it does not see ends.
    pub(super) fn may_end_unnormalized(&self, c: char) -> bool {
        self.lasts_before_normalizer.contains(&c)
    }

    /// Whether those in a text are those in its two sides, cut between `before` and `after`, which
    /// become the two of `mapped`.
    pub(super) fn may_be_cut(&self, before: char, after: char, mapped: (char, char)) -> bool {
        let is_within = self.pairs.contains(&(before, after)) || self.pairs.contains(&mapped);
        let is_at_word =
            [before, after, mapped.0, mapped.1].iter().any(|c| self.edges_of_words.contains(c));
        let is_taken =
            self.may_take_space(before, after) || self.may_take_space(mapped.0, mapped.1);
        !(is_within || is_taken || is_at_word)
    }

    /// Whether one may take white space on the other side of a cut. It takes all of a row, so that it
    /// may stand further away than at the cut.
    fn may_take_space(&self, before: char, after: char) -> bool {
        let is_behind_row = before.is_whitespace() && !self.lasts_taking_behind.is_empty();
        let is_taken_behind =
            after.is_whitespace() && (is_behind_row || self.lasts_taking_behind.contains(&before));
        // The row before a token that is cut off from it ends with white space, wherever it begins.
        (self.takes_before && before.is_whitespace()) || is_taken_behind
    }
}
