//! Messages to a detokenizer: committed tokens.

use super::edge::{Edge, Letter, pings};
use crate::logic::ledger::EgressBatch;

/// A message that a detokenizer receives.
#[derive(Debug, Clone)]
pub enum DetokenizerMessage {
    /// From the ledger: turn these tokens into text. The first batch of a generation replaces
    /// everything that the detokenizer knew.
    Batch(EgressBatch),
    /// From the watchdog: a question whether the actor still takes messages.
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
