//! `POST /abort_requests`: ends requests by their ids, or all of them. Clients end only their own.

use std::{collections::BTreeSet, time::Duration};

use axum::{
    Extension, Json,
    body::to_bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;
use utoipa::ToSchema;

use crate::{
    api::Tenant,
    config::LimitSettings,
    engine::Engine,
    server::{
        generate::open_requests::{Names, OpenRequests, Work},
        handover::Predecessor,
        http::{auth::Identity, error::ApiError, extract::JsonBody, parts::FromParts},
        state::AppState,
    },
};

const ROUTE: &str = "/abort_requests";

/// Most ids in one request.
const REQUEST_IDS_MAX: usize = 4096;

/// Most bytes of the answer of another process, and the time that it has for it.
const ANSWER_BYTES_MAX: usize = 4096;
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Time after which a client may ask again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
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

/// Ends these answers, also in the process before an upgrade. Their streams end with finish reason
/// `abort`. `choices` counts the choices that were ended. Beam searches and pooling count as one
/// choice an answer if ids are given. `aborted` counts the ids that were given, as in vLLM, and
/// without ids the choices.
///
/// # Errors
/// 503 if that process neither answers nor ends. The answers of this process are ended then.
pub(in crate::server) async fn abort_requests(
    State(state): State<AppState>,
    identity: Option<Extension<Identity>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<AbortRequest>,
) -> Result<Json<Value>, ApiError> {
    let owner = identity.and_then(|Extension(identity)| identity.sees_only());
    let mut count = abort_here(&state, &request, owner);
    if let Some(predecessor) = state.predecessor.as_ref().filter(|before| !before.is_gone()) {
        let answered = abort_before(predecessor, headers, &request).await;
        let is_silent = answered.is_none();
        count += match answered {
            Some(count) => count,
            // If it has ended, its requests are here by now.
            None => {
                predecessor.gone_soon().await;
                abort_here(&state, &request, owner)
            }
        };
        if is_silent && !predecessor.is_gone() {
            let message = format!(
                "the process before the upgrade does not answer, so its requests go on; choices \
                 that were ended in this process: {count}"
            );
            return Err(ApiError::unavailable(message, RETRY_AFTER));
        }
    }
    let aborted = request.request_ids.filter(|ids| !ids.is_empty()).map_or(count, |ids| ids.len());
    Ok(Json(json!({"status": "aborted", "aborted": aborted, "choices": count})))
}

/// Ends answers of this process. Returns the number of choices that it ended.
fn abort_here(state: &AppState, request: &AbortRequest, owner: Option<Tenant>) -> usize {
    let ids = request.request_ids.as_ref().filter(|ids| !ids.is_empty());
    let found = match (ids, owner) {
        (None, None) => return abort_everything(state),
        (None, Some(_)) => find(state, Names::Any, owner),
        (Some(ids), owner) => {
            let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
            find(state, Names::OneOf(&ids), owner)
        }
    };
    let mut count = 0;
    for (engine, work) in found {
        match work {
            Work::Requests(choices) => {
                count += choices.len();
                engine.abort(choices);
            }
            Work::Whole(aborted) => {
                aborted.cancel();
                count += 1;
            }
        }
    }
    count
}

/// Ends every request of this process, also those of no answer. Returns their number.
fn abort_everything(state: &AppState) -> usize {
    // A list that is pooled a part at a time may have no request at this moment.
    for (_, work) in find(state, Names::Any, None) {
        if let Work::Whole(aborted) = work {
            aborted.cancel();
        }
    }
    open_on(state).into_iter().map(|(engine, _)| engine.abort_all()).sum()
}

/// Ends the answers that the process before an upgrade still makes. Returns the number of choices
/// that it ended. `None` if it does not answer, or no longer takes requests.
async fn abort_before(
    predecessor: &Predecessor,
    headers: HeaderMap,
    request: &AbortRequest,
) -> Option<usize> {
    let body = serde_json::to_vec(request).ok()?;
    let asked = predecessor.answer(ROUTE, headers, body);
    let answer = timeout(ANSWER_LIMIT, asked).await.ok()??;
    let status = answer.status();
    let body = to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await.ok()?;
    if status != StatusCode::OK {
        tracing::warn!(%status, "the process before does not end its requests");
        return None;
    }
    let count = serde_json::from_slice::<Value>(&body).ok()?["choices"].as_u64()?;
    usize::try_from(count).ok()
}

/// Returns the engines with their open answers: the one that is served, and those of earlier swaps.
fn open_on(state: &AppState) -> Vec<(Engine, OpenRequests)> {
    let mut all = state.swaps.as_ref().map_or_else(Vec::new, |swaps| swaps.retired());
    all.push((state.engine.clone(), state.open.clone()));
    all
}

/// Returns the work for these answers, with the engine that does it.
fn find(state: &AppState, names: Names<'_>, owner: Option<Tenant>) -> Vec<(Engine, Work)> {
    let of = |(engine, open): (Engine, OpenRequests)| {
        let found = open.find(names, owner).into_iter();
        found.map(move |work| (engine.clone(), work))
    };
    open_on(state).into_iter().flat_map(of).collect()
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
