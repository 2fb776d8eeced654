//! Errors as clients see them: `{"error": {"message", "type", "param", "code"}}`.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderValue, Method, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::{Failure, MediaError, RequestError};

/// Time to wait before a retry, if no better one is known.
pub(in crate::server) const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);
/// The engine's name of the field `vllm_xargs`.
const TOKEN_RULES: &str = "token_rules";
/// Most characters of a path that an error repeats.
const PATH_CHARS_MAX: usize = 200;

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::server) struct ApiError {
    pub(in crate::server) status: StatusCode,
    pub(in crate::server) message: String,
    /// The kind of error, in the words that vLLM uses.
    pub(in crate::server) kind: &'static str,
    /// The field of the request that has the fault.
    pub(in crate::server) param: Option<String>,
    /// The body's code, where that is not the status.
    pub(in crate::server) word: Option<&'static str>,
    pub(in crate::server) retry_after: Option<Duration>,
}

/// The body of an error, also sent inside streams.
#[derive(Serialize, ToSchema)]
pub(in crate::server) struct ErrorBody<'a> {
    error: ErrorDetail<'a>,
}

#[derive(Serialize, ToSchema)]
struct ErrorDetail<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'a str>,
    code: Code,
}

/// The code: vLLM's codes are the status, some of OpenAI's are words.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum Code {
    Status(u16),
    Word(&'static str),
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind, param: None, word: None, retry_after: None }
    }

    /// Returns the error of a request that cannot be served as it is.
    pub(in crate::server) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message)
    }

    /// Returns the error of a field whose value cannot be served.
    pub(in crate::server) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::bad_request(message).with_param(param)
    }

    /// Returns the error of a field that asks for a feature this server does not have.
    pub(in crate::server) fn unsupported(param: &str) -> Self {
        Self::invalid(param, format!("`{param}` is not supported by this server"))
    }

    /// Returns the error of a body without the shape that the route needs. `loc` is a path like
    /// `body.messages.0.role`.
    pub(in crate::server) fn validation(loc: &str, message: impl std::fmt::Display) -> Self {
        let message = format!("1 validation error:\n  {loc}: {message}");
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", message).with_param(loc)
    }

    /// Returns the error of a body that is not declared as JSON.
    pub(in crate::server) fn unsupported_media_type() -> Self {
        let message = "Unsupported Media Type: Only 'application/json' is allowed";
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", message)
    }

    /// Returns the error of a body that is larger than the server accepts.
    pub(in crate::server) fn too_large(limit: usize) -> Self {
        let message = format!("the request body is larger than the limit of {limit} bytes");
        Self::payload_too_large(message)
    }

    /// Returns the error of a body that needs more memory than one request may have, even alone.
    pub(in crate::server) fn too_large_for_memory(bytes: usize, most: usize) -> Self {
        Self::payload_too_large(format!(
            "the request body has {bytes} bytes, and the memory for one request holds bodies of \
             {most}: a share of max_request_memory_bytes"
        ))
    }

    /// Returns the error of a request that asks for more than the server accepts.
    pub(in crate::server) fn payload_too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLargeError", message)
    }

    /// Returns the error of a client that took too long to send its request.
    pub(in crate::server) fn timeout(limit: Duration) -> Self {
        let message = format!("the request body did not arrive within {} s", limit.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, "RequestTimeoutError", message)
    }

    /// Returns the error of a model's name that is unknown.
    pub(in crate::server) fn unknown_model(model: &str, served: &[String]) -> Self {
        let names = served.join(", ");
        let message = format!("The model `{model}` does not exist. Valid names: {names}.");
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", message).with_param("model")
    }

    /// Returns the error of a request about an adapter, in vLLM's words.
    pub(in crate::server) fn invalid_user_input(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "InvalidUserInput", message)
    }

    /// Returns the error of a thing that an operator's request names and that is not there.
    pub(in crate::server) fn not_found_object(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", message)
    }

    /// Returns the error of a request without a known key, where the route needs one.
    pub(in crate::server) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "AuthenticationError", "Unauthorized")
    }

    /// Returns the error of a caller without permission.
    pub(in crate::server) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "PermissionDeniedError", message)
    }

    /// Returns the error of a feature that the API has and this server does not.
    pub(in crate::server) fn not_implemented(param: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplementedError", message).with_param(param)
    }

    /// Returns the error of an object that does not exist. `param` names it.
    pub(in crate::server) fn missing(param: &str, message: String) -> Self {
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message).with_param(param)
    }

    /// Returns the error of a path that no route has.
    pub(in crate::server) fn not_found(method: &Method, path: &str) -> Self {
        let shown: String = path.chars().take(PATH_CHARS_MAX).collect();
        let rest = if shown.len() < path.len() { "…" } else { "" };
        let message =
            format!("Not Found: no route {method} {shown}{rest}; /openapi.json lists all routes");
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", message)
    }

    /// Returns the error of an unknown model's id, in the words of OpenAI's API.
    pub(in crate::server) fn no_such_model(id: &str) -> Self {
        let message = format!("The model '{id}' does not exist");
        let error = Self::missing("model", message);
        Self { word: Some("model_not_found"), ..error }
    }

    /// Returns the error of a path that exists only for other methods.
    pub(in crate::server) fn method_not_allowed() -> Self {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Self::new(status, "MethodNotAllowedError", "Method Not Allowed")
    }

    /// Returns the error of a request that the server's present state does not allow.
    pub(in crate::server) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "ConflictError", message)
    }

    /// Returns the error of a model that cannot be loaded.
    pub(in crate::server) fn not_loaded(message: impl Into<String>) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self::new(status, "ModelLoadError", message).with_param("model")
    }

    /// Returns the error of a new program that does not serve.
    pub(in crate::server) fn not_upgraded(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "UpgradeError", message)
    }

    /// Returns the error of a fault in the server.
    pub(in crate::server) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", message)
    }

    /// Returns the same error, about this field.
    #[must_use]
    pub(in crate::server) fn with_param(mut self, param: &str) -> Self {
        self.param = Some(param.to_owned());
        self
    }

    /// Returns the error of an `Idempotency-Key` that belongs to another request.
    pub(in crate::server) fn reused_key() -> Self {
        let message = "this Idempotency-Key came with another request before";
        let error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "BadRequestError", message);
        error.with_param("Idempotency-Key")
    }

    /// Returns the error of a `Last-Event-ID` that belongs to another request.
    pub(in crate::server) fn other_stream() -> Self {
        let message = "Last-Event-ID is of a stream that another request began";
        let error = Self::new(StatusCode::CONFLICT, "BadRequestError", message);
        error.with_param("Last-Event-ID")
    }

    /// Returns the error of a request that the server cannot serve now.
    pub(in crate::server) fn unavailable(message: String, retry_after: Duration) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let error = Self::new(status, "ServiceUnavailableError", message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// Returns the body of the answer.
    pub(in crate::server) fn body(&self) -> ErrorBody<'_> {
        ErrorBody {
            error: ErrorDetail {
                message: &self.message,
                r#type: self.kind,
                param: self.param.as_deref(),
                code: self.word.map_or(Code::Status(self.status.as_u16()), Code::Word),
            },
        }
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        let message = error.to_string();
        match error {
            RequestError::InvalidParameter { field, value, accepted }
                if field.starts_with(TOKEN_RULES) =>
            {
                // The API has another name for them.
                let field = field.replacen(TOKEN_RULES, "vllm_xargs", 1);
                RequestError::InvalidParameter { field, value, accepted }.into()
            }
            RequestError::InvalidParameter { field, .. } => Self::invalid(&field, message),
            RequestError::ContextLength { max_model_len, prompt_tokens, .. } => {
                let too_long = prompt_tokens >= max_model_len;
                Self::invalid(if too_long { "input_tokens" } else { "max_tokens" }, message)
            }
            RequestError::TextTooLong { .. }
            | RequestError::PromptTooLong { .. }
            | RequestError::EncoderTextTooLong { .. }
            | RequestError::Unservable { .. } => Self::invalid("input_tokens", message),
            RequestError::Text(_) | RequestError::Unsupported { .. } => Self::bad_request(message),
            RequestError::Unencodable { .. } => Self::bad_request(message),
            RequestError::Media(error) => error.into(),
            RequestError::ResultTooLarge { .. } | RequestError::MessageTooLarge { .. } => {
                Self::payload_too_large(message)
            }
            RequestError::QueueFull { retry_after, .. }
            | RequestError::MemoryShort { retry_after }
            | RequestError::Recovering { retry_after } => Self::unavailable(message, retry_after),
            RequestError::QuotaExceeded { retry_after, .. } => {
                let error =
                    Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message);
                Self { retry_after: Some(retry_after), ..error }
            }
            RequestError::Quarantined { retry_after } => {
                let error =
                    Self::new(StatusCode::UNPROCESSABLE_ENTITY, "request_quarantined", message);
                Self { retry_after: Some(retry_after), ..error }
            }
            RequestError::ReaderStalled => {
                Self::new(StatusCode::REQUEST_TIMEOUT, "RequestTimeoutError", message)
            }
            RequestError::Draining
            | RequestError::Journal(_)
            | RequestError::Unavailable(_)
            | RequestError::InputTimeout { .. } => Self::unavailable(message, RETRY_AFTER_DEFAULT),
            RequestError::NumericalGarbage => Self::internal(message),
            RequestError::DeadlineExceeded => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "DeadlineExceededError", message)
            }
        }
    }
}

