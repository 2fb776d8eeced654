//! The lease of a request on the memory for requests (`max_request_memory_bytes`). It lasts from
//! the first byte of its body to the last of its answer. Every part is leased before it is
//! allocated:
//!
//! | What | Bytes leased |
//! |---|---|
//! | a body as it arrives, and the memory that its text becomes | [`TEXT_FACTOR`] a byte (`http/body.rs`) |
//! | values of its JSON | by their number ([`json`]) |
//! | text that it refers to and does not contain | [`RENDERED_FACTOR`] a byte |
//! | media that it refers to | twice their size, as they arrive |
//! | media while they are decoded | the size of their pixels, by their headers |
//! | media in the encoder's form | their size, once it is known |
//! | each choice | [`CHOICE_BYTES`] and its sampling parameters |
//! | the result of a pooling | its size, in the engine, and its text as it arrives |
//! | outputs that wait for their reader | their size, beyond 16 KiB a choice |
//! | an answer in one piece | the size of its outputs as JSON |
//! | a stored response | its size as JSON |

mod held;
pub(super) mod json;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    body::Body,
    extract::{FromRequestParts, Request, State},
    http::request::Parts,
    middleware::Next,
    response::Response,
};

use self::held::Held;
use super::{http::error::ApiError, state::AppState};
use crate::api::{Lease, MemoryBudget, MemoryError, OutputDelta, RawRequest};

/// Bytes for each byte of a body. They are the body itself, its strings once parsed, those of the
/// prompt, the template's values, the rendered text, and token ids. Token ids take four bytes each,
/// for as many tokens as bytes. No text has as many. Tokenizing goes piece by piece and adds
/// little.
pub(super) const TEXT_FACTOR: usize = 9;
/// The same for text of stored items. The request shares it, so body and parsed strings are left
/// out.
const RENDERED_FACTOR: usize = 7;
/// A token of a prompt, in the ledger and in the answer's state.
const TOKEN_BYTES: usize = 2 * size_of::<u32>();
/// Memory of a choice beside its parameters and its output: its entries in ledger, scheduler, sink
/// and stream.
const CHOICE_BYTES: usize = 8 << 10;
/// Size of a choice's answer relative to its text: the text, its JSON, and the bytes sent.
const ANSWER_TEXT_FACTOR: usize = 4;
/// A log-probability in an answer: its token's text, that text's bytes, and both again as JSON.
const ANSWER_LOGPROB_BYTES: usize = 320;

/// The part of [`TEXT_FACTOR`] that a request needs until the engine has its tokens.
const PROMPT_FACTOR: usize = 6;

/// A request's lease. Clones share it. Work for a request after its answer keeps a clone.
#[derive(Clone)]
pub(super) struct RequestMemory(Arc<Inner>);

struct Inner {
    lease: Lease,
    /// Bytes that are needed only until its text has become tokens.
    prompt_bytes: AtomicUsize,
}

impl RequestMemory {
    /// Returns a lease of zero bytes.
    pub(super) fn new(budget: &Arc<MemoryBudget>) -> Self {
        let (lease, prompt_bytes) = (budget.lease(), AtomicUsize::new(0));
        Self(Arc::new(Inner { lease, prompt_bytes }))
    }

    /// Returns a lease for a part of the same request that runs beside others.
    pub(super) fn another(&self) -> Self {
        Self::new(self.lease().budget())
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.0.lease
    }

    /// Leases the memory that `bytes` of a body become.
    ///
    /// # Errors
    /// As [`Self::grow`].
    pub(super) async fn grow_for_text(&self, bytes: usize) -> Result<(), ApiError> {
        self.grow(bytes.saturating_mul(TEXT_FACTOR)).await?;
        self.0.prompt_bytes.fetch_add(bytes.saturating_mul(PROMPT_FACTOR), Ordering::Relaxed);
        Ok(())
    }

