//! `POST /sleep?level=1&mode=abort|wait|keep`, `POST /wake_up` and `GET /is_sleeping`.

use axum::{
    Json,
    extract::{RawQuery, State},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::pause::Mode;
use crate::server::{
    http::{error::ApiError, extract::QueryOf},
    state::AppState,
};

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct SleepQuery {
    /// 0: pause. 1: release the KV cache's memory as well.
    level: u8,
    mode: Mode,
}

impl Default for SleepQuery {
    fn default() -> Self {
        Self { level: 1, mode: Mode::default() }
    }
}

/// Answers once the memory is released.
pub(super) async fn sleep(
    State(state): State<AppState>,
    QueryOf(query): QueryOf<SleepQuery>,
) -> Result<Json<Value>, ApiError> {
    match query.level {
        0 => {
            state.engine.pause(query.mode.into()).await?;
            state.control.doze();
        }
        1 => state.engine.sleep(query.mode.into()).await?,
        2 => {
            let message = "sleep level 2 is not supported by this server: it cannot drop the \
                           weights and load them again; level 1 gives the KV cache's memory back";
            return Err(ApiError::not_implemented("level", message));
        }
        level => {
            let message = format!("level must be 0, 1 or 2, got {level}");
            return Err(ApiError::invalid("query.level", message));
        }
    }
    Ok(Json(json!({"status": "sleeping", "level": query.level})))
}

/// Wakes the parts that `tags` name, `weights` or `kv_cache`. Wakes everything without tags. The
/// weights never sleep, and other names stand for nothing. As in vLLM, any call resumes an engine
/// whose memory is all there, and `status` says whether it is.
pub(super) async fn wake_up(
    State(state): State<AppState>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, ApiError> {
    let query = query.unwrap_or_default();
    let tags: Vec<_> = query.split('&').filter_map(|pair| pair.strip_prefix("tags=")).collect();
    if tags.is_empty() || tags.contains(&"kv_cache") || !state.engine.is_sleeping() {
        state.control.wake();
        state.engine.wake_up().await?;
    }
    let status = if state.engine.is_sleeping() { "sleeping" } else { "awake" };
    let tags = (!tags.is_empty()).then_some(tags);
    Ok(Json(json!({"status": status, "tags": tags})))
}

pub(super) async fn is_sleeping(State(state): State<AppState>) -> Json<Value> {
    Json(json!({"is_sleeping": state.engine.is_sleeping() || state.control.dozes()}))
}
