//! Server-sent events: one `data:` line an event, and `[DONE]` at the end.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;

use super::error::ApiError;

/// The last event of every stream.
pub(in crate::server) const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");

/// Returns one event. JSON as serde writes it has no line breaks, so it fits in one line.
pub(in crate::server) fn event(value: &impl Serialize) -> Bytes {
    let mut line = b"data: ".to_vec();
    if let Err(error) = serde_json::to_writer(&mut line, value) {
        line.truncate(b"data: ".len());
        // Only strings and integers, so this cannot fail again.
        let error = ApiError::internal(error.to_string());
        line.extend(serde_json::to_vec(&error.body()).unwrap_or_default());
    }
    line.extend_from_slice(b"\n\n");
    Bytes::from(line)
}

/// Returns one event with a name, as other APIs have them.
pub(in crate::server) fn named_event(name: &str, value: &impl Serialize) -> Bytes {
    Bytes::from([b"event: ", name.as_bytes(), b"\n", &event(value)].concat())
}

/// Returns a response that sends each batch of events as it arrives.
pub(in crate::server) fn batches(
    batches: impl Stream<Item = Vec<Bytes>> + Send + 'static,
) -> Response {
    response(batches.map(stream::iter).flatten())
}

/// Returns a response that sends each of `events` as it arrives.
pub(in crate::server) fn response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let events = events.map(Ok::<_, Infallible>);
    let headers = [(CONTENT_TYPE, "text/event-stream; charset=utf-8"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(events)).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let event = event(&json!({"text": "a\nb\r\n"}));
        assert_eq!(event, &b"data: {\"text\":\"a\\nb\\r\\n\"}\n\n"[..]);
    }

    #[test]
    fn a_name_goes_before_the_data() {
        assert_eq!(named_event("ping", &1), &b"event: ping\ndata: 1\n\n"[..]);
    }

    #[tokio::test]
    async fn events_follow_each_other() {
        let events = futures_util::stream::iter([event(&1), DONE]);
        let response = response(events);
        assert!(
            response.headers()[CONTENT_TYPE].to_str().unwrap().starts_with("text/event-stream")
        );
        let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(body, &b"data: 1\n\ndata: [DONE]\n\n"[..]);
    }
}
