//! `POST /abort_requests`: ends requests by their ids, or all of them. Clients end only their own.

use std::collections::BTreeSet;

use axum::{Extension, Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    config::LimitSettings,
    server::{
        generate::open_requests::{Names, Work},
        http::{auth::Identity, error::ApiError, extract::JsonBody, parts::FromParts},
        state::AppState,
    },
};

/// Most ids in one request.
const REQUEST_IDS_MAX: usize = 4096;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct AbortRequest {
    /// Ids of answers, or the client's own names (`X-Request-Id`) of them. `None`: all open
    /// answers.
    request_ids: Option<Vec<String>>,
}

impl FromParts for AbortRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }

    fn check_limits(&self, _limits: &LimitSettings) -> Result<(), ApiError> {
        let count = self.request_ids.as_ref().map_or(0, Vec::len);
        if count > REQUEST_IDS_MAX {
            let message =
                format!("request_ids holds {count} ids; expected at most {REQUEST_IDS_MAX}");
            return Err(ApiError::invalid("request_ids", message));
        }
        Ok(())
    }
}

/// Ends these answers. Their streams end with finish reason `abort`. `choices` counts the choices
/// that were ended. Beam searches and pooling count as one choice an answer. `aborted` counts the
/// ids that were given, as in vLLM, and without ids the choices.
pub(in crate::server) async fn abort_requests(
    State(state): State<AppState>,
    identity: Option<Extension<Identity>>,
    JsonBody(request): JsonBody<AbortRequest>,
) -> Json<Value> {
    let owner = identity.and_then(|Extension(identity)| identity.sees_only());
    let ids = request.request_ids.filter(|ids| !ids.is_empty());
    let found = match (&ids, owner) {
        (None, None) => {
            let count = state.engine.abort_all();
            return Json(json!({"status": "aborted", "aborted": count, "choices": count}));
        }
        (None, Some(_)) => state.open.find(Names::Any, owner),
        (Some(ids), owner) => {
            let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
            state.open.find(Names::OneOf(&ids), owner)
        }
    };
    let (mut requests, mut count) = (Vec::new(), 0);
    for work in found {
        match work {
            Work::Requests(mut choices) => requests.append(&mut choices),
            Work::Whole(aborted) => {
                aborted.cancel();
                count += 1;
            }
        }
    }
    count += requests.len();
    state.engine.abort(requests);
    let aborted = ids.map_or(count, |ids| ids.len());
    Json(json!({"status": "aborted", "aborted": aborted, "choices": count}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ids_than_may_be_are_refused_with_the_numbers() {
        let checked = |count| {
            let request = AbortRequest { request_ids: Some(vec![String::new(); count]) };
            request.check_limits(&LimitSettings::default()).map_err(|error| error.message)
        };
        assert_eq!(checked(REQUEST_IDS_MAX), Ok(()));
        let message = "request_ids holds 4097 ids; expected at most 4096".to_owned();
        assert_eq!(checked(REQUEST_IDS_MAX + 1), Err(message));
    }
}
