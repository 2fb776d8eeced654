//! Faults on purpose, over HTTP. These routes exist only with the setting `allow_chaos`, on a
//! server that no other machine reaches. They break every part of the engine, and no stream may
//! show it. Where there are keys, they are for operators.

use std::time::Duration;

use axum::{
    Json, Router,
    extract::State,
    middleware::from_fn_with_state,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{
    admin::guard_chaos,
    http::{error::ApiError, extract::JsonBody, parts::FromParts},
    state::AppState,
};
use crate::api::{ActorStats, ChaosError, Edge, EdgeFaults, EngineIndex, How, Role};

/// The way to end every engine process that computes a prompt with a token.
const POISON: &str = "poison";
/// Longest delay of a message, milliseconds: ten minutes, longer than any part waits.
const DELAY_MS_MAX: f64 = 600_000.0;

/// Returns the routes under `/chaos`.
pub(super) fn routes(state: &AppState) -> Router<AppState> {
    Router::new()
        .route("/chaos/kill", post(kill))
        .route("/chaos/process", post(process))
        .route("/chaos/edges", post(edges))
        .route("/chaos/calm", post(calm))
        .route("/chaos/tree", get(tree))
        .route_layer(from_fn_with_state(state.clone(), guard_chaos))
}

/// The actor to strike, and how.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct KillRequest {
    role: String,
    how: String,
    /// Index among the actors with the same role.
    #[serde(default)]
    index: usize,
}

/// The way to end an engine process.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ProcessRequest {
    how: String,
    /// The engine, where there are several.
    #[serde(default)]
    engine: usize,
    /// With `how` = "poison": the token that ends each engine process in every step with a prompt
    /// that has it.
    token: Option<u32>,
}

/// The faults of the messages on an edge.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EdgesRequest {
    edge: String,
    #[serde(default)]
    drop: f64,
    #[serde(default)]
    duplicate: f64,
    /// Probability of being late. Without it, every message is late if there is a delay.
    late: Option<f64>,
    /// Longest delay of a late message.
    #[serde(default)]
    delay_ms: f64,
}

impl FromParts for KillRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

impl FromParts for ProcessRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

impl FromParts for EdgesRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

/// `POST /chaos/kill`: strikes one actor, and answers with the epoch in which it was struck.
async fn kill(
    State(state): State<AppState>,
    JsonBody(request): JsonBody<KillRequest>,
) -> Result<Json<Value>, ApiError> {
    let roles = Role::ACTORS.into_iter().filter(|role| *role != Role::Root);
    let role = named("role", &request.role, roles, Role::as_str)?;
    let how = named("how", &request.how, How::ALL, How::as_str)?;
    let actors = state.engine.actors();
    let count = actors.iter().filter(|actor| actor.role == role).count();
    if request.index >= count {
        let message = format!("index must be below {count}, got {}", request.index);
        return Err(ApiError::invalid("index", message));
    }
    let struck = state.engine.chaos().strike(role, request.index, how)?;
    Ok(Json(json!({"role": struck.role.as_str(), "epoch": struck.epoch.0})))
}

/// `POST /chaos/process`: strikes the process of an engine, and answers with its number.
async fn process(
    State(state): State<AppState>,
    JsonBody(request): JsonBody<ProcessRequest>,
) -> Result<Json<Value>, ApiError> {
    if let Some(token) = request.token {
        named("how", &request.how, [POISON], |name| name)?;
        if state.engine.chaos().poison_process(token) {
            return Ok(Json(json!({ "token": token })));
        }
    }
    #[cfg(unix)]
    {
        use crate::engine::ProcessStrike;
        let how = named("how", &request.how, ProcessStrike::ALL, ProcessStrike::as_str)?;
        if let Some(pid) = state.engine.strike_process(EngineIndex(request.engine), how).await {
            return Ok(Json(json!({ "pid": pid })));
        }
    }
    let why = match state.engine.engine_process() {
        Some(_) => "the engine process is being replaced",
        None => "the model runs in the server's own process (single_process)",
    };
    Err(ApiError::invalid("how", format!("how = {:?}: {why}", request.how)))
}

/// `POST /chaos/edges`: from now on, messages on an edge are lost, doubled or late.
async fn edges(
    State(state): State<AppState>,
    JsonBody(request): JsonBody<EdgesRequest>,
) -> Result<Json<Value>, ApiError> {
    let edge = named("edge", &request.edge, Edge::ALL, Edge::as_str)?;
    let late_by_default = if request.delay_ms > 0.0 { 1.0 } else { 0.0 };
    let delay_ms = within("delay_ms", request.delay_ms, DELAY_MS_MAX)?;
    let faults = EdgeFaults {
        drop: within("drop", request.drop, 1.0)?,
        duplicate: within("duplicate", request.duplicate, 1.0)?,
        late: within("late", request.late.unwrap_or(late_by_default), 1.0)?,
        delay: Duration::from_secs_f64(delay_ms / 1e3),
    };
    state.engine.chaos().set_edge(edge, faults);
    Ok(Json(json!({"edge": edge.as_str()})))
}

/// `POST /chaos/calm`: ends all faults.
async fn calm(State(state): State<AppState>) -> Json<Value> {
    state.engine.chaos().calm();
    Json(json!({}))
}

/// The answer of `GET /chaos/tree`.
#[derive(Debug, Serialize)]
struct Tree {
    epoch: u64,
    /// The number of the engine process. Missing without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_process: Option<u32>,
    actors: Vec<TreeActor>,
}

#[derive(Debug, Serialize)]
struct TreeActor {
    role: &'static str,
    index: usize,
    state: &'static str,
    restarts: u64,
    mailbox_depth: u64,
    heartbeat_age_ms: f64,
}

impl From<ActorStats> for TreeActor {
    fn from(stats: ActorStats) -> Self {
        Self {
            role: stats.role.as_str(),
            index: stats.index,
            state: if stats.is_alive { "alive" } else { "dead" },
            restarts: stats.restarts,
            mailbox_depth: stats.mailbox_depth,
            heartbeat_age_ms: stats.heartbeat_age as f64 / 1e3,
        }
    }
}

/// `GET /chaos/tree`: the state of every actor, supervisors first.
async fn tree(State(state): State<AppState>) -> Json<Tree> {
    let actors = state.engine.actors().into_iter().map(TreeActor::from).collect();
    let engine_process = state.engine.engine_process().and_then(|process| process.pid);
    Json(Tree { epoch: state.engine.epoch().0, engine_process, actors })
}

/// Returns the one of `all` that has this `name`.
fn named<T: Copy>(
    field: &str,
    name: &str,
    all: impl IntoIterator<Item = T>,
    name_of: impl Fn(T) -> &'static str,
) -> Result<T, ApiError> {
    let mut accepted = Vec::new();
    for one in all {
        if name_of(one) == name {
            return Ok(one);
        }
        accepted.push(name_of(one));
    }
    let accepted = accepted.join(", ");
    Err(ApiError::invalid(field, format!("{field} must be one of {accepted}, got {name:?}")))
}

fn within(field: &str, value: f64, most: f64) -> Result<f64, ApiError> {
    if (0.0..=most).contains(&value) {
        return Ok(value);
    }
    Err(ApiError::invalid(field, format!("{field} must be a number in [0, {most}], got {value}")))
}

impl From<ChaosError> for ApiError {
    fn from(error: ChaosError) -> Self {
        let param = match error {
            ChaosError::NoSuchActor { .. } => "index",
            ChaosError::Root | ChaosError::NoProcess { .. } => "role",
        };
        Self::invalid(param, error.to_string())
    }
}
