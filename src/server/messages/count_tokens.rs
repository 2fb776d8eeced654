//! `POST /v1/messages/count_tokens`: the length of a prompt, without the model.

use axum::{Json, extract::State};
use playhouse_actors::{logic::sampling_params::SamplingParams, message::input_processor::Prompt};
use serde::Serialize;

use super::{prompt::PromptFields, unsupported::UnsupportedFields};
use crate::server::{
    error::ApiError,
    extract::{JsonBody, JsonRequest, parse_object},
    state::AppState,
    tokenize::blocking,
};

pub(in crate::server) struct CountTokensRequest {
    prompt: PromptFields,
    unsupported: UnsupportedFields,
}

#[derive(Debug, Serialize)]
pub(in crate::server) struct TokensCount {
    input_tokens: usize,
    context_management: ContextManagement,
}

/// What the prompt would be without edits, of which there are none.
#[derive(Debug, Serialize)]
struct ContextManagement {
    original_input_tokens: usize,
}

impl JsonRequest for CountTokensRequest {
    fn from_json(text: &str) -> Result<Self, ApiError> {
        Ok(Self { prompt: parse_object(text)?, unsupported: parse_object(text)? })
    }
}

/// Counts what `POST /v1/messages` would give the model for the same fields.
pub(in crate::server) async fn count_tokens(
    State(state): State<AppState>,
    JsonBody(request): JsonBody<CountTokensRequest>,
) -> Result<Json<TokensCount>, ApiError> {
    request.prompt.model(&state)?;
    request.unsupported.refuse()?;
    let (request, _) = request.prompt.plan(&state, SamplingParams::default(), None)?;
    blocking(move || {
        let codec = state.engine.codec();
        let tokens = match request.prompt {
            Prompt::Chat(chat) => {
                codec.encode(&codec.render_chat(&chat)?, request.add_special_tokens)?
            }
            Prompt::Text(text) => codec.encode(&text, request.add_special_tokens)?,
            Prompt::Tokens(tokens) => tokens,
        };
        let input_tokens = tokens.len();
        let context_management = ContextManagement { original_input_tokens: input_tokens };
        Ok(Json(TokensCount { input_tokens, context_management }))
    })
    .await
}
