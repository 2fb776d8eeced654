//! The answer event by event.

use axum::{body::Bytes, response::Response};

use super::{
    block_events::BlockEvents,
    error::{RequestId, error_event},
    event::Event,
    protocol::Style,
    response::{Message, Stop, Usage},
};
use crate::api::FinishReason;
use crate::server::{
    generate::{
        choices::{ChoiceDelta, Choices},
        request_log::RequestLog,
        run::{EventWriter, Run},
    },
    http::error::ApiError,
    turn::TurnReader,
};

/// Writes the events of one message.
struct MessageEvents {
    style: Style,
    reader: TurnReader,
    blocks: BlockEvents,
    finish: Option<FinishReason>,
    request_id: RequestId,
}

/// Returns a response that sends the output of `choices`, read by `reader`, as the rest of
/// `message`. When the client leaves, the response is dropped, and `choices` with it, unless the
/// stream is kept.
///
/// # Errors
/// When the stream cannot be kept.
pub(super) fn respond(
    choices: Choices,
    message: Message,
    reader: TurnReader,
    style: Style,
    request_id: RequestId,
    log: RequestLog,
) -> Result<Response, ApiError> {
    // The ping shows the client that the stream works, because the first block may come late.
    let opening = [Event::MessageStart { message: Box::new(message) }, Event::Ping];
    let blocks = BlockEvents::new(style.shows_thinking);
    let writer = MessageEvents { style, reader, blocks, finish: None, request_id };
    Run::new(choices, writer, log).stream(bytes(&opening))
}

impl EventWriter for MessageEvents {
    type Event = Bytes;

    fn write(&mut self, news: ChoiceDelta, _: &Choices) -> Vec<Bytes> {
        let mut events = Vec::new();
        for part in self.reader.push(&news.delta) {
            self.blocks.push(part, &mut events);
        }
        self.finish = self.finish.take().or(news.delta.finish);
        bytes(&events)
    }

    fn complete(&mut self, choices: &Choices) -> Result<Vec<Bytes>, ApiError> {
        let finish = self.finish.take().unwrap_or(FinishReason::Abort);
        let delta = Stop::new(&finish, self.blocks.has_calls())?;
        let mut events = Vec::new();
        self.blocks.stop(&mut events);
        let usage = Usage::of(choices, &self.reader, &self.style);
        events.extend([Event::MessageDelta { delta, usage }, Event::MessageStop]);
        Ok(bytes(&events))
    }

    fn fail(&mut self, error: ApiError, _: &Choices) -> Vec<Bytes> {
        tracing::error!(message = %error.message, "a stream failed");
        vec![error_event(&error, &self.request_id)]
    }
}

fn bytes(events: &[Event]) -> Vec<Bytes> {
    events.iter().map(Event::to_bytes).collect()
}

#[cfg(test)]
mod tests;
