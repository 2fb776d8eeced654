//! `POST /abort_requests`: ends requests by their ids, or all of them. Clients end their own only.

use axum::{Extension, Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::server::{
    auth::Identity,
    error::ApiError,
    extract::JsonBody,
    open_requests::{Names, Work},
    parts::FromParts,
    state::AppState,
};

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct AbortRequest {
    /// Ids of answers, or the client's own names (`X-Request-Id`) of them; none: all that are open.
    request_ids: Option<Vec<String>>,
}

impl FromParts for AbortRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

/// Their streams end with finish reason `abort`. `aborted` counts choices, not ids, and beam searches
/// as one each answer: an id that is not known, or has ended, counts for nothing.
pub(in crate::server) async fn abort_requests(
    State(state): State<AppState>,
    identity: Option<Extension<Identity>>,
    JsonBody(request): JsonBody<AbortRequest>,
) -> Json<Value> {
    let owner = identity.and_then(|Extension(identity)| identity.sees_only());
    let ids = request.request_ids.filter(|ids| !ids.is_empty());
    let found = match (&ids, owner) {
        (None, None) => {
            return Json(json!({"status": "aborted", "aborted": state.engine.abort_all()}));
        }
        (None, Some(_)) => state.open.find(Names::Any, owner),
        (Some(ids), owner) => state.open.find(Names::OneOf(ids), owner),
    };
    let (mut requests, mut count) = (Vec::new(), 0);
    for work in found {
        match work {
            Work::Requests(mut choices) => requests.append(&mut choices),
            Work::Searches(aborted) => {
                aborted.cancel();
                count += 1;
            }
        }
    }
    count += requests.len();
    state.engine.abort(requests);
    Json(json!({"status": "aborted", "aborted": count}))
}
