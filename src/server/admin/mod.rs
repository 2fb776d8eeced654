//! Routes for operators: they inspect the engine, pause it, or end other clients' requests.
//!
//! vLLM has them in its development mode alone, open to every client that reaches the port. Here
//! they need an operator's key where there are keys. Clients' keys do not open them. A server
//! without keys has them only if no other machine reaches it.

mod abort;
mod cache;
mod control;
mod engines;
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
pub(super) use self::control::{Control, RpcRequest, WeightVersionRequest};
pub(super) use self::guard::guard_chaos;
use super::{handover, lora, state::AppState, swap};

/// Returns the routes that load and unload adapters, if the settings allow it.
fn adapters(state: &AppState) -> Router<AppState> {
    let is_allowed = state.config.allow_runtime_lora_updating;
    if !is_allowed || !state.engine.config().enable_lora {
        return Router::new();
    }
    Router::new()
        .route("/v1/load_lora_adapter", post(lora::load))
        .route("/v1/unload_lora_adapter", post(lora::unload))
}

/// Returns all of them, guarded. Returns none if the operator has turned them off.
pub(super) fn routes(state: &AppState) -> Router<AppState> {
    if !state.config.enable_admin_routes {
        return Router::new();
    }
    let of_clients = Router::new()
        .route("/abort_requests", post(abort::abort_requests))
        .route_layer(from_fn_with_state(state.clone(), guard::guard_own));
    Router::new()
        .route("/server_info", get(server_info::server_info))
        .route("/swap_model", post(swap::swap_model))
        .route("/upgrade", post(handover::upgrade))
        .route("/pause", post(pause::pause))
        .route("/resume", post(pause::resume))
        .route("/is_paused", get(pause::is_paused))
        .route("/engines", get(engines::list))
        .route("/engines/{engine}/drain", post(engines::drain))
        .route("/engines/{engine}/undrain", post(engines::undrain))
        .route("/sleep", post(sleep::sleep))
        .route("/wake_up", post(sleep::wake_up))
        .route("/is_sleeping", get(sleep::is_sleeping))
        .route("/collective_rpc", post(control::collective_rpc))
        .route("/get_world_size", get(control::world_size))
        .route("/weight_info", get(control::weight_info))
        .route("/update_weight_version", post(control::update_weight_version))
        .route("/release_kv_cache_memory", post(control::release_kv_cache_memory))
        .route("/kv_event_sources", get(control::kv_event_sources))
        .route("/is_scaling_elastic_ep", post(control::is_scaling))
        .route("/v1/chat/completions/render", post(control::no_scale_out))
        .route("/v1/chat/completions/derender", post(control::no_scale_out))
        .route("/v1/completions/render", post(control::no_scale_out))
        .route("/v1/completions/derender", post(control::no_scale_out))
        .route("/v1/messages/render", post(control::no_scale_out))
        .route("/v1/responses/render", post(control::no_scale_out))
        .route("/inference/v1/generate", post(control::no_scale_out))
        .route("/inference/v1/abort_requests", post(control::no_scale_out))
        .route("/reset_prefix_cache", post(cache::reset_prefix_cache))
        .route("/reset_mm_cache", post(cache::reset_mm_cache))
        .route("/reset_encoder_cache", post(cache::reset_encoder_cache))
        .merge(adapters(state))
        .route_layer(from_fn_with_state(state.clone(), guard::guard))
        .merge(of_clients)
}
