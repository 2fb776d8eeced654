//! To a detokenizer: committed tokens.

use crate::logic::ledger::EgressBatch;

/// Received by a detokenizer.
#[derive(Debug)]
pub enum DetokenizerMessage {
    /// From the ledger: turn these into text. A batch of a new generation replaces all that the
    /// detokenizer knew.
    Batch(EgressBatch),
}
