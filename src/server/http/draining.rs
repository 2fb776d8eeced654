//! A server that drains: it answers probes and metrics, and rejects everything else.

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Version, header::CONNECTION},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::error::ApiError;
use crate::api::RequestError;
use crate::server::state::AppState;

/// Routes that report the server's state. They are open until it ends.
const PROBES: [&str; 7] =
    ["/health", "/ping", "/livez", "/readyz", "/metrics", "/load", "/version"];

/// Middleware: during a drain, 503 for everything but probes.
pub(in crate::server) async fn refuse(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    if !state.draining.is_cancelled() || PROBES.contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let version = request.version();
    send_away(version, ApiError::from(RequestError::Draining).into_response())
}

/// Returns the response with a request to connect anew. HTTP/2 has another way to say so, and no
/// such header.
pub(in crate::server) fn send_away(version: Version, mut response: Response) -> Response {
    if version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
