//! `POST /tokenize` and `/detokenize`: the model's tokenizer, without the model.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    chat::ConversationFields, error::ApiError, extract::JsonBody, fields::Token,
    memory::RequestMemory, parts::FromParts, state::AppState,
};
use crate::api::{
    EncodedText, Prompt, RawRequest, TextCodec, TextError, TextJobError, WantedTokens,
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

impl From<TextJobError> for ApiError {
    fn from(error: TextJobError) -> Self {
        match error {
            TextJobError::Text(error) => error.into(),
            TextJobError::ClientLeft | TextJobError::Failed(_) => Self::internal(error.to_string()),
        }
    }
}

/// Bytes of text at most that are tokenized for a client that wants no output: those of a million
/// tokens.
pub(super) const TEXT_BYTES_MAX: usize = 4 << 20;
/// Ids at most that are made text of, unless the model takes more: a million.
const TOKENS_MAX: usize = 1 << 20;

/// `POST /tokenize`
pub(super) async fn tokenize(
    State(state): State<AppState>,
    memory: RequestMemory,
    JsonBody(request): JsonBody<TokenizeRequest>,
) -> Result<Json<Tokenized>, ApiError> {
    let TokenizeRequest { fields, conversation } = request;
    // Ids as JSON, and each as a text of its own where those are wanted.
    let each = if fields.return_token_strs.unwrap_or(false) { 64 } else { 8 };
    let text = match &fields.prompt {
        Some(prompt) => check_bytes("prompt", prompt.len())?,
        None => check_bytes("messages", conversation.text_bytes())?,
    };
    memory.grow(text.saturating_mul(each)).await?;
    let model = state.model_name(fields.model.as_deref())?;
    let max_model_len = state.engine.model_info().max_model_len;
    let (prompt, adds_special_tokens) = match fields.prompt {
        Some(text) => (Prompt::Text(text), fields.add_special_tokens.unwrap_or(true)),
        None => {
            let (chat, _) = conversation.prompt(&state, &model)?;
            (Prompt::Chat(Arc::new(chat)), conversation.adds_special_tokens())
        }
    };
    let encoded =
        encode(&state, prompt, adds_special_tokens, WantedTokens::UpTo(usize::MAX)).await?;
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
pub(super) async fn detokenize(
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
    // The pieces, the text, and both as they are joined and sent.
    let most = state.engine.codec().max_token_bytes().unwrap_or(TOKEN_BYTES);
    let each = size_of::<String>() + most.saturating_mul(4);
    memory.grow(tokens.len().saturating_mul(each)).await?;
    let num_bytes = size_of_val(tokens.as_slice());
    let decode = move |codec: &dyn TextCodec| codec.decode(&tokens, false);
    let prompt = state.engine.text_jobs().work(num_bytes, decode).await??;
    Ok(Json(Detokenized { prompt }))
}

/// How many tokens the prompt of a request has, before any are cut off.
pub(super) async fn count_prompt_tokens(
    state: &AppState,
    request: RawRequest,
) -> Result<usize, ApiError> {
    let RawRequest { prompt, add_special_tokens, .. } = request;
    Ok(encode(state, prompt, add_special_tokens, WantedTokens::Count).await?.num_tokens)
}

/// The tokens of a prompt, in turns with the prompts of other requests.
async fn encode(
    state: &AppState,
    prompt: Prompt,
    add_special_tokens: bool,
    wanted: WantedTokens,
) -> Result<EncodedText, ApiError> {
    let jobs = state.engine.text_jobs();
    let text = match prompt {
        Prompt::Text(text) => check_text("prompt", text)?,
        Prompt::Chat(chat) => {
            let _ = check_bytes("messages", chat.text_bytes())?;
            check_text("messages", jobs.render(&chat).await?)?
        }
        Prompt::Tokens(tokens) => {
            let num_tokens = tokens.len();
            return Ok(EncodedText { tokens, num_tokens, is_whole: true });
        }
    };
    // A client that leaves drops this future.
    Ok(jobs.encode(text, add_special_tokens, wanted, &|| false).await?)
}

fn check_text(field: &str, text: String) -> Result<String, ApiError> {
    check_bytes(field, text.len()).map(|_| text)
}

/// Returns `bytes`, if a text may have as many.
fn check_bytes(field: &str, bytes: usize) -> Result<usize, ApiError> {
    if bytes <= TEXT_BYTES_MAX {
        return Ok(bytes);
    }
    let message = format!(
        "{field} has {bytes} bytes of text; at most {TEXT_BYTES_MAX} are tokenized without a \
         completion. Shorten it, or send it in parts"
    );
    Err(ApiError::invalid(field, message))
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
