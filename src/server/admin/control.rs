//! Small routes that other programs expect of a vLLM server: calls of its workers, and versions of
//! its weights. A server here has one worker, whose weights never change: a swap is another engine.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use axum::{Json, extract::State};
use parking_lot::{Mutex, MutexGuard};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::{
    api::{PauseMode, PauseState},
    server::{
        health::Timed,
        http::{
            error::ApiError,
            extract::{JsonBody, QueryOf},
            fields::switch,
            parts::FromParts,
        },
        state::AppState,
    },
};

/// Longest name of a version of the weights.
const VERSION_LEN_MAX: usize = 256;

/// vLLM's names of the parts of a sleeping engine.
const WEIGHTS: &str = "weights";
const KV_CACHE: &str = "kv_cache";

/// The facts that operators have set while the server runs.
#[derive(Debug, Default)]
pub(in crate::server) struct Control {
    /// Whether the engine is paused because it sleeps at level 0.
    dozes: AtomicBool,
    /// The parts of a sleeping engine that are not woken.
    asleep: Mutex<Asleep>,
    /// The operator's name for the weights. `None`: the default.
    weight_version: Mutex<Option<String>>,
}

impl Control {
    /// Returns whether the engine sleeps at a level that keeps all memory.
    pub(in crate::server) fn dozes(&self) -> bool {
        self.dozes.load(Ordering::Relaxed)
    }

    /// Records that the engine begins to sleep at this level.
    pub(super) fn doze(&self) {
        self.dozes.store(true, Ordering::Relaxed);
    }

    /// Records that the engine goes on.
    pub(super) fn wake(&self) {
        self.dozes.store(false, Ordering::Relaxed);
        *self.asleep.lock() = Asleep::default();
    }

    /// Returns the parts of a sleeping engine that are not woken.
    pub(super) fn asleep(&self) -> MutexGuard<'_, Asleep> {
        self.asleep.lock()
    }
}

/// The parts of a sleeping engine, as vLLM knows them. Here the weights never sleep, but the engine
/// goes on only once all parts are awake.
#[derive(Debug, Default)]
pub(super) struct Asleep(BTreeSet<&'static str>);

impl Asleep {
    /// Returns the parts of an engine that sleeps at level 1.
    pub(super) fn all() -> Self {
        Self([WEIGHTS, KV_CACHE].into())
    }

    /// Returns that of an engine whose memory of the KV cache alone is released.
    pub(super) fn kv_cache() -> Self {
        Self([KV_CACHE].into())
    }

    /// Wakes the parts that `tags` name, or all without tags. As in vLLM, a list with the name of
    /// something else wakes nothing. Returns whether all are awake.
    pub(super) fn wake(&mut self, tags: &[String]) -> bool {
        let tags: Vec<&str> = match tags {
            [] => self.0.iter().copied().collect(),
            tags => tags.iter().map(String::as_str).filter(|tag| *tag != "scheduling").collect(),
        };
        if tags.iter().all(|tag| self.0.contains(*tag)) {
            self.0.retain(|part| !tags.contains(part));
        }
        self.0.is_empty()
    }
}

/// The body of `POST /collective_rpc`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct RpcRequest {
    method: Option<String>,
    #[serde(rename = "args")]
    _args: Option<Vec<Value>>,
    #[serde(rename = "kwargs")]
    _kwargs: Option<Value>,
    #[serde(rename = "timeout")]
    _timeout: Option<f64>,
}

/// The body of `POST /update_weight_version`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct WeightVersionRequest {
    new_version: Option<String>,
}

impl FromParts for RpcRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

impl FromParts for WeightVersionRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

/// `POST /collective_rpc`: answers for the one worker. Its only method here is `check_health`.
pub(super) async fn collective_rpc(
    State(state): State<AppState>,
    JsonBody(request): JsonBody<RpcRequest>,
) -> Result<Json<Value>, ApiError> {
    let method = request.method.filter(|method| !method.is_empty()).ok_or_else(|| ApiError {
        param: None,
        ..ApiError::validation("body.method", "Missing 'method'")
    })?;
    if method != "check_health" {
        let message = format!("method must be check_health, got {method:?}: workers have no other");
        return Err(ApiError::invalid("method", message));
    }
    state.engine.status().await?;
    Ok(Json(json!({"results": [null]})))
}

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct WorldSizeQuery {
    /// Count the workers of all engines, not of one.
    #[serde(deserialize_with = "switch")]
    include_dp: bool,
}

impl Default for WorldSizeQuery {
    fn default() -> Self {
        Self { include_dp: true }
    }
}

/// `GET /get_world_size`: the number of workers. An engine has one.
pub(super) async fn world_size(
    State(state): State<AppState>,
    QueryOf(query): QueryOf<WorldSizeQuery>,
) -> Json<Value> {
    let num_engines = state.engine.config().data_parallel_size;
    Json(json!({"world_size": if query.include_dp { num_engines } else { 1 }}))
}

/// `GET /weight_info`
pub(super) async fn weight_info(State(state): State<AppState>) -> Json<Value> {
    let version = state.control.weight_version.lock().clone();
    Json(json!({"weight_version": version.as_deref().unwrap_or("default")}))
}

/// `POST /update_weight_version`: names the weights. It does not change them.
pub(super) async fn update_weight_version(
    State(state): State<AppState>,
    JsonBody(request): JsonBody<WeightVersionRequest>,
) -> Result<Json<Value>, ApiError> {
    let version = request
        .new_version
        .ok_or_else(|| ApiError::validation("body.new_version", "Field required"))?;
    if version.len() > VERSION_LEN_MAX {
        let message = format!("new_version must have at most {VERSION_LEN_MAX} bytes");
        return Err(ApiError::invalid("new_version", message));
    }
    *state.control.weight_version.lock() = Some(version.clone());
    Ok(Json(json!({"success": true, "new_version": version})))
}

/// `POST /release_kv_cache_memory`: returns the memory of the KV cache of a paused engine.
/// `/wake_up` takes it again, and resumes.
pub(super) async fn release_kv_cache_memory(
    State(state): State<AppState>,
) -> Result<Json<Value>, ApiError> {
    if state.engine.pause_state() == PauseState::Unpaused {
        let message = "release_kv_cache_memory requires a completed pause first: POST /pause";
        return Err(ApiError::bad_request(message));
    }
    let _timed = Timed::sleep_mode("release_kv_cache_memory");
    state.engine.sleep(PauseMode::Keep).await?;
    *state.control.asleep() = Asleep::kv_cache();
    Ok(Json(json!({"status": "kv_cache_released"})))
}

/// `GET /kv_event_sources`: nothing publishes events of the KV cache.
pub(super) async fn kv_event_sources() -> Json<Value> {
    Json(json!({}))
}

/// `POST /is_scaling_elastic_ep`
pub(super) async fn is_scaling() -> Json<Value> {
    Json(json!({"is_scaling_elastic_ep": false}))
}

/// The routes by which one server renders prompts and another generates.
pub(super) async fn no_scale_out() -> ApiError {
    ApiError::forbidden(
        "this server renders prompts and generates for itself alone; POST /tokenize returns the \
         tokens of a conversation, and /v1/completions takes tokens as the prompt",
    )
}
