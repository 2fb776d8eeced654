//! The answer event by event.

use std::collections::VecDeque;

use axum::{body::Bytes, response::Response};
use futures_util::stream::unfold;

use super::{
    block_events::BlockEvents,
    error::{RequestId, error_event},
    event::Event,
    protocol::Style,
    response::{Message, Stop, Usage},
};
use crate::api::{FinishReason, OutputDelta};
use crate::server::{
    generate::{choices::Choices, request_log::RequestLog},
    http::{error::ApiError, sse},
    turn::TurnReader,
};

struct MessageStream {
    choices: Choices,
    style: Style,
    reader: TurnReader,
    blocks: BlockEvents,
    finish: Option<FinishReason>,
    events: VecDeque<Bytes>,
    ended: bool,
    request_id: RequestId,
    log: RequestLog,
}

/// A response that sends what `choices` bring, read by `reader`, as the rest of `message`. Its
/// client's leaving drops it, and them.
pub(super) fn respond(
    choices: Choices,
    message: Message,
    reader: TurnReader,
    style: Style,
    request_id: RequestId,
    log: RequestLog,
) -> Response {
    // The ping tells whoever waits that the stream works: the first block can be long in coming.
    let opening = [Event::MessageStart { message: Box::new(message) }, Event::Ping];
    let stream = MessageStream {
        choices,
        reader,
        blocks: BlockEvents::new(style.shows_thinking),
        style,
        finish: None,
        events: opening.iter().map(Event::to_bytes).collect(),
        ended: false,
        request_id,
        log,
    };
    sse::response(unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((event, stream))
    }))
}

impl MessageStream {
    async fn next(&mut self) -> Option<Bytes> {
        while self.events.is_empty() && !self.ended {
            match self.choices.next().await {
                Some(Ok(news)) => self.write(news.delta),
                Some(Err(error)) => self.fail(&error),
                None => self.complete(),
            }
            self.log.count(&self.choices);
        }
        self.events.pop_front()
    }

    fn write(&mut self, delta: OutputDelta) {
        let mut events = Vec::new();
        for news in self.reader.push(&delta) {
            self.blocks.push(news, &mut events);
        }
        self.send(&events);
        self.finish = self.finish.take().or(delta.finish);
    }

    fn complete(&mut self) {
        let finish = self.finish.take().unwrap_or(FinishReason::Abort);
        let delta = match Stop::new(&finish, self.blocks.has_calls()) {
            Ok(stop) => stop,
            Err(error) => return self.fail(&error),
        };
        let mut events = Vec::new();
        self.blocks.stop(&mut events);
        let usage = Usage::of(&self.choices, &self.reader, &self.style);
        events.extend([Event::MessageDelta { delta, usage }, Event::MessageStop]);
        self.send(&events);
        self.ended = true;
        self.log.end("complete");
    }

    fn fail(&mut self, error: &ApiError) {
        tracing::error!(message = %error.message, "a stream failed");
        self.events.push_back(error_event(error, &self.request_id));
        self.ended = true;
        self.log.end("failed");
    }

    fn send(&mut self, events: &[Event]) {
        self.events.extend(events.iter().map(Event::to_bytes));
    }
}

#[cfg(test)]
mod tests;
