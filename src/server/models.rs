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
use crate::{
    api::{LoraRequest, Modality},
    engine::Engine,
};

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
    /// The kinds of content that messages may have.
    input_modalities: Vec<&'static str>,
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

/// Returns text, and the kinds of media that the model takes.
fn input_modalities(state: &AppState) -> Vec<&'static str> {
    let media = state.engine.codec().media();
    let takes = |kind: &Modality| media.is_some_and(|media| media.limit(*kind) > 0);
    let kinds = Modality::ALL.into_iter().filter(takes).map(Modality::as_str);
    ["text"].into_iter().chain(kinds).collect()
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
        input_modalities: input_modalities(state),
        permission: [permission(state.created)],
    }
}

/// Returns the card of an adapter. Its parent is the model, under the name that the settings of the
/// adapter have, or the first.
fn adapter_card(state: &AppState, adapter: &LoraRequest) -> ModelCard {
    let mut modules = state.engine.config().lora_modules.iter();
    let module = modules.find(|module| module.name == adapter.name);
    let base = module.and_then(|module| module.base_model_name.clone());
    ModelCard {
        root: Engine::lora_adapter_root(adapter),
        parent: base.or_else(|| state.engine.served_model_names().first().cloned()),
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
