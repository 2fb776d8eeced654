//! `POST /tokenize` and `/detokenize`: the model's tokenizer, without the model.

use axum::{Json, extract::State};
use playhouse_actors::{
    message::input_processor::{Prompt, RawRequest},
    ports::TextError,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    chat::ConversationFields, error::ApiError, extract::JsonBody, fields::Token,
    memory::RequestMemory, parts::FromParts, state::AppState,
};
use crate::config::LimitSettings;

/// Bytes of the longest token of a codec that does not know.
const TOKEN_BYTES: usize = 128;

/// Text, or a conversation for the chat template.
pub(super) struct TokenizeRequest {
    fields: TokenizeFields,
    conversation: ConversationFields,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct TokenizeFields {
    model: Option<String>,
    prompt: Option<String>,
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Tokenized {
    count: usize,
    max_model_len: usize,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

#[derive(Debug, Deserialize, ToSchema)]
pub(super) struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<Token>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Detokenized {
    prompt: String,
}

impl FromParts for TokenizeRequest {
    type Parts = (TokenizeFields, ConversationFields);

    fn from_parts((fields, conversation): Self::Parts) -> Result<Self, ApiError> {
        if fields.prompt.is_none() && !conversation.is_given() {
            return Err(ApiError::validation("body.prompt", "Field required, or `messages`"));
        }
        Ok(Self { fields, conversation })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.conversation.check_limits(limits)
    }
}

impl FromParts for DetokenizeRequest {
    type Parts = (Self,);

    fn from_parts((request,): Self::Parts) -> Result<Self, ApiError> {
        Ok(request)
    }
}

impl From<TextError> for ApiError {
    fn from(error: TextError) -> Self {
        Self::bad_request(error.to_string())
    }
}

/// `POST /tokenize`
pub(super) async fn tokenize(
    State(state): State<AppState>,
    memory: RequestMemory,
    JsonBody(request): JsonBody<TokenizeRequest>,
) -> Result<Json<Tokenized>, ApiError> {
    let TokenizeRequest { fields, conversation } = request;
    // Ids as JSON, and each as a text of its own where those are wanted.
    let each = if fields.return_token_strs.unwrap_or(false) { 64 } else { 8 };
    let text = fields.prompt.as_ref().map_or_else(|| conversation.text_bytes(), String::len);
    memory.grow(text.saturating_mul(each)).await?;
    let model = state.model_name(fields.model.as_deref())?;
    let max_model_len = state.engine.model_info().max_model_len;
    blocking(move || {
        let codec = state.engine.codec();
        let tokens = match fields.prompt {
            Some(text) => codec.encode(&text, fields.add_special_tokens.unwrap_or(true))?,
            None => {
                let (chat, _) = conversation.prompt(&state, &model)?;
                let text = codec.render_chat(&chat)?;
                codec.encode(&text, conversation.adds_special_tokens())?
            }
        };
        let token_strs = fields.return_token_strs.unwrap_or(false).then(|| {
            tokens.iter().map(|&token| codec.token_piece(token).unwrap_or_default()).collect()
        });
        Ok(Json(Tokenized { count: tokens.len(), max_model_len, tokens, token_strs }))
    })
    .await
}

/// `POST /detokenize`
pub(super) async fn detokenize(
    State(state): State<AppState>,
    memory: RequestMemory,
    JsonBody(request): JsonBody<DetokenizeRequest>,
) -> Result<Json<Detokenized>, ApiError> {
    state.model_name(request.model.as_deref())?;
    let vocab_size = state.engine.model_info().vocab_size;
    let tokens: Vec<u32> = request.tokens.into_iter().map(|Token(id)| id).collect();
    if let Some(token) = tokens.iter().find(|&&token| token >= vocab_size) {
        let message = format!("tokens must be below the vocabulary's {vocab_size}, got {token}");
        return Err(ApiError::invalid("tokens", message));
    }
    // The pieces, the text, and both as they are joined and sent.
    let most = state.engine.codec().max_token_bytes().unwrap_or(TOKEN_BYTES);
    let each = size_of::<String>() + most.saturating_mul(4);
    memory.grow(tokens.len().saturating_mul(each)).await?;
    blocking(move || {
        let prompt = state.engine.codec().decode(&tokens, false)?;
        Ok(Json(Detokenized { prompt }))
    })
    .await
}

/// How many tokens the prompt of a request has, before any are cut off.
pub(super) async fn count_prompt_tokens(
    state: &AppState,
    request: RawRequest,
) -> Result<usize, ApiError> {
    let codec = state.engine.codec().clone();
    blocking(move || {
        let tokens = match request.prompt {
            Prompt::Chat(chat) => {
                codec.encode(&codec.render_chat(&chat)?, request.add_special_tokens)?
            }
            Prompt::Text(text) => codec.encode(&text, request.add_special_tokens)?,
            Prompt::Tokens(tokens) => tokens,
        };
        Ok(tokens.len())
    })
    .await
}

/// A long text takes the tokenizer seconds: too long for a thread that serves others.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::internal(error.to_string()))?
}
