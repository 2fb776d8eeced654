//! The traits of a rule.

use std::sync::Arc;

use playhouse_actors::{logic::request::ids::TokenId, ports::TextCodec};
use serde_json::Value;

use super::NextToken;

/// A rule that requests ask for by its name. See the [module](super) for the promise of every rule.
pub trait TokenRule: Send + Sync {
    /// Reads the argument of one request. It is called when the request is submitted, on a thread
    /// that serves others too, and again whenever a worker begins with the request.
    ///
    /// # Errors
    /// The arguments that would be accepted, for the client: "a list of words".
    fn for_request(&self, argument: &Value) -> Result<Box<dyn RequestRule>, String>;
}

/// A rule with the argument of one request.
pub trait RequestRule: Send {
    /// Adds its restrictions of the token after `tokens` to `next`. They must depend on nothing
    /// else.
    fn restrict(&self, tokens: TokensSoFar<'_>, next: &mut NextToken);
}

/// The tokens of a request so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokensSoFar<'a> {
    /// The prompt; at least one token.
    pub prompt: &'a [TokenId],
    /// The output so far.
    pub output: &'a [TokenId],
}

/// Facts about the model's tokens, for a rule that is being made.
#[derive(Clone, Copy)]
pub struct Vocabulary<'a> {
    /// The tokenizer.
    pub codec: &'a Arc<dyn TextCodec>,
    /// The size of the vocabulary. Every token id is smaller. Some ids may have no text.
    pub vocab_size: u32,
    /// Tokens that end an output.
    pub eos_token_ids: &'a [TokenId],
}

impl std::fmt::Debug for Vocabulary<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("vocab_size", &self.vocab_size).finish_non_exhaustive()
    }
}
