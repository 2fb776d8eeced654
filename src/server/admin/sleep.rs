//! `POST /sleep?level=1&mode=abort|wait|keep`, `POST /wake_up` and `GET /is_sleeping`.

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{control::Asleep, pause::Mode};
use crate::{
    api::PauseState,
    server::{
        health::Timed,
        http::{error::ApiError, extract::QueryOf},
        state::AppState,
    },
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
            let _timed = Timed::sleep_mode("sleep");
            state.engine.pause(query.mode.into()).await?;
            state.control.doze();
        }
        1 => {
            let _timed = Timed::sleep_mode("sleep");
            state.engine.sleep(query.mode.into()).await?;
            *state.control.asleep() = Asleep::all();
        }
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

/// Wakes the parts that `tags` name, `weights` or `kv_cache`. Wakes everything without tags. As in
/// vLLM, any call resumes an engine whose parts are all awake, and `status` says whether they are.
pub(super) async fn wake_up(
    State(state): State<AppState>,
    QueryOf(query): QueryOf<Vec<(String, String)>>,
) -> Result<Json<Value>, ApiError> {
    let tags = query.into_iter().filter(|(name, _)| name == "tags").map(|(_, tag)| tag);
    let tags: Vec<String> = tags.collect();
    let _timed = Timed::sleep_mode("wake");
    let all_wake = state.control.asleep().wake(&tags);
    if all_wake || !state.engine.is_sleeping() {
        state.engine.wake_up().await?;
        state.control.wake();
    }
    let status = if state.engine.is_sleeping() { "sleeping" } else { "awake" };
    let tags = (!tags.is_empty()).then_some(tags);
    Ok(Json(json!({"status": status, "tags": tags})))
}

/// As in vLLM, an engine that is paused sleeps, too.
pub(super) async fn is_sleeping(State(state): State<AppState>) -> Json<Value> {
    let is_paused = state.engine.pause_state() != PauseState::Unpaused;
    Json(json!({"is_sleeping": is_paused || state.engine.is_sleeping()}))
}
