//! Errors in the shape of this API:
//! `{"type": "error", "error": {"type", "message"}, "request_id"}`.

use axum::{
    Json,
    body::Bytes,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::server::http::{error::ApiError, sse};

const PATH: &str = "/v1/messages";
const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest name of a client's that is taken over.
const REQUEST_ID_LENGTH_MAX: usize = 128;

/// The name of a request for the client and in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::server) struct RequestId(pub(super) String);

impl RequestId {
    /// Returns the client's name for it, or a random one.
    fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(&X_REQUEST_ID).and_then(|value| value.to_str().ok());
        match given.filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_LENGTH_MAX) {
            Some(id) => Self(id.to_owned()),
            None => Self(format!("req_{}", Uuid::new_v4().simple())),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = MessagesErrorBody)]
pub(in crate::server) struct ErrorBody<'a> {
    r#type: &'static str,
    error: ErrorDetail<'a>,
    request_id: &'a str,
}

#[derive(Serialize, ToSchema)]
#[schema(as = MessagesErrorDetail)]
struct ErrorDetail<'a> {
    r#type: &'static str,
    message: &'a str,
}

fn body<'a>(status: StatusCode, message: &'a str, request_id: &'a RequestId) -> ErrorBody<'a> {
    let error = ErrorDetail { r#type: kind(status), message };
    ErrorBody { r#type: "error", error, request_id: &request_id.0 }
}

/// Returns the kind of error for a status.
fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        400..500 => "invalid_request_error",
        _ => "api_error",
    }
}

/// Returns the event that ends a failed stream.
pub(super) fn error_event(error: &ApiError, request_id: &RequestId) -> Bytes {
    sse::named_event("error", &body(error.status, &error.message, request_id))
}

/// Middleware: names the requests to this API, and writes all errors in its shape.
pub(in crate::server) async fn in_own_shape(mut request: Request, next: Next) -> Response {
    if !is_ours(request.uri().path()) {
        return next.run(request).await;
    }
    let request_id = RequestId::of(request.headers());
    request.extensions_mut().insert(request_id.clone());
    let mut response = translate(next.run(request).await, &request_id);
    if let Ok(value) = HeaderValue::try_from(request_id.0) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// Returns whether errors at `path` have this shape.
pub(in crate::server) fn is_ours(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns an error in this shape, with its status and headers unchanged.
fn translate(mut response: Response, request_id: &RequestId) -> Response {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let error = response.extensions_mut().remove::<ApiError>();
    let message = match &error {
        Some(error) => error.message.as_str(),
        None if status == StatusCode::UNAUTHORIZED => {
            "the API key is missing or not known: send it as `x-api-key`, or as a Bearer token"
        }
        None => status.canonical_reason().unwrap_or("the request failed"),
    };
    let mut translated = (status, Json(body(status, message, request_id))).into_response();
    for (name, value) in response.headers() {
        if !translated.headers().contains_key(name) {
            translated.headers_mut().append(name, value.clone());
        }
    }
    translated
}

#[cfg(test)]
mod tests {
    use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
    use serde_json::{Value, json};

    use super::*;
    use crate::api::RequestError;

    async fn translated(response: Response) -> (Response<()>, Value) {
        let (parts, body) = translate(response, &RequestId("req_1".to_owned())).into_parts();
        let bytes = axum::body::to_bytes(body, 10_000).await.unwrap();
        (Response::from_parts(parts, ()), serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn an_error_keeps_status_headers_and_message() {
        let retry_after = std::time::Duration::from_secs(3);
        let full = RequestError::QueueFull { what: "requests", limit: 9, retry_after };
        let full = ApiError::from(full);
        let message = full.message.clone();
        let (response, body) = translated(full.into_response()).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "3");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        let error = json!({"type": "overloaded_error", "message": message});
        assert_eq!(body, json!({"type": "error", "error": error, "request_id": "req_1"}));
    }

    #[tokio::test]
    async fn errors_of_other_layers_are_translated() {
        let (_, body) = translated(StatusCode::UNAUTHORIZED.into_response()).await;
        assert_eq!(body["error"]["type"], "authentication_error");
        assert!(body["error"]["message"].as_str().unwrap().contains("x-api-key"));
        let (_, body) = translated(StatusCode::BAD_GATEWAY.into_response()).await;
        let error = json!({"type": "api_error", "message": "Bad Gateway"});
        assert_eq!(body["error"], error);
    }

    #[test]
    fn every_status_has_a_kind() {
        let kinds = [
            (400, "invalid_request_error"),
            (401, "authentication_error"),
            (403, "permission_error"),
            (404, "not_found_error"),
            (405, "invalid_request_error"),
            (408, "timeout_error"),
            (413, "request_too_large"),
            (422, "invalid_request_error"),
            (429, "rate_limit_error"),
            (500, "api_error"),
            (503, "overloaded_error"),
            (504, "timeout_error"),
        ];
        for (status, expected) in kinds {
            assert_eq!(kind(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }

    #[test]
    fn only_this_apis_paths_are_ours() {
        assert!(is_ours("/v1/messages") && is_ours("/v1/messages/count_tokens"));
        assert!(!is_ours("/v1/chat/completions") && !is_ours("/v1/messages2"));
    }

    #[test]
    fn the_clients_name_is_taken_over() {
        let mut headers = HeaderMap::new();
        assert_eq!(RequestId::of(&headers).0.len(), "req_".len() + 32);
        headers.insert(X_REQUEST_ID, HeaderValue::from_static("theirs"));
        assert_eq!(RequestId::of(&headers).0, "theirs");
        let long = "x".repeat(REQUEST_ID_LENGTH_MAX + 1);
        headers.insert(X_REQUEST_ID, HeaderValue::try_from(long).unwrap());
        assert_eq!(RequestId::of(&headers).0.len(), "req_".len() + 32);
    }
}
