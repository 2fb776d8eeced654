//! To an output streamer: text for the clients.

use super::edge::{Edge, Letter, pings};
use crate::logic::text_stream::TextBatch;

/// Received by an output streamer.
#[derive(Debug, Clone)]
pub enum OutputStreamerMessage {
    /// From its detokenizer: hand these to the clients.
    Batch(TextBatch),
    /// From the watchdog.
    Ping,
}

impl Letter for OutputStreamerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Batch(_) => Edge::DetokenizerToStreamer,
            Self::Ping => Edge::Timer,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }
}
