//! Messages to an output streamer: text for the clients.

use super::edge::{Edge, Letter, edge, pings};
use crate::logic::text::text_stream::TextBatch;

/// A message that an output streamer receives.
#[derive(Debug, Clone)]
pub enum OutputStreamerMessage {
    /// From its detokenizer: send this text to the clients.
    Batch(TextBatch),
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

impl Letter for OutputStreamerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Batch(_) => edge!(Detokenizer -> OutputStreamer),
            Self::Ping => Edge::TIMER,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
}
