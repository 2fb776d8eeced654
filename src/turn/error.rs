//! The reasons why a turn cannot be planned.

use crate::parsers::ConstraintError;

/// The reason why the model cannot take the turn that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The model may call tools, and no parser finds calls in its answers.
    #[error(
        "the model may call tools, and its chat template suggests no parser of calls: name one, \
         or force a call"
    )]
    NoToolParser,
    /// A call cannot be forced.
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The number of tokens of thought is bounded, and thoughts cannot be told from the answer.
    #[error(
        "thinking_token_budget needs a model whose thoughts are marked: name a reasoning parser"
    )]
    UnmarkedThoughts,
}
