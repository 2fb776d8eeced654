//! Ollama's API under `/api`, for the many programs that speak it.
//!
//! A chat or a prompt becomes a turn ([`turn`](super::turn)) like those of other protocols. Its
//! output becomes lines of JSON ([`line`]), in one piece or one by one ([`answer`]). A server has
//! one model, which is always loaded: `keep_alive` is accepted and changes nothing. Routes that
//! would fetch or change other models are refused ([`absent`]). A layer around the routes writes
//! the errors in this API's shape ([`error`]).
//!
//! Streams of this API have no ids of events, so they cannot be continued, and the journal does not
//! keep them.

mod absent;
mod answer;
mod chat;
mod common;
mod embed;
mod error;
mod generate;
mod line;
mod messages;
mod models;
mod options;
mod parts;
mod show;
mod times;

use axum::{
    Router,
    extract::State,
    http::HeaderMap,
    response::Response,
    routing::{delete, get, post},
};

pub(super) use self::{
    absent::{OllamaPullRequest, Progress},
    chat::OllamaChatRequest,
    embed::{OllamaEmbedRequest, OllamaEmbedded, OllamaEmbedding, OllamaEmbeddingsRequest},
    error::{ErrorBody, in_own_shape, is_ours},
    generate::OllamaGenerateRequest,
    line::Line,
    models::{ModelTags, RunningModels, Version},
    show::{OllamaShowRequest, Shown},
};
use super::{
    generate::handler::{Protocol, generate},
    http::{caller::Caller, error::ApiError, extract::JsonBody},
    memory::RequestMemory,
    resume::Ticket,
    state::AppState,
    traces::TraceParent,
};

/// Returns all routes.
pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/api/version", get(models::version))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::running))
        .route("/api/show", post(show::show))
        .route("/api/chat", post(run::<OllamaChatRequest>))
        .route("/api/generate", post(run::<OllamaGenerateRequest>))
        .route("/api/embed", post(embed::embed))
        .route("/api/embeddings", post(embed::embeddings))
        .route("/api/pull", post(absent::pull))
        .route("/api/push", post(absent::refuse))
        .route("/api/create", post(absent::refuse))
        .route("/api/copy", post(absent::refuse))
        .route("/api/delete", delete(absent::refuse))
}

/// A request that generates, or only asks for the model to be loaded.
trait Generating: Protocol {
    /// The word for it in errors.
    const VERB: &'static str;

    /// Gives the request the name that the server has for its model.
    fn resolve(&mut self, state: &AppState);

    /// Returns the answer, if the request asks only for the model to be loaded.
    ///
    /// # Errors
    /// If no model has the name.
    fn loading(&self, state: &AppState) -> Result<Option<Line>, ApiError>;
}

/// Handles a request that generates.
async fn run<P: Generating<Naming = HeaderMap>>(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    memory: RequestMemory,
    JsonBody(mut request): JsonBody<P>,
) -> Result<Response, ApiError> {
    request.resolve(&state);
    if !state.engine.model_info().heads.generates || state.only_hears() {
        let name = state.model_name(request.asked_model())?;
        return Err(error::lacks(&name, P::VERB));
    }
    if let Some(line) = request.loading(&state)? {
        return Ok(answer::loaded(&line));
    }
    let (ticket, parent) = (Ticket::plain(), TraceParent::of(&headers));
    generate::<P>(State(state), caller, headers, ticket, memory, parent, JsonBody(request)).await
}

/// Returns the server's name for the model that a client calls `asked`. Clients add the tag
/// `latest` to names without a tag.
fn known_name(state: &AppState, asked: &str) -> String {
    let is_served = |name: &str| {
        let served = state.engine.served_model_names();
        served.iter().any(|own| own == name) || state.engine.has_lora_adapter(name)
    };
    match asked.strip_suffix(":latest") {
        Some(name) if !is_served(asked) && is_served(name) => name.to_owned(),
        _ => asked.to_owned(),
    }
}
