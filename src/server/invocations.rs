//! `POST /invocations`: one route for all, as hosts like SageMaker want it. The body's shape
//! selects the route.

use axum::{extract::State, http::HeaderMap, response::Response};
use serde::{Deserialize, de::IgnoredAny};

use super::{
    chat::ChatRequest,
    completions::CompletionRequest,
    exchange::Exchange,
    generate::handler::generate,
    http::{
        caller::Caller,
        error::ApiError,
        extract::{JsonBody, JsonRequest, parse_object},
    },
    memory::RequestMemory,
    pooling::{PoolingInvocation, respond_to_invocation},
    resume::Ticket,
    state::AppState,
    traces::TraceParent,
};
use crate::config::LimitSettings;

/// A request of one of the routes.
pub(super) enum Invocation {
    Chat(Box<ChatRequest>),
    Completion(Box<CompletionRequest>),
    Pooling(PoolingInvocation),
}

/// The fields that distinguish the routes.
#[derive(Deserialize)]
struct Shape {
    messages: Option<IgnoredAny>,
    prompt: Option<IgnoredAny>,
}

impl JsonRequest for Invocation {
    fn from_json(text: &str) -> Result<Self, ApiError> {
        match parse_object(text)? {
            Shape { messages: Some(_), .. } => {
                ChatRequest::from_json(text).map(|request| Self::Chat(Box::new(request)))
            }
            Shape { prompt: Some(_), .. } => {
                let request = CompletionRequest::from_json(text);
                request.map(|request| Self::Completion(Box::new(request)))
            }
            Shape { .. } => PoolingInvocation::read(text)?.map(Self::Pooling).ok_or_else(|| {
                let message = "Cannot find suitable handler for request: give `messages` for \
                               /v1/chat/completions, or `prompt` for /v1/completions";
                ApiError::bad_request(message)
            }),
        }
    }

    fn fields(&self) -> Vec<&'static str> {
        match self {
            Self::Chat(request) => request.fields(),
            Self::Completion(request) => request.fields(),
            Self::Pooling(request) => request.fields(),
        }
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        match self {
            Self::Chat(request) => JsonRequest::check_limits(&**request, limits),
            Self::Completion(request) => JsonRequest::check_limits(&**request, limits),
            Self::Pooling(request) => JsonRequest::check_limits(request, limits),
        }
    }
}

pub(super) async fn invoke(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    ticket: Ticket,
    memory: RequestMemory,
    JsonBody(request): JsonBody<Invocation>,
) -> Result<Response, ApiError> {
    let parent = TraceParent::of(&headers);
    match request {
        Invocation::Chat(request) => {
            generate(State(state), caller, headers, ticket, memory, parent, JsonBody(*request))
                .await
        }
        Invocation::Completion(request) => {
            generate(State(state), caller, headers, ticket, memory, parent, JsonBody(*request))
                .await
        }
        Invocation::Pooling(_) if state.engine.pooling_task().is_none() => {
            let message = "Cannot find suitable handler for request: the model does not pool";
            Err(ApiError::bad_request(message))
        }
        Invocation::Pooling(request) => {
            respond_to_invocation(Exchange { state, caller, headers, memory }, request).await
        }
    }
}