/// In vLLM's words, which name the kind of the items only where a client sent too many.
impl From<MediaError> for ApiError {
    fn from(error: MediaError) -> Self {
        let message = error.to_string();
        match error {
            MediaError::TooMany { modality, .. } => {
                let kind = modality.as_str();
                Self::invalid(kind, format!("{message} (parameter={kind})"))
            }
            MediaError::Kwargs(_) => Self::invalid("mm_processor_kwargs", message),
            MediaError::PromptTooLong { .. } => Self::invalid("input_tokens", message),
            MediaError::EmbedsDisabled { modality } | MediaError::Embeds { modality, .. } => {
                let field = format!("{}_embeds", modality.as_str());
                Self::invalid(&field, format!("{message} (parameter={field})"))
            }
            _ => Self::bad_request(message),
        }
    }
}

/// The error of an accepted request that failed.
impl From<&Failure> for ApiError {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::InvalidGrammar(message)
            | Failure::Adapter(message)
            | Failure::Encoder(message) => Self::bad_request(message),
            Failure::DeadlineExceeded => RequestError::DeadlineExceeded.into(),
            Failure::ReaderStalled => RequestError::ReaderStalled.into(),
            Failure::OutputMemory => {
                let message = "the memory for requests is in use, and too much output waits for \
                               its reader";
                Self::unavailable(message.to_owned(), RETRY_AFTER_DEFAULT)
            }
            Failure::MessageTooLarge => {
                let message = "the request, or a part of its output, does not fit a message \
                               between the server and its engine process";
                Self::payload_too_large(message.to_owned())
            }
            Failure::EngineStopped => RequestError::Unavailable(failure.to_string()).into(),
            Failure::GrammarCompiler(_)
            | Failure::Quarantined
            | Failure::NumericalGarbage
            | Failure::Unservable
            | Failure::Text(_) => Self::internal(failure.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        if let Some(wait) = self.retry_after {
            // Whole seconds, and at least one.
            let seconds = wait.as_secs_f64().ceil().max(1.0) as u64;
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        // For APIs that write errors in another shape.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_body_has_the_four_keys() {
        let error = ApiError::from(RequestError::invalid("top_p", 1.5, "a number in (0, 1]"));
        let body = serde_json::to_value(error.body()).unwrap();
        let message = "top_p must be a number in (0, 1], got 1.5";
        let detail =
            json!({"message": message, "type": "BadRequestError", "param": "top_p", "code": 400});
        assert_eq!(body, json!({ "error": detail }));
    }

    #[test]
    fn a_missing_object_is_named() {
        let error = ApiError::not_found(&Method::POST, "/v1/chat");
        let message = "Not Found: no route POST /v1/chat; /openapi.json lists all routes";
        assert_eq!(error.message, message);
        let long = ApiError::not_found(&Method::GET, &format!("/{}", "ä".repeat(5_000)));
        assert!(long.message.chars().count() < 300, "{}", long.message);
        let body = serde_json::to_value(ApiError::no_such_model("a/b").body()).unwrap();
        let detail = json!({
            "message": "The model 'a/b' does not exist", "type": "invalid_request_error",
            "param": "model", "code": "model_not_found",
        });
        assert_eq!(body, json!({ "error": detail }));
    }

    #[test]
    fn a_full_queue_reports_when_to_retry() {
        let retry_after = Duration::from_millis(1_200);
        let error = RequestError::QueueFull { what: "waiting requests", limit: 9, retry_after };
        let response = ApiError::from(error).into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "2");
    }

