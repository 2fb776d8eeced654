//! Streams of OpenAI's chunks: one for each new output of a choice, then usage, then `[DONE]`.

use axum::{body::Bytes, response::Response};
use serde::Serialize;

use super::{
    answer::Head,
    choices::{ChoiceDelta, Choices},
    request_log::RequestLog,
    request_metrics::RequestMetrics,
    run::{EventWriter, Run},
    usage::{Usage, UsageReports},
};
use crate::server::http::{error::ApiError, sse};

/// One event: new output of a choice, or the usage of the request.
#[derive(Serialize)]
pub(in crate::server) struct Chunk<'a, C> {
    #[serde(flatten)]
    pub(in crate::server) head: &'a Head,
    pub(in crate::server) choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::server) usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::server) system_fingerprint: Option<&'static str>,
    /// Present with the usage of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::server) metrics: Option<RequestMetrics>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::server) prompt_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::server) prompt_text: Option<&'a str>,
}

/// Writes chunks in the form of one protocol.
pub(in crate::server) trait ChunkFormat: Send + 'static {
    /// Returns the events for new output of one choice.
    fn write(&mut self, news: ChoiceDelta, choices: &Choices) -> Vec<Bytes>;

    /// Returns the event with the usage of a request that has ended.
    fn usage(&self, usage: Usage, choices: &Choices) -> Bytes;
}

struct Chunks<F> {
    format: F,
    reports: UsageReports,
    show_cached: bool,
}

/// Returns a response that sends the output of `choices`. When the client leaves, the response is
/// dropped, and `choices` with it, unless the stream is kept.
///
/// # Errors
/// When the stream cannot be kept.
pub(in crate::server) fn respond(
    choices: Choices,
    format: impl ChunkFormat,
    reports: UsageReports,
    show_cached: bool,
    log: RequestLog,
) -> Result<Response, ApiError> {
    Run::new(choices, Chunks { format, reports, show_cached }, log).stream(Vec::new())
}

impl<F: ChunkFormat> EventWriter for Chunks<F> {
    type Event = Bytes;

    fn write(&mut self, news: ChoiceDelta, choices: &Choices) -> Vec<Bytes> {
        self.format.write(news, choices)
    }

    fn complete(&mut self, choices: &Choices) -> Result<Vec<Bytes>, ApiError> {
        let usage = || self.format.usage(choices.usage(self.show_cached), choices);
        let usage = self.reports.at_end.then(usage);
        Ok(usage.into_iter().chain([sse::DONE]).collect())
    }

    fn fail(&mut self, error: ApiError, _: &Choices) -> Vec<Bytes> {
        tracing::error!(message = %error.message, "a stream failed");
        vec![sse::event(&error.body()), sse::DONE]
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
        fn write(&mut self, news: ChoiceDelta, _: &Choices) -> Vec<Bytes> {
            vec![sse::event(&news.delta.text)]
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
        let body = respond(choices, Plain, reports, false, log).unwrap().into_body();
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
