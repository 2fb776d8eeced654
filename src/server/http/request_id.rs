//! `X-Request-Id`: one name for a request in the logs of client and server.

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue},
    middleware::Next,
    response::Response,
};
use uuid::Uuid;

use crate::server::state::AppState;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest name that is taken over.
const LENGTH_MAX: usize = 128;

/// Returns the id of a response: the route's prefix, and the client's name for it or `drawn`.
pub(in crate::server) fn response_id(
    prefix: &str,
    headers: &HeaderMap,
    field: Option<&str>,
    drawn: &str,
) -> String {
    let header = headers.get(&X_REQUEST_ID).and_then(|value| value.to_str().ok());
    let given = header.or(field).filter(|id| !id.is_empty() && id.len() <= LENGTH_MAX);
    match given {
        Some(id) => format!("{prefix}-{id}"),
        None => format!("{prefix}-{drawn}"),
    }
}

/// The only prefix of ids that has a hyphen itself.
pub(in crate::server) const SCORING: &str = "generative-scoring";

/// Returns the part of a response's id that its client may have chosen.
pub(in crate::server) fn chosen(response_id: &str) -> &str {
    let of_scoring = response_id.strip_prefix(SCORING).and_then(|rest| rest.strip_prefix('-'));
    let of_others = || response_id.split_once('-').map(|(_, chosen)| chosen);
    of_scoring.or_else(of_others).unwrap_or(response_id)
}

/// Middleware: copies the request's id to the response, so that logs of both sides match.
pub(in crate::server) async fn echo(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    if !state.config.enable_request_id_headers {
        return next.run(request).await;
    }
    let given = request.headers().get(&X_REQUEST_ID).cloned();
    let mut response = next.run(request).await;
    let id = given.or_else(|| HeaderValue::try_from(Uuid::new_v4().to_string()).ok());
    if let Some(id) = id {
        response.headers_mut().insert(X_REQUEST_ID, id);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_name_is_taken_over() {
        let mut headers = HeaderMap::new();
        assert_eq!(response_id("cmpl", &headers, None, "drawn"), "cmpl-drawn");
        assert_eq!(response_id("cmpl", &headers, Some("mine"), "drawn"), "cmpl-mine");
        assert_eq!(chosen("cmpl-mine-own"), "mine-own");
        assert_eq!(chosen(&response_id(SCORING, &headers, Some("mine-own"), "drawn")), "mine-own");
        headers.insert(X_REQUEST_ID, HeaderValue::from_static("theirs"));
        assert_eq!(response_id("cmpl", &headers, Some("mine"), "drawn"), "cmpl-theirs");
        let long = "x".repeat(LENGTH_MAX + 1);
        headers.insert(X_REQUEST_ID, HeaderValue::try_from(long).unwrap());
        assert_eq!(response_id("cmpl", &headers, None, "drawn"), "cmpl-drawn");
    }
}
