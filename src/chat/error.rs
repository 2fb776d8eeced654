//! The reasons why there is no answer.

use crate::{
    api::{Failure, RequestError},
    parsers::UnknownParser,
    turn::TurnError,
};

/// The reason why a conversation gets no answer.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The request asks for several answers, and a stream has one.
    #[error("a chat has one answer, and `params.n` asks for {n}; call `chat` once for each")]
    SeveralAnswers {
        /// The number of answers that was asked for.
        n: u32,
    },
    /// The parameters of a tool are not a JSON schema of an object.
    #[error("the parameters of the tool '{name}' must be a JSON object or null")]
    ToolParameters {
        /// The tool's name.
        name: String,
    },
    /// No parser has the name that the request gives.
    #[error(transparent)]
    Parser(#[from] UnknownParser),
    /// The model cannot take the turn that was asked for.
    #[error(transparent)]
    Turn(#[from] TurnError),
    /// The engine rejected the request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The request failed while it ran.
    #[error("the answer failed: {0}")]
    Failed(Failure),
    /// The engine stopped before the answer ended.
    #[error("the answer broke off: the engine stopped")]
    BrokenOff,
}
