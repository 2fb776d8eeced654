//! Metrics of HTTP requests, under the names that vLLM's server has from its instrumentation.

use std::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{MatchedPath, Request},
    http::{HeaderMap, Method, StatusCode, header::CONTENT_LENGTH},
    middleware::Next,
    response::Response,
};
use hyper::body::{Frame, SizeHint};
use metrics::{Label, counter, histogram};
use tokio::time::Instant;

/// Routes that are not counted: probes would hide all else.
const UNCOUNTED: [&str; 8] =
    ["/metrics", "/health", "/livez", "/readyz", "/load", "/ping", "/version", "/server_info"];
/// The handler of a path that no route has.
const NO_HANDLER: &str = "none";

/// Middleware: counts a request when its answer was sent, or when its client left after the
/// beginning of the answer, and measures the time until then. A client that leaves before is not
/// counted.
pub(in crate::server) async fn count(request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let handler = matched.map_or(NO_HANDLER, MatchedPath::as_str).to_owned();
    if UNCOUNTED.contains(&handler.as_str()) {
        return next.run(request).await;
    }
    let (begun, method) = (Instant::now(), method_label(request.method()));
    let request_bytes = content_length(request.headers());
    let response = next.run(request).await;
    let status = status_label(response.status());
    response.map(|body| {
        let exchange =
            Exchange { handler, method, status, begun, request_bytes, response_bytes: 0 };
        Body::new(Counted { body, exchange })
    })
}

/// Returns the method as a label. A client may invent methods, and labels must be few.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        _ => "other",
    }
}

fn status_label(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

/// Returns the length of a body, as its client tells it. One that is sent in chunks counts as 0. A
/// false one must not spoil the sum of all.
fn content_length(headers: &HeaderMap) -> u64 {
    const LENGTH_MAX: u64 = 1 << 32;
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    length.and_then(|value| value.parse().ok()).map_or(0, |length: u64| length.min(LENGTH_MAX))
}

/// A request whose answer is being sent. Its end is recorded when it is dropped.
struct Exchange {
    handler: String,
    method: &'static str,
    status: &'static str,
    begun: Instant,
    request_bytes: u64,
    response_bytes: u64,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let seconds = self.begun.elapsed().as_secs_f64();
        let labels = [
            Label::new("handler", mem::take(&mut self.handler)),
            Label::from_static_parts("method", self.method),
            Label::from_static_parts("status", self.status),
        ];
        histogram!("http_request_duration_seconds", labels[..2].iter()).record(seconds);
        histogram!("http_request_duration_highr_seconds").record(seconds);
        for (name, bytes) in [
            ("http_request_size_bytes", self.request_bytes),
            ("http_response_size_bytes", self.response_bytes),
        ] {
            histogram!(name, labels[..1].iter()).record(bytes as f64);
        }
        counter!("http_requests_total", labels.iter()).increment(1);
    }
}

/// The body of an answer with its request.
struct Counted {
    body: Body,
    exchange: Exchange,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.exchange.response_bytes += data.len() as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_few() {
        assert_eq!(method_label(&Method::from_bytes(b"BREW").unwrap()), "other");
        assert_eq!(method_label(&Method::POST), "POST");
        assert_eq!(status_label(StatusCode::OK), "2xx");
        assert_eq!(status_label(StatusCode::TOO_MANY_REQUESTS), "4xx");
        assert_eq!(status_label(StatusCode::SERVICE_UNAVAILABLE), "5xx");
    }

    #[test]
    fn a_body_without_a_length_counts_as_empty() {
        let mut headers = HeaderMap::new();
        assert_eq!(content_length(&headers), 0);
        headers.insert(CONTENT_LENGTH, "12".parse().unwrap());
        assert_eq!(content_length(&headers), 12);
        headers.insert(CONTENT_LENGTH, "18446744073709551615".parse().unwrap());
        assert_eq!(content_length(&headers), 1 << 32);
    }
}
