//! Whether the server lives, works, and wants more work.

use axum::{Json, extract::State, http::StatusCode};
use playhouse_actors::shell::Health;
use serde_json::{Value, json};

use super::state::AppState;

/// `GET /health`, `/ping`: 200 as long as requests are served, also while a part restarts.
pub(super) async fn health(State(state): State<AppState>) -> StatusCode {
    status(state.engine.health() != Health::Dead)
}

/// `GET /readyz`: 200 as long as new requests are taken.
pub(super) async fn readyz(State(state): State<AppState>) -> StatusCode {
    status(state.engine.health() == Health::Ready)
}

/// `GET /livez`: the process runs.
pub(super) async fn livez() -> StatusCode {
    StatusCode::OK
}

/// `GET /version`
pub(super) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /load`: requests that have not ended.
pub(super) async fn load(State(state): State<AppState>) -> Json<Value> {
    Json(json!({"server_load": state.engine.open_requests()}))
}

fn status(good: bool) -> StatusCode {
    if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}
