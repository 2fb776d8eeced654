//! Routes for the operator: they look into the engine, hold it back, or end others' work.
//!
//! vLLM has them in its development mode alone, open to whoever reaches the port. Here they want an
//! API key; a server without keys has them only where no other machine reaches it.

mod abort;
mod cache;
mod guard;
mod pause;
mod server_info;
mod sleep;

use axum::{
    Router,
    middleware::from_fn_with_state,
    routing::{get, post},
};

pub(super) use self::abort::AbortRequest;
use super::state::AppState;

/// All of them, guarded; none where the operator has turned them off.
pub(super) fn routes(state: &AppState) -> Router<AppState> {
    if !state.config.enable_admin_routes {
        return Router::new();
    }
    Router::new()
        .route("/server_info", get(server_info::server_info))
        .route("/abort_requests", post(abort::abort_requests))
        .route("/pause", post(pause::pause))
        .route("/resume", post(pause::resume))
        .route("/is_paused", get(pause::is_paused))
        .route("/sleep", post(sleep::sleep))
        .route("/wake_up", post(sleep::wake_up))
        .route("/is_sleeping", get(sleep::is_sleeping))
        .route("/reset_prefix_cache", post(cache::reset_prefix_cache))
        .route_layer(from_fn_with_state(state.clone(), guard::guard))
}
