//! Comments in silent streams. While a request waits, no proxy shall take its connection for dead.
//! Clients of server-sent events skip comments.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::header::CONTENT_TYPE,
    middleware::Next,
    response::Response,
};
use futures_util::{Stream, StreamExt, stream::unfold};
use tokio::time::timeout;

use crate::server::state::AppState;

const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Middleware: a stream sends a comment each time it was silent for `sse_keep_alive_interval`.
pub(in crate::server) async fn comment(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    let interval = Duration::from_secs(state.config.sse_keep_alive_interval_secs);
    if interval.is_zero() || !is_event_stream(&response) {
        return response;
    }
    response.map(|body| Body::from_stream(with_comments(body.into_data_stream(), interval)))
}

fn is_event_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

/// Returns `events` with comments. Every piece consists of whole lines, so a comment may follow
/// each.
fn with_comments<E>(
    events: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    interval: Duration,
) -> impl Stream<Item = Result<Bytes, E>> {
    unfold(events, move |mut events| async move {
        let piece = match timeout(interval, events.next()).await {
            Ok(piece) => piece?,
            Err(_) => Ok(COMMENT),
        };
        Some((piece, events))
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn silence_is_filled_and_events_stay_as_they_are() {
        let (sender, mut receiver) = channel::<Result<Bytes, Infallible>>(2);
        let events = futures_util::stream::poll_fn(move |context| receiver.poll_recv(context));
        let mut sent = Box::pin(with_comments(events, Duration::from_millis(1)));
        for _ in 0..3 {
            assert_eq!(sent.next().await, Some(Ok(COMMENT)));
        }
        for event in ["data: 1\n\n", "data: [DONE]\n\n"] {
            sender.send(Ok(Bytes::from(event))).await.unwrap();
        }
        drop(sender);
        let rest: Vec<Bytes> = sent.map(Result::unwrap).collect().await;
        assert_eq!(rest, ["data: 1\n\n", "data: [DONE]\n\n"]);
    }
}
