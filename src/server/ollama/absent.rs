//! Routes that fetch, make or remove models. This server has the one model that it was started
//! with.

use axum::{extract::State, http::Uri, response::Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{answer::only, known_name};
use crate::server::{
    http::{error::ApiError, extract::JsonBody, parts::FromParts},
    state::AppState,
};

const PULL: &str = "this server serves the model that it was started with: fetch another with \
                    `playhouse pull NAME` and start `playhouse serve NAME`";

/// The body of `POST /api/pull`.
pub(in crate::server) struct OllamaPullRequest(PullFields);

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct PullFields {
    model: Option<String>,
    /// The older name of `model`.
    name: Option<String>,
    stream: Option<bool>,
    /// Changes nothing: nothing is fetched.
    #[serde(rename = "insecure")]
    _insecure: Option<bool>,
}

/// The end of work on a model.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OllamaProgress)]
pub(in crate::server) struct Progress {
    status: &'static str,
}

impl FromParts for OllamaPullRequest {
    type Parts = (PullFields,);

    fn from_parts((fields,): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self(fields))
    }
}

/// `POST /api/pull`: programs pull a model before they use it, and the server's own is there.
///
/// # Errors
/// 501 for another model.
pub(super) async fn pull(
    State(state): State<AppState>,
    JsonBody(OllamaPullRequest(fields)): JsonBody<OllamaPullRequest>,
) -> Result<Response, ApiError> {
    let asked = fields.model.or(fields.name).unwrap_or_default();
    if asked.is_empty() || state.model_name(Some(&known_name(&state, &asked))).is_err() {
        return Err(ApiError::not_implemented("model", PULL));
    }
    Ok(only(&Progress { status: "success" }, fields.stream.unwrap_or(true)))
}

/// Answers 501 with the way to do it here.
pub(super) async fn refuse(uri: Uri) -> ApiError {
    let route = uri.path().rsplit('/').next().unwrap_or_default();
    let message = match route {
        "create" | "copy" => {
            "this server serves the model that it was started with, under the names of \
             --served-model-name"
        }
        "push" => "this server publishes no models",
        _ => "this server removes no models: remove the folder in Hugging Face's cache",
    };
    ApiError::not_implemented("model", message)
}
