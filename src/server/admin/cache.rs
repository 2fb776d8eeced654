//! `POST /reset_prefix_cache` and `/reset_mm_cache`.

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::{
    http::{error::ApiError, extract::QueryOf},
    state::AppState,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResetQuery {
    /// Preempt running requests, so that every block is free and can be forgotten.
    reset_running_requests: bool,
}

/// Forgets processed images and sounds.
pub(super) async fn reset_mm_cache(State(state): State<AppState>) {
    state.engine.codec().media().into_iter().for_each(|media| media.clear());
}

/// `success` is false if blocks are in use and may not be preempted.
pub(super) async fn reset_prefix_cache(
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ResetQuery>,
) -> Result<Json<Value>, ApiError> {
    let success = state.engine.reset_prefix_cache(query.reset_running_requests).await?;
    Ok(Json(json!({ "success": success })))
}
