//! One output and its place in a grammar.

use llguidance::{TokenParser, api::StopReason};
use playhouse_actors::{logic::request::ids::TokenId, ports::GrammarError};
use toktrie::SimpleVob;

/// The place of an output in its grammar. It depends only on the format and the tokens so far.
pub(crate) struct Matcher {
    inner: llguidance::Matcher,
    /// The mask of the token that ends an output.
    end: SimpleVob,
}

/// The tokens that may come next, one bit a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenMask(SimpleVob);

impl Matcher {
    /// Returns a matcher at the beginning of an output.
    pub(super) fn new(parser: TokenParser) -> Self {
        let tokens = parser.token_env.tok_trie();
        let end = tokens.singleton_token_set(tokens.eos_token());
        Self { inner: llguidance::Matcher::new(Ok(parser)), end }
    }

    /// Consumes these tokens. Tokens after the end of the output change nothing. A request that
    /// ignores the end-of-sequence token has some.
    ///
    /// # Errors
    /// [`GrammarError::Invalid`] when the grammar does not allow one of them, or is too ambiguous
    /// to continue. The matcher must not be used afterwards.
    pub(crate) fn consume(&mut self, tokens: &[TokenId]) -> Result<(), GrammarError> {
        for &token in tokens {
            if self.has_ended()? {
                return Ok(());
            }
            self.inner.consume_token(token).map_err(failed)?;
        }
        Ok(())
    }

    /// Returns a matcher at the same place, to follow guesses. This one stays where it is.
    pub(crate) fn fork(&self) -> Self {
        Self { inner: self.inner.clone(), end: self.end.clone() }
    }

    /// Returns the bytes that must come next. Empty if the grammar leaves a choice.
    pub(super) fn forced_bytes(&self) -> Vec<u8> {
        // The parser would keep what it computes, and masks must not depend on that.
        self.inner.clone().compute_ff_bytes()
    }

    /// Returns the tokens that may come next, which are one or more. If only the end can follow,
    /// the mask has the first of the tokens that end an output.
    ///
    /// # Errors
    /// [`GrammarError::Invalid`] when it exceeds the limits. The matcher must not be used
    /// afterwards.
    pub(crate) fn mask(&mut self) -> Result<TokenMask, GrammarError> {
        if self.has_ended()? {
            return Ok(TokenMask(self.end.clone()));
        }
        let mask = self.inner.compute_mask().map_err(failed)?;
        // Only the computed mask shows that nothing can follow, or that a limit is exceeded.
        match (self.has_ended()?, mask.is_zero()) {
            (true, _) => Ok(TokenMask(self.end.clone())),
            (false, true) => Err(failed("no token can follow")),
            (false, false) => Ok(TokenMask(mask)),
        }
    }

    fn has_ended(&self) -> Result<bool, GrammarError> {
        match self.inner.stop_reason() {
            StopReason::NotStopped => Ok(false),
            reason if reason.is_ok() => Ok(true),
            reason => Err(failed(reason)),
        }
    }
}

impl TokenMask {
    /// Returns the mask of a single token among `vocab_size`. A token beyond them leaves none.
    pub(crate) fn only(token: TokenId, vocab_size: usize) -> Self {
        let mut mask = SimpleVob::alloc(vocab_size);
        if (token as usize) < vocab_size {
            mask.allow_token(token);
        }
        Self(mask)
    }

    /// Token `t` may come iff bit `t % 32` of word `t / 32` is set; words beyond the last are 0.
    pub(crate) fn words(&self) -> &[u32] {
        self.0.as_slice()
    }

    /// Returns whether a token may come.
    pub(crate) fn allows(&self, token: TokenId) -> bool {
        (token as usize) < self.0.len() && self.0.is_allowed(token)
    }
}

fn failed(why: impl std::fmt::Display) -> GrammarError {
    GrammarError::Invalid(format!("the grammar cannot go on: {why}"))
}
