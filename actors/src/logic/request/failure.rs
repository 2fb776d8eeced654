//! Why a request failed alone.

use serde::{Deserialize, Serialize};

/// The reason why a request failed while others did not. [`Failure::InvalidGrammar`] and
/// [`Failure::Adapter`] are for the client to act on. The others are for the operator, or need no
/// action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Failure {
    /// Its output cannot be constrained as it asks. The client sees the text.
    #[error("{0}")]
    InvalidGrammar(String),
    /// Its grammar was not compiled, and the request is not the cause.
    #[error("the grammar could not be compiled: {0}")]
    GrammarCompiler(String),
    /// Its adapter cannot be used. The client sees the text.
    #[error("{0}")]
    Adapter(String),
    /// One of its images or sounds cannot be encoded. The client sees the text.
    #[error("{0}")]
    Encoder(String),
    /// It made the model fail again and again.
    #[error("request_quarantined")]
    Quarantined,
    /// Its logits were not finite, twice.
    #[error("numerical_garbage")]
    NumericalGarbage,
    /// It can never fit into the KV cache or the encoder cache.
    #[error("unservable")]
    Unservable,
    /// Its deadline passed before it began.
    #[error("deadline_exceeded")]
    DeadlineExceeded,
    /// Its tokens could not be made into text.
    #[error("{0}")]
    Text(String),
    /// Its client did not read its output for too long.
    #[error("reader_stalled")]
    ReaderStalled,
    /// There was no memory for its output, because its client left too much of it unread.
    #[error("output_memory")]
    OutputMemory,
    /// It, or a part of its output, does not fit a message between front and engine process.
    #[error("message_too_large")]
    MessageTooLarge,
    /// The supervisors gave up, or the engine was shut down, before it ended.
    #[error("engine_stopped")]
    EngineStopped,
}
