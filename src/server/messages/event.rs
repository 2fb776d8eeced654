//! The events of a stream.

use axum::body::Bytes;
use serde::Serialize;

use super::{
    content::ContentBlock,
    response::{Message, Stop, Usage},
};
use crate::server::http::sse;

/// One event. Its `type` is also the event's name.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event {
    MessageStart { message: Box<Message> },
    Ping,
    ContentBlockStart { index: usize, content_block: ContentBlock },
    ContentBlockDelta { index: usize, delta: Delta },
    ContentBlockStop { index: usize },
    MessageDelta { delta: Stop, usage: Usage },
    MessageStop,
}

/// An addition to a block.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "type")]
pub(super) enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
}

impl Event {
    fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::Ping => "ping",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }

    /// Returns the event's bytes in a stream.
    pub(super) fn to_bytes(&self) -> Bytes {
        sse::named_event(self.name(), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_type() {
        let block = ContentBlock::text("");
        let events = [
            Event::Ping,
            Event::ContentBlockStart { index: 0, content_block: block },
            Event::ContentBlockStop { index: 0 },
            Event::MessageDelta { delta: Stop::default(), usage: Usage::default() },
            Event::MessageStop,
        ];
        for event in events {
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["type"], event.name());
        }
        let sent = Event::ContentBlockStop { index: 3 }.to_bytes();
        let lines =
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":3}\n\n";
        assert_eq!(sent, lines);
    }
}
