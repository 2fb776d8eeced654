//! `POST /v1/messages/count_tokens`: the length of a prompt, without the model.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    prompt::PromptFields,
    unsupported::{Hints, UnsupportedFields},
};
use crate::api::SamplingParams;
use crate::{
    config::LimitSettings,
    server::{
        http::{caller::Caller, error::ApiError, extract::JsonBody, parts::FromParts},
        memory::RequestMemory,
        state::AppState,
        tokenize::count_prompt_tokens,
    },
};

pub(in crate::server) struct CountTokensRequest {
    prompt: PromptFields,
    unsupported: UnsupportedFields,
}

#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct TokensCount {
    input_tokens: usize,
    context_management: ContextManagement,
}

/// The length of the prompt without edits. It is the same, because there are no edits.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CountedContextManagement)]
struct ContextManagement {
    original_input_tokens: usize,
}

impl FromParts for CountTokensRequest {
    type Parts = (PromptFields, UnsupportedFields, Hints);

    fn from_parts((prompt, unsupported, _): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self { prompt, unsupported })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.prompt.check_limits(limits)
    }
}

/// Counts the prompt that `POST /v1/messages` would give the model for the same fields.
pub(in crate::server) async fn count_tokens(
    State(state): State<AppState>,
    caller: Caller,
    memory: RequestMemory,
    JsonBody(request): JsonBody<CountTokensRequest>,
) -> Result<Json<TokensCount>, ApiError> {
    request.prompt.model(&state)?;
    request.unsupported.refuse()?;
    let params = SamplingParams::default();
    let (request, _) = request.prompt.plan(&state, &memory, params, None).await?;
    let input_tokens = count_prompt_tokens(&state, &memory, caller.own(request)).await?;
    let context_management = ContextManagement { original_input_tokens: input_tokens };
    Ok(Json(TokensCount { input_tokens, context_management }))
}
