//! `GET /engines`, `POST /engines/{n}/drain?mode=wait|move` and `POST /engines/{n}/undrain`.

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{DrainError, EngineIndex, EngineView};
use crate::server::{
    http::{
        error::ApiError,
        extract::{PathOf, QueryOf},
    },
    state::AppState,
};

/// The fate of the requests of an engine that is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// They run to their ends.
    #[default]
    Wait,
    /// They go on in other engines.
    Move,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct DrainQuery {
    mode: Mode,
}

impl From<DrainError> for ApiError {
    fn from(error: DrainError) -> Self {
        Self::invalid("engine", error.to_string())
    }
}

/// Returns an engine in JSON.
pub(super) fn described(engine: &EngineView) -> Value {
    json!({
        "engine": engine.engine.0,
        "state": engine.state.as_str(),
        "num_requests": engine.num_requests,
        "pid": engine.process.pid,
        "num_starts": engine.process.num_starts,
        "ends": engine.process.ends,
    })
}

fn all(state: &AppState) -> Value {
    json!({"engines": state.engine.engines().iter().map(described).collect::<Vec<_>>()})
}

/// The engines that have processes of their own. The list is empty without any.
pub(super) async fn list(State(state): State<AppState>) -> Json<Value> {
    Json(all(&state))
}

/// Answers at once. `GET /engines` shows when the engine is drained.
pub(super) async fn drain(
    State(state): State<AppState>,
    PathOf(engine): PathOf<usize>,
    QueryOf(query): QueryOf<DrainQuery>,
) -> Result<Json<Value>, ApiError> {
    state.engine.drain_engine(EngineIndex(engine), query.mode == Mode::Move)?;
    Ok(Json(all(&state)))
}

pub(super) async fn undrain(
    State(state): State<AppState>,
    PathOf(engine): PathOf<usize>,
) -> Result<Json<Value>, ApiError> {
    state.engine.undrain_engine(EngineIndex(engine))?;
    Ok(Json(all(&state)))
}
