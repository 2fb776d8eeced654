//! Thoughts at the beginning of an output. They need not have the structure that the answer must
//! have, and a budget limits their length.
//!
//! The rules are vLLM's. If the last marker of the prompt ends thoughts, the whole output is
//! answer. Otherwise the output is thoughts up to its first end marker, even without a begin
//! marker, because some models write none. Ended thoughts do not begin again. The budget counts the
//! output's tokens after the begin marker. The end marker is forced only after a begin marker:
//! without one the output may be an answer.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::logic::request::ids::TokenId;

/// The markers of a model's thoughts, and their budget. The structure of an output concerns only
/// the answer after them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinking {
    /// The tokens that begin thoughts. A prompt may contain them. An output may begin without them.
    pub begin: Vec<TokenId>,
    /// The tokens that end thoughts. There is at least one.
    pub end: Vec<TokenId>,
    /// Maximum number of tokens of thought. After them, the end marker is forced.
    pub budget: Option<u32>,
}

/// The progress of an output through its thoughts. It is a function of prompt and output, updated
/// with each token.
#[derive(Debug, Clone)]
pub struct Thoughts {
    thinking: Arc<Thinking>,
    /// Whether a marker in prompt or output began the thoughts.
    is_begun: bool,
    /// Number of tokens of thought. It matters only if a marker began the thoughts.
    num_tokens: usize,
    /// Output tokens so far.
    num_output: usize,
    /// Index of the first output token that is answer.
    answer_start: Option<usize>,
    /// The output's last tokens, as many as the longer marker has.
    tail: Vec<TokenId>,
}

impl Thoughts {
    /// Returns the progress of an output that is still empty.
    #[must_use]
    pub fn new(thinking: Arc<Thinking>, prompt: &[TokenId]) -> Self {
        let (begun, ended) = (last(prompt, &thinking.begin), last(prompt, &thinking.end));
        let is_closed = ended.is_some() && begun <= ended || thinking.end.is_empty();
        Self {
            is_begun: begun.is_some() && !is_closed,
            num_tokens: 0,
            num_output: 0,
            answer_start: is_closed.then_some(0),
            tail: Vec::with_capacity(thinking.begin.len().max(thinking.end.len()) + 1),
            thinking,
        }
    }

    /// Adds one output token.
    pub fn push(&mut self, token: TokenId) {
        self.num_output += 1;
        if self.answer_start.is_some() {
            return;
        }
        let Thinking { begin, end, .. } = &*self.thinking;
        self.tail.push(token);
        if self.tail.len() > begin.len().max(end.len()) {
            self.tail.remove(0);
        }
        self.num_tokens += 1;
        if self.tail.ends_with(end) {
            self.answer_start = Some(self.num_output);
        } else if !self.is_begun && !begin.is_empty() && self.tail.ends_with(begin) {
            (self.is_begun, self.num_tokens) = (true, 0);
        }
    }

    /// Returns the index of the first output token that is answer. `None` while there are thoughts.
    #[must_use]
    pub fn answer_start(&self) -> Option<usize> {
        self.answer_start
    }

    /// Returns the token of the end marker that must come next. `None` while the budget is not used
    /// up.
    #[must_use]
    pub fn forced_token(&self) -> Option<TokenId> {
        let budget = self.thinking.budget? as usize;
        if self.answer_start.is_some() || !self.is_begun || self.num_tokens < budget {
            return None;
        }
        let end = &self.thinking.end;
        let written = (0..end.len()).rev().find(|&len| self.tail.ends_with(&end[..len]))?;
        Some(end[written])
    }
}

