//! Why a request failed alone.

use serde::{Deserialize, Serialize};

/// What ended a request that failed, while nothing else did. Tells whose it is to act: the client's
/// for [`Failure::InvalidGrammar`], nobody's or the operator's otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Failure {
    /// Its output cannot be constrained as it asks. The text is the client's to see.
    #[error("{0}")]
    InvalidGrammar(String),
    /// Its grammar was not compiled, through no fault of its own.
    #[error("the grammar could not be compiled: {0}")]
    GrammarCompiler(String),
    /// It made the model fail again and again.
    #[error("request_quarantined")]
    Quarantined,
    /// Its logits were no numbers, twice.
    #[error("numerical_garbage")]
    NumericalGarbage,
    /// It could never be held in the KV cache, or in the encoder's.
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
    /// There was no memory for its output, of which its client left too much to wait.
    #[error("output_memory")]
    OutputMemory,
    /// The supervisors gave up, or the engine was shut down, before it ended.
    #[error("engine_stopped")]
    EngineStopped,
}
