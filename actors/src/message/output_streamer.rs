//! To an output streamer: text for the clients.

use crate::logic::text_stream::TextBatch;

/// Received by an output streamer.
#[derive(Debug)]
pub enum OutputStreamerMessage {
    /// From its detokenizer: hand these to the clients.
    Batch(TextBatch),
}
