//! Drives one streamed response: chunks as the choices grow, then usage, then `[DONE]`.

use std::collections::VecDeque;

use axum::{body::Bytes, response::Response};
use futures_util::stream::unfold;

use super::{
    choices::{ChoiceDelta, Choices},
    error::ApiError,
    request_log::RequestLog,
    sse,
    usage::{Usage, UsageReports},
};

/// How an API writes its chunks.
pub(super) trait ChunkFormat: Send + 'static {
    /// Appends the events for news of one choice.
    fn write(&mut self, news: ChoiceDelta, choices: &Choices, events: &mut VecDeque<Bytes>);

    /// The event that tells the usage of the whole request.
    fn usage(&self, usage: Usage) -> Bytes;
}

struct EventStream<F> {
    choices: Choices,
    format: F,
    reports: UsageReports,
    show_cached: bool,
    events: VecDeque<Bytes>,
    ended: bool,
    log: RequestLog,
}

/// A response that sends what `choices` bring. Its client's leaving drops it, and them.
pub(super) fn respond(
    choices: Choices,
    format: impl ChunkFormat,
    reports: UsageReports,
    show_cached: bool,
    log: RequestLog,
) -> Response {
    let (events, ended) = (VecDeque::new(), false);
    let stream = EventStream { choices, format, reports, show_cached, events, ended, log };
    sse::response(unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        Some((event, stream))
    }))
}

impl<F: ChunkFormat> EventStream<F> {
    async fn next(&mut self) -> Option<Bytes> {
        while self.events.is_empty() && !self.ended {
            match self.choices.next().await {
                Some(Ok(news)) => self.format.write(news, &self.choices, &mut self.events),
                Some(Err(error)) => self.fail(&error),
                None => self.complete(),
            }
            self.log.count(&self.choices);
        }
        self.events.pop_front()
    }

    fn fail(&mut self, error: &ApiError) {
        tracing::error!(message = %error.message, "a stream failed");
        self.events.extend([sse::event(&error.body()), sse::DONE]);
        self.ended = true;
        self.log.end("failed");
    }

    fn complete(&mut self) {
        if self.reports.at_end {
            let usage = self.choices.usage(self.show_cached);
            self.events.push_back(self.format.usage(usage));
        }
        self.events.push_back(sse::DONE);
        self.ended = true;
        self.log.end("complete");
    }
}
