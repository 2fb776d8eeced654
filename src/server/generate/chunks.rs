//! Drives one streamed response: chunks as the choices grow, then usage, then `[DONE]`.

use std::collections::VecDeque;

use axum::{body::Bytes, response::Response};
use futures_util::stream::unfold;

use super::{
    choices::{ChoiceDelta, Choices},
    request_log::RequestLog,
    usage::{Usage, UsageReports},
};
use crate::server::http::{error::ApiError, sse};

/// How an API writes its chunks.
pub(in crate::server) trait ChunkFormat: Send + 'static {
    /// Appends the events for news of one choice.
    fn write(&mut self, news: ChoiceDelta, choices: &Choices, events: &mut VecDeque<Bytes>);

    /// The event that tells the usage of the whole request, which is over.
    fn usage(&self, usage: Usage, choices: &Choices) -> Bytes;
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
pub(in crate::server) fn respond(
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
            self.events.push_back(self.format.usage(usage, &self.choices));
        }
        self.events.push_back(sse::DONE);
        self.ended = true;
        self.log.end("complete");
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;
    use crate::api::{Failure, FinishReason, OutputDelta};

    /// Writes the text of a choice, and usage as a number.
    struct Plain;

    impl ChunkFormat for Plain {
        fn write(&mut self, news: ChoiceDelta, _: &Choices, events: &mut VecDeque<Bytes>) {
            events.push_back(sse::event(&news.delta.text));
        }

        fn usage(&self, usage: Usage, _: &Choices) -> Bytes {
            sse::event(&serde_json::to_value(usage).unwrap()["prompt_tokens"])
        }
    }

    async fn sent(finish: FinishReason, at_end: bool) -> Vec<String> {
        let delta = |text: &str, finish| OutputDelta {
            text: text.to_owned(),
            finish,
            ..OutputDelta::default()
        };
        let deltas = futures_util::stream::iter([delta("a", None), delta("b", Some(finish))]);
        let choices = Choices::new(vec![([1, 2, 3].into(), vec![deltas.boxed()])]);
        let reports = UsageReports { at_end, continuous: false };
        let log = RequestLog::new("id".to_owned(), "/test", None);
        let body = respond(choices, Plain, reports, false, log).into_body();
        let bytes = axum::body::to_bytes(body, 10_000).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        text.split_terminator("\n\n").map(|event| event.replace("data: ", "")).collect()
    }

    #[tokio::test]
    async fn a_stream_ends_with_done() {
        assert_eq!(sent(FinishReason::Length, false).await, [r#""a""#, r#""b""#, "[DONE]"]);
        assert_eq!(sent(FinishReason::Length, true).await, [r#""a""#, r#""b""#, "3", "[DONE]"]);
    }

    #[tokio::test]
    async fn an_error_is_an_event_before_done() {
        let events = sent(FinishReason::Error(Failure::NumericalGarbage), true).await;
        let [first, error, done] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((first.as_str(), done.as_str()), (r#""a""#, "[DONE]"));
        let error: serde_json::Value = serde_json::from_str(error).unwrap();
        assert_eq!(error["error"]["message"], "numerical_garbage");
        assert_eq!(error["error"]["code"], 500);
    }
}
