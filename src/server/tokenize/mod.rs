//! `POST /tokenize` and `/detokenize`: the model's tokenizer, without the model.

mod encode;
pub(in crate::server) mod tokenizer_info;

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub(in crate::server) use self::encode::count_prompt_tokens;
use self::encode::{check_bytes, encode};
use super::{
    chat::ConversationFields,
    http::{
        caller::Caller,
        error::ApiError,
        extract::JsonBody,
        fields::{Token, flag},
        parts::FromParts,
    },
    memory::RequestMemory,
    state::AppState,
};
use crate::api::{Prompt, RawRequest, TextCodec, WantedTokens};
use crate::config::LimitSettings;

/// Bytes of the longest token, for a codec that does not know it.
const TOKEN_BYTES: usize = 128;

/// Text, or a conversation for the chat template.
pub(in crate::server) struct TokenizeRequest {
    fields: TokenizeFields,
    conversation: ConversationFields,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct TokenizeFields {
    model: Option<String>,
    prompt: Option<String>,
    #[serde(deserialize_with = "flag")]
    add_special_tokens: Option<bool>,
    #[serde(deserialize_with = "flag")]
    return_token_strs: Option<bool>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Tokenized {
    count: usize,
    max_model_len: usize,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

#[derive(Debug, Deserialize, ToSchema)]
pub(in crate::server) struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<Token>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Detokenized {
    prompt: String,
}

impl FromParts for TokenizeRequest {
    type Parts = (TokenizeFields, ConversationFields);

    fn from_parts((fields, conversation): Self::Parts) -> Result<Self, ApiError> {
        if fields.prompt.is_none() && !conversation.is_given() {
            return Err(ApiError::validation("body.prompt", "Field required, or `messages`"));
        }
        // As in vLLM, which refuses such a list in chat alone.
        Ok(Self { fields, conversation: conversation.with_optional_tools() })
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

/// Most ids that become text, unless the model accepts more: a million.
const TOKENS_MAX: usize = 1 << 20;

/// `POST /tokenize`
pub(in crate::server) async fn tokenize(
    State(state): State<AppState>,
    caller: Caller,
    memory: RequestMemory,
    JsonBody(request): JsonBody<TokenizeRequest>,
) -> Result<Json<Tokenized>, ApiError> {
    let TokenizeRequest { fields, conversation } = request;
    // Ids as JSON, and the text of each if it is wanted.
    let each = if fields.return_token_strs.unwrap_or(false) { 64 } else { 8 };
    let text = match &fields.prompt {
        Some(prompt) => check_bytes("prompt", prompt.len())?,
        None => check_bytes("messages", conversation.text_bytes())?,
    };
    memory.grow(text.saturating_mul(each)).await?;
    let model = state.model_name(fields.model.as_deref())?;
    let max_model_len = state.engine.model_info().max_model_len;
    let request = match fields.prompt {
        Some(text) => RawRequest {
            add_special_tokens: fields.add_special_tokens.unwrap_or(true),
            ..RawRequest::new(Prompt::Text(text))
        },
        None => {
            let (chat, _, media) = conversation.prompt(&state, &model)?;
            RawRequest {
                media: media.load(&state.media, &memory).await?,
                add_special_tokens: conversation.adds_special_tokens(),
                ..RawRequest::new(Prompt::Chat(Arc::new(chat)))
            }
        }
    };
    let (request, wanted) = (caller.own(request), WantedTokens::UpTo(usize::MAX));
    let encoded = encode(&state, &memory, request, wanted).await?;
    let (tokens, count) = (encoded.tokens, encoded.num_tokens);
    let (tokens, token_strs) = match fields.return_token_strs.unwrap_or(false) {
        false => (tokens, None),
        true => {
            let spell = move |codec: &dyn TextCodec| {
                let spelling = |&token: &u32| codec.token_piece(token).unwrap_or_default();
                let token_strs = tokens.iter().map(spelling).collect();
                (tokens, Some(token_strs))
            };
            state.engine.text_jobs().work(count, spell).await?
        }
    };
    Ok(Json(Tokenized { count, max_model_len, tokens, token_strs }))
}

/// `POST /detokenize`
pub(in crate::server) async fn detokenize(
    State(state): State<AppState>,
    memory: RequestMemory,
    JsonBody(request): JsonBody<DetokenizeRequest>,
) -> Result<Json<Detokenized>, ApiError> {
    state.model_name(request.model.as_deref())?;
    let model = state.engine.model_info();
    let vocab_size = model.vocab_size;
    check_tokens(request.tokens.len(), model.max_model_len)?;
    let tokens: Vec<u32> = request.tokens.into_iter().map(|Token(id)| id).collect();
    if let Some(token) = tokens.iter().find(|&&token| token >= vocab_size) {
        let message = format!("tokens must be below the vocabulary's {vocab_size}, got {token}");
        return Err(ApiError::invalid("tokens", message));
    }
    // The pieces, the text, and both while they are joined and sent.
    let most = state.engine.codec().max_token_bytes().unwrap_or(TOKEN_BYTES);
    let each = size_of::<String>() + most.saturating_mul(4);
    memory.grow(tokens.len().saturating_mul(each)).await?;
    let num_bytes = size_of_val(tokens.as_slice());
    let decode = move |codec: &dyn TextCodec| codec.decode(&tokens, false);
    let prompt = state.engine.text_jobs().work(num_bytes, decode).await??;
    Ok(Json(Detokenized { prompt }))
}

fn check_tokens(count: usize, max_model_len: usize) -> Result<(), ApiError> {
    let most = TOKENS_MAX.max(max_model_len);
    if count <= most {
        return Ok(());
    }
    let message = format!(
        "tokens has {count} ids; at most {most} are made text of at a time. Send them in parts"
    );
    Err(ApiError::invalid("tokens", message))
}
