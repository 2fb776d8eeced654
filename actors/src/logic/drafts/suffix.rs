//! Guesses by suffix decoding (Oliaro et al., arXiv 2411.04975; vLLM's `suffix`): the likeliest
//! continuation of the longest end of the text that occurred before, in the request's own text or
//! in recent outputs.
//!
//! The structure is a suffix automaton (Blumer et al., 1985). It has the matches and counts of a
//! suffix tree, takes one token at a time, and has at most two states for each token.

use std::sync::Arc;

use indexmap::IndexMap;

use self::automaton::{Automaton, Cursor};
use crate::logic::request::ids::{RequestId, TokenId};

mod automaton;

/// Most tokens of one request's text that are kept, the first ones. Later text is not looked up.
const MAX_OWN_TOKENS: usize = 1 << 17;
/// Most tokens in one generation of recent outputs. There are two generations.
const MAX_SHARED_TOKENS: usize = 1 << 18;
/// Most groups of requests that share outputs.
const MAX_GROUPS: usize = 64;

/// The settings of suffix decoding. The names are vLLM's, without `suffix_decoding_`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SuffixConfig {
    /// Most tokens of a match and its continuation together.
    pub max_tree_depth: usize,
    /// Most outputs that are kept. 0: a request's own text alone is looked up.
    pub max_cached_requests: usize,
    /// Most guesses for each token of the match.
    pub max_spec_factor: f64,
    /// Smallest estimated probability of a guess, given the text.
    pub min_token_prob: f64,
}

impl Default for SuffixConfig {
    fn default() -> Self {
        Self {
            max_tree_depth: 24,
            max_cached_requests: 10_000,
            max_spec_factor: 1.0,
            min_token_prob: 0.1,
        }
    }
}

/// The requests that share outputs with each other: those of one cache salt. Others would learn
/// from the speed of their answers what was said.
type Group = Option<Arc<str>>;

/// All texts that are looked up.
#[derive(Debug)]
pub struct SuffixTexts {
    config: SuffixConfig,
    own: IndexMap<RequestId, OwnText>,
    /// The group that was used last comes last.
    shared: IndexMap<Group, Generations>,
}

/// One request's text.
#[derive(Debug)]
struct OwnText {
    tree: Automaton,
    /// The longest end of the text that also ends earlier.
    end: Cursor,
    num_tokens: usize,
    num_prompt_tokens: usize,
    group: Group,
}

/// The recent outputs of a group: when the new generation is full, it becomes the old one.
#[derive(Debug, Default)]
struct Generations {
    old: Generation,
    new: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    tree: Automaton,
    num_outputs: usize,
}

impl SuffixTexts {
    /// Returns an empty collection.
    #[must_use]
    pub fn new(config: SuffixConfig) -> Self {
        Self { config, own: IndexMap::new(), shared: IndexMap::new() }
    }

    /// Appends at most `most` guesses of the tokens after `tokens`, a request's prompt and output.
    /// Between two calls a request's tokens may only grow.
    pub fn propose(
        &mut self,
        request: RequestId,
        (tokens, num_prompt_tokens): (&[TokenId], usize),
        salt: Option<&Arc<str>>,
        most: usize,
        guesses: &mut Vec<TokenId>,
    ) {
        let own = self.own.entry(request).or_insert_with(|| OwnText {
            tree: Automaton::default(),
            end: Cursor::default(),
            num_tokens: 0,
            num_prompt_tokens,
            group: salt.cloned(),
        });
        let depth = self.config.max_tree_depth;
        own.catch_up(tokens, depth);
        let mut best = Guess::default();
        if own.num_tokens == tokens.len() {
            best = self.config.guess(&own.tree, own.end, most);
        }
        let shared = self.shared.get(&own.group);
        for tree in shared.into_iter().flat_map(|shared| [&shared.new.tree, &shared.old.tree]) {
            let other = self.config.guess(tree, end_of(tree, tokens, depth), most);
            if best.score < other.score {
                best = other;
            }
        }
        guesses.append(&mut best.tokens);
    }

    /// Forgets a request. `tokens` are all of its tokens. Its output is kept for others if
    /// `is_ended`.
    pub fn forget(&mut self, request: RequestId, tokens: &[TokenId], is_ended: bool) {
        let Some(own) = self.own.swap_remove(&request) else { return };
        let output = tokens.get(own.num_prompt_tokens..).unwrap_or_default();
        if is_ended && !output.is_empty() && self.config.max_cached_requests > 0 {
            self.share(own.group, output);
        }
    }

    fn share(&mut self, group: Group, output: &[TokenId]) {
        let mut generations = self.shared.shift_remove(&group).unwrap_or_default();
        let half = self.config.max_cached_requests.div_ceil(2);
        let is_full = generations.new.tree.num_tokens() + output.len() > MAX_SHARED_TOKENS
            || generations.new.num_outputs >= half;
        if is_full {
            generations.old = std::mem::take(&mut generations.new);
        }
        let kept = output.len().min(MAX_SHARED_TOKENS);
        generations.new.tree.begin_text();
        output[..kept].iter().for_each(|&token| generations.new.tree.push(token));
        generations.new.num_outputs += 1;
        self.shared.insert(group, generations);
        if self.shared.len() > MAX_GROUPS {
            self.shared.shift_remove_index(0);
        }
    }
}

impl OwnText {
    fn catch_up(&mut self, tokens: &[TokenId], depth: usize) {
        let end = tokens.len().min(MAX_OWN_TOKENS);
        for &token in tokens.get(self.num_tokens..end).unwrap_or_default() {
            self.end = self.tree.push_after(self.end, token, depth);
        }
        self.num_tokens = end.max(self.num_tokens);
    }
}

/// Returns the longest end of `tokens` that occurs in the tree, at most `most` long.
fn end_of(tree: &Automaton, tokens: &[TokenId], most: usize) -> Cursor {
    let last = tokens[tokens.len().saturating_sub(most)..].iter();
    last.fold(Cursor::default(), |cursor, &token| tree.advance(cursor, token))
}

/// Guesses of one text.
#[derive(Debug, Default)]
struct Guess {
    tokens: Vec<TokenId>,
    /// Expected number of right guesses.
    score: f64,
}

impl SuffixConfig {
    /// Follows the likeliest continuation of a match. Without a match there is none.
    fn guess(&self, tree: &Automaton, from: Cursor, most: usize) -> Guess {
        let by_match = (from.len as f64 * self.max_spec_factor) as usize;
        let (mut guess, mut at, mut probability) = (Guess::default(), from, 1.0);
        let most = most.min(by_match).min(self.max_tree_depth);
        while at.is_match() && guess.tokens.len() < most {
            let Some((token, next, share)) = tree.likeliest(at) else {
                // This is the end of a text. A shorter end of it may go on elsewhere.
                at = tree.shorter(at);
                continue;
            };
            probability *= share;
            if probability < self.min_token_prob {
                break;
            }
            guess.tokens.push(token);
            guess.score += probability;
            at = next;
        }
        guess
    }
}

#[cfg(test)]
mod tests;
