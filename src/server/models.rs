//! `GET /v1/models`: the names of the one model, then those of its adapters. `GET
//! /v1/models/{id}`: one of the model's names.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{
    http::{error::ApiError, extract::PathOf},
    state::AppState,
};
use crate::api::LoraRequest;

#[derive(Serialize, ToSchema)]
pub(super) struct ModelList {
    object: &'static str,
    data: Vec<ModelCard>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct ModelCard {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: String,
    parent: Option<String>,
    max_model_len: Option<usize>,
    permission: [Permission; 1],
}

/// Old OpenAI clients look for it. It has no meaning here.
#[derive(Serialize, ToSchema)]
struct Permission {
    id: String,
    object: &'static str,
    created: u64,
    allow_create_engine: bool,
    allow_sampling: bool,
    allow_logprobs: bool,
    allow_search_indices: bool,
    allow_view: bool,
    allow_fine_tuning: bool,
    organization: &'static str,
    group: Option<String>,
    is_blocking: bool,
}

pub(super) async fn list(State(state): State<AppState>) -> Json<ModelList> {
    let names = state.engine.served_model_names();
    let models = names.iter().map(|name| card(&state, name));
    let adapters = state.engine.lora_adapters();
    let adapters = adapters.iter().map(|adapter| adapter_card(&state, adapter));
    let data = models.chain(adapters).collect();
    Json(ModelList { object: "list", data })
}

/// Ids may have slashes. Clients send them as they are or percent-encoded.
pub(super) async fn retrieve(
    State(state): State<AppState>,
    PathOf(id): PathOf<String>,
) -> Result<Json<ModelCard>, ApiError> {
    match state.engine.served_model_names().contains(&id) {
        true => Ok(Json(card(&state, &id))),
        // As in vLLM, an adapter has a card in the list alone.
        false => Err(ApiError::no_such_model(&id)),
    }
}

fn card(state: &AppState, name: &str) -> ModelCard {
    ModelCard {
        id: name.to_owned(),
        object: "model",
        created: state.created,
        owned_by: "playhouse",
        root: state.engine.model_root().to_owned(),
        parent: None,
        max_model_len: Some(state.engine.model_info().max_model_len),
        permission: [permission(state.created)],
    }
}

/// Returns the card of an adapter, whose parent is the model.
fn adapter_card(state: &AppState, adapter: &LoraRequest) -> ModelCard {
    ModelCard {
        root: adapter.path.clone(),
        parent: state.engine.served_model_names().first().cloned(),
        max_model_len: None,
        ..card(state, &adapter.name)
    }
}

fn permission(created: u64) -> Permission {
    Permission {
        id: format!("modelperm-{}", Uuid::new_v4().simple()),
        object: "model_permission",
        created,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: "*",
        group: None,
        is_blocking: false,
    }
}
