//! Tokens of prompts that the model does not see, and the longest text for them.

use crate::api::{
    EncodedText, Prompt, RawRequest, TextCodec, TextError, TextJobError, WantedTokens,
    expanded_prompt,
};
use crate::server::{
    http::error::ApiError, media::working_bytes, memory::RequestMemory, state::AppState,
};

/// Most bytes of text that are tokenized for a client that asks for no output: those of a million
/// tokens.
const TEXT_BYTES_MAX: usize = 4 << 20;

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

/// Returns how many tokens the prompt of a request has, before any are cut off.
pub(in crate::server) async fn count_prompt_tokens(
    state: &AppState,
    memory: &RequestMemory,
    request: RawRequest,
) -> Result<usize, ApiError> {
    // Only tokens can be expanded.
    let wanted = match request.media.is_empty() {
        true => WantedTokens::Count,
        false => WantedTokens::UpTo(usize::MAX),
    };
    Ok(encode(state, memory, request, wanted).await?.num_tokens)
}

/// Returns the tokens of a prompt. Its tokenizing takes turns with that of other requests.
pub(super) async fn encode(
    state: &AppState,
    memory: &RequestMemory,
    request: RawRequest,
    wanted: WantedTokens,
) -> Result<EncodedText, ApiError> {
    let RawRequest { prompt, media, add_special_tokens, .. } = request;
    let encoded = encode_text(state, prompt, add_special_tokens, wanted).await?;
    if media.is_empty() {
        return Ok(encoded);
    }
    memory.grow(working_bytes(state, &media)).await?;
    let most = state.engine.model_info().max_model_len;
    let expand =
        move |codec: &dyn TextCodec| expanded_prompt(codec.media(), encoded.tokens, &media, most);
    let expanded = state.engine.text_jobs().work(usize::MAX, expand).await??;
    let num_tokens = expanded.tokens.len();
    Ok(EncodedText { tokens: expanded.tokens, num_tokens, is_whole: true })
}

/// Returns the tokens of a prompt, with one placeholder for each item.
async fn encode_text(
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
        Prompt::Pair(first, second) => {
            let bytes = check_bytes("prompt", first.len() + second.len())?;
            let pair = jobs.work(bytes, move |codec| {
                codec.encode_pair(&first, &second, add_special_tokens, None)
            });
            let tokens = pair.await??.tokens;
            let num_tokens = tokens.len();
            return Ok(EncodedText { tokens, num_tokens, is_whole: true });
        }
        Prompt::Chunks(texts) => check_text("prompt", texts.concat())?,
        Prompt::Tokens(tokens) => {
            let num_tokens = tokens.len();
            return Ok(EncodedText { tokens, num_tokens, is_whole: true });
        }
        Prompt::Expanded(prompt) => {
            let tokens = prompt.tokens.clone();
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
pub(super) fn check_bytes(field: &str, bytes: usize) -> Result<usize, ApiError> {
    if bytes <= TEXT_BYTES_MAX {
        return Ok(bytes);
    }
    let message = format!(
        "{field} has {bytes} bytes of text; at most {TEXT_BYTES_MAX} are tokenized without a \
         completion. Shorten it, or send it in parts"
    );
    Err(ApiError::invalid(field, message))
}
