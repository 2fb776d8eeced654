//! `POST /pause?mode=abort|wait|keep`, `POST /resume` and `GET /is_paused`.

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{PauseMode, PauseState};
use crate::server::{
    http::{error::ApiError, extract::QueryOf, fields::switch},
    state::AppState,
};

/// vLLM's words for a [`PauseMode`].
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    #[default]
    Abort,
    Wait,
    Keep,
}

impl From<Mode> for PauseMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Abort => Self::Abort,
            Mode::Wait => Self::Wait,
            Mode::Keep => Self::Keep,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct PauseQuery {
    mode: Mode,
    /// Forget cached prefixes, too. Not done if requests are kept.
    #[serde(deserialize_with = "switch")]
    clear_cache: bool,
}

impl Default for PauseQuery {
    fn default() -> Self {
        Self { mode: Mode::default(), clear_cache: true }
    }
}

/// Answers once no request runs.
pub(super) async fn pause(
    State(state): State<AppState>,
    QueryOf(query): QueryOf<PauseQuery>,
) -> Result<Json<Value>, ApiError> {
    state.engine.pause(query.mode.into()).await?;
    if query.clear_cache && !matches!(query.mode, Mode::Keep) {
        state.engine.reset_prefix_cache(false).await?;
    }
    Ok(Json(json!({"status": "paused"})))
}

pub(super) async fn resume(State(state): State<AppState>) -> Json<Value> {
    state.control.wake();
    state.engine.resume();
    Json(json!({"status": "resumed"}))
}

pub(super) async fn is_paused(State(state): State<AppState>) -> Json<Value> {
    Json(json!({"is_paused": state.engine.pause_state() != PauseState::Unpaused}))
}

#[cfg(test)]
mod tests {
    use axum::extract::Query;

    use super::*;

    #[test]
    fn the_switch_is_written_as_clients_of_python_write_it() {
        let read = |query: &str| {
            let uri = format!("http://localhost/pause?{query}").parse().unwrap();
            Query::<PauseQuery>::try_from_uri(&uri).map(|Query(query)| query.clear_cache).ok()
        };
        assert_eq!(read(""), Some(true));
        assert_eq!(read("mode=wait&clear_cache=False"), Some(false));
        assert_eq!(read("clear_cache=True"), Some(true));
        assert_eq!(read("clear_cache=maybe"), None);
    }
}
