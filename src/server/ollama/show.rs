//! `POST /api/show`: the facts about the model.

use std::fmt::Write as _;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::{
    known_name,
    line::now,
    models::{Details, details},
};
use crate::{
    api::{Modality, PoolingTask},
    engine::{DefaultSampling, Engine},
    server::{
        http::{error::ApiError, extract::JsonBody, parts::FromParts},
        state::AppState,
    },
};

/// The body of `POST /api/show`.
pub(in crate::server) struct OllamaShowRequest(ShowFields);

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct ShowFields {
    model: Option<String>,
    /// The older name of `model`.
    name: Option<String>,
    /// Changes nothing: there are no longer facts.
    #[serde(rename = "verbose")]
    _verbose: Option<bool>,
}

/// The answer to `POST /api/show`.
#[derive(Serialize, ToSchema)]
#[schema(as = OllamaShown)]
pub(in crate::server) struct Shown {
    modelfile: String,
    /// The model's sampling defaults, one a line.
    parameters: String,
    template: String,
    details: Details,
    #[schema(value_type = Object)]
    model_info: Map<String, Value>,
    capabilities: Vec<&'static str>,
    modified_at: String,
}

impl FromParts for OllamaShowRequest {
    type Parts = (ShowFields,);

    fn from_parts((fields,): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self(fields))
    }
}

/// `POST /api/show`
pub(super) async fn show(
    State(state): State<AppState>,
    JsonBody(OllamaShowRequest(fields)): JsonBody<OllamaShowRequest>,
) -> Result<Json<Shown>, ApiError> {
    let asked = fields.model.or(fields.name).unwrap_or_default();
    let name = state.model_name(Some(&known_name(&state, &asked)))?;
    let engine = &state.engine;
    let (loaded, details) = (engine.loaded(), details(engine));
    let parameters = parameters(engine.default_sampling());
    Ok(Json(Shown {
        modelfile: format!("# {name}, served by playhouse\nFROM {}\n", loaded.root),
        parameters,
        template: loaded.chat_templates.first().cloned().unwrap_or_default(),
        model_info: model_info(engine, &details.family),
        details,
        capabilities: capabilities(&state),
        modified_at: now(),
    }))
}

fn parameters(defaults: &DefaultSampling) -> String {
    let mut lines = String::new();
    let floats = [
        ("temperature", defaults.temperature),
        ("top_p", defaults.top_p),
        ("min_p", defaults.min_p),
        ("repeat_penalty", defaults.repetition_penalty),
        ("presence_penalty", defaults.presence_penalty),
        ("frequency_penalty", defaults.frequency_penalty),
    ];
    let counts = [("top_k", defaults.top_k), ("num_predict", defaults.max_tokens)];
    for (name, value) in floats {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{name} {value}");
        }
    }
    for (name, value) in counts {
        if let Some(value) = value {
            let _ = writeln!(lines, "{name} {value}");
        }
    }
    lines
}

fn model_info(engine: &Engine, family: &str) -> Map<String, Value> {
    let info = engine.model_info();
    Map::from_iter([
        ("general.architecture".to_owned(), family.into()),
        ("general.basename".to_owned(), json!(engine.loaded().architecture)),
        (format!("{family}.context_length"), info.max_model_len.into()),
        (format!("{family}.vocab_size"), info.vocab_size.into()),
    ])
}

/// Returns what the model can do, in the API's words.
fn capabilities(state: &AppState) -> Vec<&'static str> {
    let heads = &state.engine.model_info().heads;
    let generates = heads.generates && !state.only_hears();
    let media = state.engine.codec().media();
    let sees = media.is_some_and(|media| media.limit(Modality::Image) > 0);
    let all = [
        ("completion", generates),
        ("tools", generates && state.parsers.finds_calls()),
        ("thinking", generates && state.parsers.finds_thoughts()),
        ("vision", generates && sees),
        ("embedding", state.engine.pooling_task() == Some(PoolingTask::Embed)),
    ];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}
