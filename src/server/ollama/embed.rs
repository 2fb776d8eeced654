//! `POST /api/embed`: vectors of texts. `POST /api/embeddings`, its older form, takes one text.

use std::time::{Duration, Instant};

use axum::response::Response;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::{error::lacks, known_name, times::nanoseconds};
use crate::{
    api::{PoolingTask, Prompt, TruncationSide},
    config::LimitSettings,
    server::{
        exchange::Exchange,
        http::{
            error::ApiError,
            extract::JsonBody,
            fields::{Int, Strings, or_default},
            limits::at_most,
            parts::FromParts,
        },
        pooling::{Inputs, PoolingFields, Results, json},
        state::AppState,
    },
};

/// Keeps as many tokens of a text as the context has.
const FIT: i64 = -1;

/// The body of `POST /api/embed`.
pub(in crate::server) struct OllamaEmbedRequest {
    model: ModelFields,
    fields: EmbedFields,
}

/// The body of `POST /api/embeddings`.
pub(in crate::server) struct OllamaEmbeddingsRequest {
    model: ModelFields,
    fields: PromptFields,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct ModelFields {
    model: Option<String>,
    /// Changes nothing: the model is always loaded.
    #[serde(rename = "keep_alive")]
    _keep_alive: Option<Value>,
    /// Changes nothing: its options are those of generation and of the runtime.
    #[serde(rename = "options")]
    _options: Option<Value>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct EmbedFields {
    #[serde(deserialize_with = "input")]
    input: Option<Strings>,
    /// Whether the end of a text that is too long is left out. Otherwise it is an error.
    truncate: Option<bool>,
    dimensions: Option<Int>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct PromptFields {
    #[serde(deserialize_with = "or_default")]
    prompt: String,
}

/// The answer to `POST /api/embed`.
#[derive(Default, Serialize, ToSchema)]
pub(in crate::server) struct OllamaEmbedded {
    model: String,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

/// The answer to `POST /api/embeddings`.
#[derive(Serialize, ToSchema)]
pub(in crate::server) struct OllamaEmbedding {
    embedding: Vec<f32>,
}

impl FromParts for OllamaEmbedRequest {
    type Parts = (ModelFields, EmbedFields);

    fn from_parts((model, fields): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self { model, fields })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        let count = self.fields.input.as_ref().map_or(0, |Strings(texts)| texts.len());
        at_most("input", count, limits.max_pooling_prompts)
    }
}

impl FromParts for OllamaEmbeddingsRequest {
    type Parts = (ModelFields, PromptFields);

    fn from_parts((model, fields): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self { model, fields })
    }
}

/// Reads one text or several. A single one that is empty counts as absent: Ollama's Python client
/// sends it by default.
fn input<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Strings>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a string or a list of strings")]
    enum Input {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Option::deserialize(from)? {
        None => None,
        Some(Input::One(text)) if text.is_empty() => None,
        Some(Input::One(text)) => Some(Strings(vec![text])),
        Some(Input::Many(texts)) => Some(Strings(texts)),
    })
}

/// `POST /api/embed`
pub(super) async fn embed(
    exchange: Exchange,
    JsonBody(request): JsonBody<OllamaEmbedRequest>,
) -> Result<Response, ApiError> {
    let began = Instant::now();
    let OllamaEmbedRequest { model, fields } = request;
    let texts = fields.input.map(|Strings(texts)| texts).unwrap_or_default();
    if texts.is_empty() {
        // It asks for the model to be loaded, as in Ollama.
        let model = embedder(&exchange.state, model)?.1;
        return json(OllamaEmbedded { model, ..OllamaEmbedded::default() }, 0).await;
    }
    let truncates = fields.truncate.unwrap_or(true);
    let results = pool(&exchange, "/api/embed", model, texts, truncates, fields.dimensions).await?;
    let Results { model, results, num_tokens, .. } = results;
    let embeddings: Vec<Vec<f32>> = results.iter().map(|pooled| pooled.values.to_vec()).collect();
    let num_values = embeddings.iter().map(Vec::len).sum();
    let answer = OllamaEmbedded {
        model,
        embeddings,
        total_duration: nanoseconds(began.elapsed()),
        load_duration: nanoseconds(Duration::ZERO),
        prompt_eval_count: num_tokens,
    };
    json(answer, num_values).await
}

/// `POST /api/embeddings`
pub(super) async fn embeddings(
    exchange: Exchange,
    JsonBody(request): JsonBody<OllamaEmbeddingsRequest>,
) -> Result<Response, ApiError> {
    let OllamaEmbeddingsRequest { model, fields } = request;
    if fields.prompt.is_empty() {
        embedder(&exchange.state, model)?;
        return json(OllamaEmbedding { embedding: Vec::new() }, 0).await;
    }
    let texts = vec![fields.prompt];
    let results = pool(&exchange, "/api/embeddings", model, texts, true, None).await?.results;
    let embedding: Vec<f32> = results.first().map(|row| row.values.to_vec()).unwrap_or_default();
    let num_values = embedding.len();
    json(OllamaEmbedding { embedding }, num_values).await
}

/// Returns the name that a client asked for as the server has it, and the name to answer under.
///
/// # Errors
/// If no model has the name, or it makes no vectors.
fn embedder(state: &AppState, model: ModelFields) -> Result<(Option<String>, String), ApiError> {
    let asked = model.model.map(|asked| known_name(state, &asked));
    let name = state.model_name(asked.as_deref())?;
    match state.engine.pooling_task() {
        Some(PoolingTask::Embed) => Ok((asked, name)),
        _ => Err(lacks(&name, "embeddings")),
    }
}

async fn pool(
    exchange: &Exchange,
    route: &'static str,
    model: ModelFields,
    texts: Vec<String>,
    truncates: bool,
    dimensions: Option<Int>,
) -> Result<Results, ApiError> {
    let state = &exchange.state;
    let (asked, name) = embedder(state, model)?;
    let truncate = truncates.then_some((FIT, TruncationSide::Right));
    let fields = PoolingFields::of_embed(asked, dimensions, None, truncate);
    let params = fields.embed_params(state, &name)?;
    let prompts = texts.into_iter().map(Prompt::Text).collect();
    let inputs = Inputs::of_texts(prompts, true);
    exchange.pool(route, "embed", &fields, inputs, params).await
}
