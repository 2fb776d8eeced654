//! Token rules: code of an embedding program that restricts or biases the next token. A request
//! asks for a rule by its name, and gives it an argument.
//!
//! A program registers rules with [`Engine::builder`](crate::Engine::builder). A request names them
//! in [`SamplingParams::token_rules`](crate::api::SamplingParams), over HTTP in `vllm_xargs`:
//! `{"<rule>": <argument>}`. vLLM's custom logits processors are the model for this, with one
//! difference: a rule sees tokens and never logits, so it can be computed while the model runs.
//!
//! # The promise of every rule
//! A rule's answer is a function of its argument, the prompt and the output so far. It keeps no
//! state from token to token, reads no clock and draws no random numbers. A step may be computed
//! again after a preemption or the death of a worker. It then gets the same answer, so its tokens
//! are the same.
//!
//! # The part of the engine
//! - Unknown names and rejected arguments are errors before the request is accepted.
//! - Rules run once for each token, on threads beside those of the model.
//! - Their masks and biases join the request's own `allowed_token_ids` and `logit_bias`. Grammars
//!   and budgets of thoughts apply after them, and win if both together would leave no token.
//! - A request whose rules leave no token ends with an error that says so. Other requests go on.
//! - A rule that panics makes its step fail. The engine finds the request, which ends with
//!   `request_quarantined`; other requests go on.

mod next_token;
mod registry;
mod rule;

pub use next_token::NextToken;
pub use registry::{DuplicateTokenRule, TokenRuleError, TokenRuleRegistry, TokenRules};
pub use rule::{RequestRule, TokenRule, TokensSoFar, Vocabulary};

#[cfg(test)]
pub(crate) use registry::tests;