/// Returns the index at which the last `marker` in `tokens` begins.
fn last(tokens: &[TokenId], marker: &[TokenId]) -> Option<usize> {
    let found = (0..tokens.len()).rev().find(|&start| tokens[start..].starts_with(marker));
    found.filter(|_| !marker.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: TokenId = 1;
    const END: TokenId = 2;

    fn thoughts(begin: &[TokenId], end: &[TokenId], budget: u32, prompt: &[TokenId]) -> Thoughts {
        let (begin, end) = (begin.to_vec(), end.to_vec());
        Thoughts::new(Arc::new(Thinking { begin, end, budget: Some(budget) }), prompt)
    }

    fn answer_start(prompt: &[TokenId], output: &[TokenId]) -> Option<usize> {
        let mut thoughts = thoughts(&[BEGIN], &[END], 100, prompt);
        output.iter().for_each(|&token| thoughts.push(token));
        thoughts.answer_start()
    }

    #[test]
    fn the_answer_begins_after_the_first_end() {
        let table: &[(&[TokenId], &[TokenId], Option<usize>)] = &[
            // Begun by the prompt.
            (&[9, BEGIN], &[], None),
            (&[9, BEGIN], &[7, 7], None),
            (&[9, BEGIN], &[7, END], Some(2)),
            (&[9, BEGIN], &[7, END, 8, END, 8], Some(2)),
            // Begun by the output, or without a marker.
            (&[9], &[BEGIN, 7, END, 8], Some(3)),
            (&[9], &[7, END], Some(2)),
            (&[9], &[7], None),
            // Closed by the prompt, and not begun again by the output.
            (&[BEGIN, END, 9], &[], Some(0)),
            (&[BEGIN, END, 9], &[BEGIN, 7], Some(0)),
            (&[END], &[7], Some(0)),
            // Closed and begun again by the prompt.
            (&[BEGIN, END, 9, BEGIN], &[7], None),
            (&[BEGIN, END, 9, BEGIN], &[END], Some(1)),
        ];
        for (prompt, output, expected) in table {
            assert_eq!(answer_start(prompt, output), *expected, "{prompt:?} {output:?}");
        }
    }

    /// Returns the next `count` tokens. A token that is not forced is 7.
    fn forced(thoughts: &mut Thoughts, count: usize) -> Vec<TokenId> {
        let mut next = || {
            let token = thoughts.forced_token().unwrap_or(7);
            thoughts.push(token);
            token
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn the_end_is_forced_token_by_token_when_the_budget_is_used_up() {
        let end = [2, 2, 3];
        let mut begun = thoughts(&[BEGIN], &end, 2, &[BEGIN]);
        assert_eq!(forced(&mut begun, 7), [7, 7, 2, 2, 3, 7, 7]);
        assert_eq!(begun.answer_start(), Some(5));
        let mut none = thoughts(&[BEGIN], &end, 0, &[BEGIN]);
        assert_eq!(forced(&mut none, 4), [2, 2, 3, 7]);
        let mut never_begun = thoughts(&[BEGIN], &end, 2, &[9]);
        assert_eq!(forced(&mut never_begun, 4), [7; 4]);
        let mut closed = thoughts(&[BEGIN], &end, 0, &[BEGIN, 2, 2, 3]);
        assert_eq!(forced(&mut closed, 2), [7; 2]);
    }

    #[test]
    fn the_written_part_of_the_end_is_not_forced_again() {
        let mut thoughts = thoughts(&[4, 5], &[2, 2, 3], 3, &[9]);
        [4, 5, 7, 2, 2].into_iter().for_each(|token| thoughts.push(token));
        // Three tokens of thought; the last two begin the end marker.
        assert_eq!(thoughts.forced_token(), Some(3));
        thoughts.push(2);
        assert_eq!(thoughts.forced_token(), Some(3), "2 2 is still the end of the output");
        thoughts.push(3);
        assert_eq!((thoughts.forced_token(), thoughts.answer_start()), (None, Some(7)));
    }

    #[test]
    fn an_empty_marker_is_never_found() {
        let mut none = thoughts(&[], &[], 0, &[9]);
        none.push(7);
        assert_eq!((none.answer_start(), none.forced_token()), (Some(0), None));
        let mut endless = thoughts(&[], &[END], 0, &[9]);
        endless.push(7);
        assert_eq!((endless.answer_start(), endless.forced_token()), (None, None));
    }
}