    #[test]
    fn a_quota_that_is_used_up_is_no_full_engine() {
        let retry_after = Duration::from_secs(9);
        let error =
            RequestError::QuotaExceeded { what: "tokens_per_minute", limit: 9, retry_after };
        let error = ApiError::from(error);
        assert_eq!(error.kind, "rate_limit_exceeded");
        let response = error.into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "9");
    }

    #[test]
    fn a_quarantined_request_may_come_back_later() {
        let retry_after = Duration::from_millis(599_001);
        let error = ApiError::from(RequestError::Quarantined { retry_after });
        assert_eq!(
            error.message,
            "this request made the model fail repeatedly and is refused for 600 s"
        );
        let response = error.into_response();
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(response.headers()[RETRY_AFTER], "600");
    }

    #[test]
    fn a_client_that_does_not_read_times_out() {
        let error = ApiError::from(RequestError::ReaderStalled);
        assert_eq!((error.status, error.retry_after), (StatusCode::REQUEST_TIMEOUT, None));
    }

    #[test]
    fn a_context_overflow_blames_the_longer_part() {
        let error = |prompt_tokens, max_tokens| {
            let max_model_len = 100;
            let error = RequestError::ContextLength { max_model_len, prompt_tokens, max_tokens };
            ApiError::from(error).param
        };
        assert_eq!(error(100, 1).as_deref(), Some("input_tokens"));
        assert_eq!(error(5, 999).as_deref(), Some("max_tokens"));
    }
}
