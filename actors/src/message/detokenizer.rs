//! Messages to a detokenizer: committed tokens.

use super::edge::{Edge, Letter, edge, pings};
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
            Self::Batch(_) => edge!(Ledger -> Detokenizer),
            Self::Ping => Edge::TIMER,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
}
