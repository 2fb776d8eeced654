//! To a detokenizer: committed tokens.

use super::edge::{Edge, Letter, pings};
use crate::logic::ledger::EgressBatch;

/// Received by a detokenizer.
#[derive(Debug, Clone)]
pub enum DetokenizerMessage {
    /// From the ledger: turn these into text. The first batch of a generation replaces all that
    /// the detokenizer knew.
    Batch(EgressBatch),
    /// From the watchdog.
    Ping,
}

impl Letter for DetokenizerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Batch(_) => Edge::LedgerToDetokenizer,
            Self::Ping => Edge::Timer,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
}
