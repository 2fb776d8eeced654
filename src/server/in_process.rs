//! The API without a socket, for callers within the process. It has the same routes, and so the
//! same answers.

use std::time::Duration;

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{
        Method, Request,
        header::{CONTENT_TYPE, RETRY_AFTER},
    },
    response::IntoResponse,
};
use metrics_exporter_prometheus::PrometheusHandle;
use tower::ServiceExt;

use super::{ServerConfig, ServerError, audio, http::error::ApiError, state::AppState};
use crate::engine::Engine;

/// The routes of a server that listens nowhere. Cheap to clone.
#[derive(Clone)]
pub struct InProcess {
    router: Router,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct InProcessAnswer {
    /// HTTP's status code.
    pub status: u16,
    /// Time after which a rejected request may be sent again.
    pub retry_after: Option<Duration>,
    /// JSON, or the events of a stream.
    pub body: Vec<u8>,
}

impl InProcess {
    /// Returns the routes over `engine`. Callers need no API key.
    ///
    /// # Errors
    /// [`ServerError`] if the configuration cannot be used.
    pub fn new(
        engine: Engine,
        config: ServerConfig,
        metrics: PrometheusHandle,
    ) -> Result<Self, ServerError> {
        config.validate()?;
        config.validate_parsers(engine.parsers())?;
        let config = ServerConfig {
            api_keys: Vec::new(),
            api_key_file: None,
            admin_api_keys: Vec::new(),
            admin_api_key_file: None,
            ..config
        };
        Ok(Self { router: super::router(AppState::new(engine, config, metrics)?)? })
    }

    /// Answers a JSON body. Dropping the future aborts the request. Sounds have the URL of their
    /// file as `file_url`.
    pub async fn post(&self, path: &str, body: String) -> InProcessAnswer {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(CONTENT_TYPE, "application/json")
            .extension(audio::ObjectBody)
            .body(Body::from(body));
        let response = match request {
            // The error's type has no values.
            Ok(request) => match self.router.clone().oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(error) => ApiError::bad_request(error.to_string()).into_response(),
        };
        let status = response.status().as_u16();
        let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = seconds.and_then(|value| value.parse().ok()).map(Duration::from_secs);
        match to_bytes(response.into_body(), usize::MAX).await {
            Ok(body) => InProcessAnswer { status, retry_after, body: body.to_vec() },
            Err(error) => {
                let body = serde_json::to_vec(&ApiError::internal(error.to_string()).body());
                InProcessAnswer { status: 500, retry_after: None, body: body.unwrap_or_default() }
            }
        }
    }
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess").finish_non_exhaustive()
    }
}