    /// Leases the memory that `bytes` of stored text become in a prompt.
    ///
    /// # Errors
    /// As [`Self::grow`].
    pub(super) async fn grow_for_stored_text(&self, bytes: usize) -> Result<(), ApiError> {
        let bytes = bytes.saturating_mul(RENDERED_FACTOR);
        self.grow(bytes).await?;
        self.0.prompt_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Leases the memory in which images and sounds are decoded.
    ///
    /// # Errors
    /// As [`Self::grow`].
    pub(super) async fn grow_for_media(&self, bytes: usize) -> Result<(), ApiError> {
        self.grow(bytes).await?;
        self.0.prompt_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Shrinks the lease: `bytes` of the body's text were the base64 of images and sounds. They
    /// reach no template and become no tokens. Their content stays, which is smaller than its text.
    pub(super) fn media_text_read(&self, bytes: usize) {
        let freed = bytes.saturating_mul(PROMPT_FACTOR - 1);
        let shrunk =
            self.0
                .prompt_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| now.checked_sub(freed));
        // A request that was not leased as text, for example a form, has nothing to free.
        if shrunk.is_ok() {
            self.lease().shrink(freed);
        }
    }

    /// Shrinks the lease: the engine has the prompts as tokens, and their texts are freed. It also
    /// has `media_bytes` of processed media.
    pub(super) fn submitted(&self, num_prompt_tokens: usize, media_bytes: usize) {
        let kept = num_prompt_tokens.saturating_mul(TOKEN_BYTES).saturating_add(media_bytes);
        let prompt_bytes = self.0.prompt_bytes.swap(0, Ordering::Relaxed);
        match prompt_bytes.checked_sub(kept) {
            Some(freed) => self.lease().shrink(freed),
            // A small image may become a large tensor. The engine has it already.
            None if media_bytes > 0 => {
                let lease = self.lease();
                lease.set(lease.bytes().saturating_add(kept - prompt_bytes), None);
            }
            None => {}
        }
    }

    /// Leases `bytes` more.
    ///
    /// # Errors
    /// 413 if that is more than a request may hold. 503 if it does not become free in time.
    pub(super) async fn grow(&self, bytes: usize) -> Result<(), ApiError> {
        Ok(self.lease().grow(bytes).await?)
    }

    /// Leases the memory that `delta` adds to an answer in one piece.
    ///
    /// # Errors
    /// 503 if the memory is used up and this request holds more than its share.
    pub(super) fn add_answer(&self, delta: &OutputDelta) -> Result<(), ApiError> {
        let sampled = delta.tokens.iter().filter_map(|token| token.logprobs.as_deref());
        let rows = sampled.chain(delta.prompt_logprobs.iter().map(Vec::as_slice));
        let logprobs: usize = rows.map(<[_]>::len).sum();
        let text = delta.bytes().saturating_mul(ANSWER_TEXT_FACTOR);
        Ok(self.lease().add(text.saturating_add(logprobs.saturating_mul(ANSWER_LOGPROB_BYTES)))?)
    }
}

/// Returns the bytes for the choices of `request`. Each has a copy of its parameters.
pub(super) fn choices_bytes(request: &RawRequest) -> usize {
    let params = request.params.heap_bytes();
    let words: usize = request.bad_words.iter().map(String::len).sum();
    // A word becomes two lists of tokens.
    let each = CHOICE_BYTES + params + 8 * words;
    each.saturating_mul(request.params.n as usize)
}

impl FromRequestParts<AppState> for RequestMemory {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        Ok(Self::of(&parts.extensions, state))
    }
}

impl RequestMemory {
    /// Returns the memory of the request with these extensions.
    pub(super) fn of(extensions: &axum::http::Extensions, state: &AppState) -> Self {
        let known = extensions.get::<Self>().cloned();
        known.unwrap_or_else(|| Self::new(state.engine.memory()))
    }
}

impl From<MemoryError> for ApiError {
    fn from(error: MemoryError) -> Self {
        let message = error.to_string();
        match error {
            MemoryError::TooLarge { .. } => Self::payload_too_large(message),
            MemoryError::Short { retry_after, .. } => Self::unavailable(message, retry_after),
        }
    }
}

/// Middleware: gives a request a lease until its answer was sent or dropped.
pub(super) async fn lease(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let memory = RequestMemory::new(state.engine.memory());
    request.extensions_mut().insert(memory.clone());
    next.run(request).await.map(|body| Body::new(Held::new(body, memory)))
}
