//! The tokens of a text that is tokenized piece by piece, from the end that is kept.

use std::ops::Range;

use super::fit::TruncationSide;
use crate::logic::request::ids::TokenId;

/// The tokens of a text that are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedTokens {
    /// All tokens. Above this number, as many pieces as show that there are more.
    UpTo(usize),
    /// At least this many tokens at one end, or all if there are fewer.
    Kept {
        /// Number of tokens.
        num_tokens: usize,
        /// The other end, which is dropped.
        dropped: TruncationSide,
    },
    /// No tokens, only their number.
    Count,
}

/// The tokens of a text so far.
#[derive(Debug)]
pub struct TextPieces {
    wanted: WantedTokens,
    /// The bytes that are not tokenized yet.
    rest: Range<usize>,
    /// In the order of tokenizing.
    pieces: Vec<Vec<TokenId>>,
    num_tokens: usize,
}

/// The tokens of a text that were needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedText {
    /// The tokens at the kept end.
    pub tokens: Vec<TokenId>,
    /// Number of tokens found.
    pub num_tokens: usize,
    /// Whether the text has no others.
    pub is_whole: bool,
}

impl TextPieces {
    /// Returns the pieces of a text of `text_bytes` bytes, none of it tokenized.
    #[must_use]
    pub fn new(text_bytes: usize, wanted: WantedTokens) -> Self {
        Self { wanted, rest: 0..text_bytes, pieces: Vec::new(), num_tokens: 0 }
    }

    /// Returns the end at which no pieces are taken.
    #[must_use]
    pub fn dropped(&self) -> TruncationSide {
        match self.wanted {
            WantedTokens::Kept { dropped, .. } => dropped,
            WantedTokens::UpTo(_) | WantedTokens::Count => TruncationSide::Right,
        }
    }

    /// Returns the bytes to tokenize next, or `None` when there are enough tokens.
    #[must_use]
    pub fn rest(&self) -> Option<Range<usize>> {
        let is_enough = match self.wanted {
            WantedTokens::UpTo(most) => self.num_tokens > most,
            WantedTokens::Kept { num_tokens, .. } => self.num_tokens >= num_tokens,
            WantedTokens::Count => false,
        };
        (!self.rest.is_empty() && !is_enough).then(|| self.rest.clone())
    }

    /// Adds the tokens of a piece at the kept end of the rest.
    pub fn push(&mut self, piece: &Range<usize>, tokens: Vec<TokenId>) {
        match self.dropped() {
            TruncationSide::Right => self.rest.start = piece.end.max(self.rest.start),
            TruncationSide::Left => self.rest.end = piece.start.min(self.rest.end),
        }
        self.num_tokens += tokens.len();
        if self.wanted != WantedTokens::Count {
            self.pieces.push(tokens);
        }
    }

    /// Returns the tokens in the text's order, between the tokens that stand around a text.
    #[must_use]
    pub fn finish(mut self, before: Vec<TokenId>, after: Vec<TokenId>) -> EncodedText {
        let is_whole = self.rest.is_empty();
        let (keeps_begin, keeps_end) = match self.dropped() {
            TruncationSide::Right => (true, is_whole),
            TruncationSide::Left => (is_whole, true),
        };
        let before = if keeps_begin { before } else { Vec::new() };
        let after = if keeps_end { after } else { Vec::new() };
        let num_tokens = self.num_tokens + before.len() + after.len();
        if self.wanted == WantedTokens::Count {
            return EncodedText { tokens: Vec::new(), num_tokens, is_whole };
        }
        if self.dropped() == TruncationSide::Left {
            self.pieces.reverse();
        }
        let mut tokens = before;
        tokens.reserve(num_tokens - tokens.len());
        tokens.extend(self.pieces.into_iter().flatten());
        tokens.extend(after);
        EncodedText { tokens, num_tokens, is_whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a text of ten bytes in pieces of three. Its tokens are the bytes' positions.
    fn encode(wanted: WantedTokens) -> (Vec<TokenId>, usize, bool, usize) {
        let mut pieces = TextPieces::new(10, wanted);
        let mut num_pieces = 0;
        while let Some(rest) = pieces.rest() {
            let piece = match pieces.dropped() {
                TruncationSide::Right => rest.start..rest.end.min(rest.start + 3),
                TruncationSide::Left => rest.start.max(rest.end.saturating_sub(3))..rest.end,
            };
            let tokens = piece.clone().map(|at| at as TokenId).collect();
            pieces.push(&piece, tokens);
            num_pieces += 1;
        }
        let encoded = pieces.finish(vec![100], vec![200]);
        (encoded.tokens, encoded.num_tokens, encoded.is_whole, num_pieces)
    }

    #[test]
    fn all_tokens_come_in_order_or_as_many_as_show_that_there_are_too_many() {
        let all = vec![100, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 200];
        assert_eq!(encode(WantedTokens::UpTo(10)), (all, 12, true, 4));
        assert_eq!(encode(WantedTokens::UpTo(5)), (vec![100, 0, 1, 2, 3, 4, 5], 7, false, 2));
        assert_eq!(encode(WantedTokens::Count), (vec![], 12, true, 4));
    }

    #[test]
    fn only_the_pieces_at_the_kept_end_are_tokenized() {
        let kept = |num_tokens, dropped| encode(WantedTokens::Kept { num_tokens, dropped });
        let first = (vec![100, 0, 1, 2, 3, 4, 5], 7, false, 2);
        assert_eq!(kept(4, TruncationSide::Right), first);
        assert_eq!(kept(4, TruncationSide::Left), (vec![4, 5, 6, 7, 8, 9, 200], 7, false, 2));
        let all = vec![100, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 200];
        assert_eq!(kept(11, TruncationSide::Left), (all, 12, true, 4));
        assert_eq!(kept(0, TruncationSide::Left).3, 0);
    }
}
