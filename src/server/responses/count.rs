//! `POST /v1/responses/input_tokens`: the length of a prompt, without the model.

use axum::{Json, extract::State, http::HeaderMap};
use serde::Serialize;
use utoipa::ToSchema;

use super::protocol::ResponsesRequest;
use crate::server::{
    generate::handler::{Exchange, Protocol},
    http::{caller::Caller, draws::Draws, error::ApiError, extract::JsonBody},
    memory::RequestMemory,
    state::AppState,
    tokenize::count_prompt_tokens,
};

/// The length of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct InputTokens {
    object: &'static str,
    input_tokens: usize,
}

/// Counts the prompt that `POST /v1/responses` would give the model for the same fields, before any
/// token is cut off.
pub(in crate::server) async fn count_input_tokens(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    memory: RequestMemory,
    JsonBody(request): JsonBody<ResponsesRequest>,
) -> Result<Json<InputTokens>, ApiError> {
    let draws = Draws::default();
    let exchange = Exchange { state, caller, naming: headers, memory, draws, model: None };
    let mut input_tokens = 0;
    for request in request.plan(&exchange).await?.requests {
        input_tokens +=
            count_prompt_tokens(&exchange.state, &exchange.memory, exchange.caller.own(request))
                .await?;
    }
    Ok(Json(InputTokens { object: "response.input_tokens", input_tokens }))
}
