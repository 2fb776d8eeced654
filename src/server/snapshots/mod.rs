//! The running engine as its page shows it. `GET /house` answers once, `GET /house/events` again
//! and again as server-sent events. Both are read-only, exist in every build, and need a key where
//! keys are needed. A client's key shows the client's own requests, an operator's key all of them.
//!
//! A snapshot is taken at most four times a second, and all watchers get the same one. Without
//! watchers, none is taken. A snapshot holds ids, counts and reasons, never text of a prompt or an
//! output.

mod feed;
mod shape;
mod snapshot;

use axum::{
    Extension,
    extract::State,
    http::header::{CACHE_CONTROL, CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use futures_util::stream::unfold;

pub(in crate::server) use self::{feed::SnapshotFeed, snapshot::EngineSnapshot};
use super::{
    http::{auth::Identity, sse},
    state::AppState,
};

/// `GET /house`
pub(in crate::server) async fn snapshot(
    State(state): State<AppState>,
    identity: Option<Extension<Identity>>,
) -> Response {
    let taken = state.snapshots.latest().await;
    let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    let json = taken.json(identity.and_then(|identity| identity.sees_only()));
    (headers, json).into_response()
}

/// `GET /house/events`: each new snapshot, until the engine has ended.
pub(in crate::server) async fn events(
    State(state): State<AppState>,
    identity: Option<Extension<Identity>>,
) -> Response {
    let watcher = state.snapshots.watch(identity.and_then(|identity| identity.sees_only()));
    sse::response(unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((event, watcher))
    }))
}
