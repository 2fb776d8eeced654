//! Errors in the shape of this API, `{"error": "…"}`, and the leniency towards its clients.

use axum::{
    Json,
    body::Bytes,
    extract::Request,
    http::{
        HeaderValue,
        header::{CONTENT_TYPE, ORIGIN},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::line::line;
use crate::server::http::error::ApiError;

const PREFIX: &str = "/api/";

/// An error.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaErrorBody)]
pub(in crate::server) struct ErrorBody<'a> {
    error: &'a str,
}

/// Returns whether errors at `path` have this shape.
pub(in crate::server) fn is_ours(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// Middleware: writes errors in this API's shape. A body without a type is taken for JSON, because
/// the API's examples send it so. A browser names the page's origin with each request that a page
/// of another site may send, and then the type must be given: that takes the server's consent.
pub(in crate::server) async fn in_own_shape(mut request: Request, next: Next) -> Response {
    if !is_ours(request.uri().path()) {
        return next.run(request).await;
    }
    if !request.headers().contains_key(ORIGIN) {
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
    }
    translate(next.run(request).await)
}

/// Returns an error in this shape, with its status and headers unchanged.
fn translate(mut response: Response) -> Response {
    let status = response.status();
    if !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let error = response.extensions_mut().remove::<ApiError>();
    let message = match &error {
        Some(error) => error.message.as_str(),
        None => status.canonical_reason().unwrap_or("the request failed"),
    };
    let mut translated = (status, Json(ErrorBody { error: message })).into_response();
    for (name, value) in response.headers() {
        if !translated.headers().contains_key(name) {
            translated.headers_mut().append(name, value.clone());
        }
    }
    translated
}

/// Returns the line that ends a failed stream.
pub(super) fn error_line(error: &ApiError) -> Bytes {
    line(&ErrorBody { error: &error.message })
}

/// Returns the error of a model that cannot do a thing, in the API's words.
pub(super) fn lacks(model: &str, what: &str) -> ApiError {
    ApiError::invalid("model", format!("\"{model}\" does not support {what}"))
}

#[cfg(test)]
mod tests {
    use axum::http::{StatusCode, header::RETRY_AFTER};
    use serde_json::{Value, json};

    use super::*;
    use crate::api::RequestError;

    async fn translated(response: Response) -> (Response<()>, Value) {
        let (parts, body) = translate(response).into_parts();
        let bytes = axum::body::to_bytes(body, 10_000).await.unwrap();
        (Response::from_parts(parts, ()), serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn an_error_is_one_text_and_keeps_status_and_headers() {
        let retry_after = std::time::Duration::from_secs(3);
        let full = RequestError::QueueFull { what: "requests", limit: 9, retry_after };
        let full = ApiError::from(full);
        let message = full.message.clone();
        let (response, body) = translated(full.into_response()).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "3");
        assert_eq!(body, json!({ "error": message }));
        let (_, body) = translated(StatusCode::UNAUTHORIZED.into_response()).await;
        assert_eq!(body, json!({"error": "Unauthorized"}));
    }

    #[test]
    fn only_this_apis_paths_are_ours() {
        assert!(is_ours("/api/chat") && is_ours("/api/nothing"));
        assert!(!is_ours("/v1/chat/completions") && !is_ours("/api"));
    }
}
