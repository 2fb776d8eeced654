//! Errors, split by who must act: the client ([`RequestError`]) or the supervisor
//! ([`ActorError`]).

use std::time::Duration;

use crate::ports::MediaError;

/// An error for a client. The request is refused or ends, and nothing else fails.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// A parameter is out of range or of the wrong kind.
    #[error("{field} must be {accepted}, got {value}")]
    InvalidParameter {
        /// The request's field.
        field: String,
        /// The value that was given.
        value: String,
        /// The accepted values.
        accepted: String,
    },
    /// Prompt and output do not fit the model's context.
    #[error(
        "This model's maximum context length is {max_model_len} tokens. However, you requested \
         {max_tokens} output tokens and your prompt contains {prompt_tokens} input tokens. \
         Shorten the prompt or ask for fewer tokens."
    )]
    ContextLength {
        /// Maximum number of tokens in the model's context.
        max_model_len: usize,
        /// Number of tokens of the prompt.
        prompt_tokens: usize,
        /// Number of output tokens asked for.
        max_tokens: usize,
    },
    /// A text that cannot fit the model's context, however it is tokenized.
    #[error(
        "the prompt has {text_bytes} bytes of text, and the model's context of {max_model_len} \
         tokens holds {max_text_bytes} at the very most. Shorten the prompt, or set \
         `truncate_prompt_tokens`."
    )]
    TextTooLong {
        /// Maximum number of tokens in the model's context.
        max_model_len: usize,
        /// Length of the text, in bytes.
        text_bytes: usize,
        /// Length of a context full of the longest token, in bytes.
        max_text_bytes: usize,
    },
    /// A prompt with more tokens than the model's context. Not all tokens were counted.
    #[error(
        "This model's maximum context length is {max_model_len} tokens. However, your prompt \
         contains at least {min_prompt_tokens} input tokens. Shorten the prompt, or set \
         `truncate_prompt_tokens`."
    )]
    PromptTooLong {
        /// Maximum number of tokens in the model's context.
        max_model_len: usize,
        /// Number of tokens found before counting stopped.
        min_prompt_tokens: usize,
    },
    /// A text with more tokens than the encoder of an encoder-decoder model takes. Not all tokens
    /// were counted.
    #[error(
        "The encoder of this model takes texts of at most {max_tokens} tokens. However, your \
         prompt contains at least {min_text_tokens} tokens. Shorten the prompt, or set \
         `truncate_prompt_tokens`."
    )]
    EncoderTextTooLong {
        /// Most tokens that the encoder takes.
        max_tokens: usize,
        /// Number of tokens found before counting stopped.
        min_text_tokens: usize,
    },
    /// The prompt was not templated and tokenized in time. An immediate retry would not help.
    #[error(
        "the prompt was not templated and tokenized within {} s; shorten it, or try again later",
        limit.as_secs_f64()
    )]
    InputTimeout {
        /// Time limit.
        limit: Duration,
    },
    /// The prompt cannot fit into the KV cache, even if the cache is empty.
    #[error(
        "the prompt needs {needed_blocks} KV cache blocks of {block_size} tokens, the whole cache \
         has {total_blocks}; shorten the prompt or give the cache more memory"
    )]
    Unservable {
        /// Number of blocks for the prompt and the first output token.
        needed_blocks: usize,
        /// Number of blocks in the cache.
        total_blocks: usize,
        /// Number of tokens in a block.
        block_size: usize,
    },
    /// The result of one prompt would take more memory than one request may hold.
    #[error(
        "the result of the prompt takes {result_bytes} bytes of memory, and one request may hold \
         {limit_bytes}: a share of max_request_memory_bytes. Shorten the prompt."
    )]
    ResultTooLarge {
        /// Size of the result.
        result_bytes: usize,
        /// Bytes that one request may hold.
        limit_bytes: usize,
    },
    /// The request or its result does not fit a message between front and engine process.
    #[error(
        "the {what} takes {bytes} bytes, and a message between the server and its engine process \
         holds {limit_bytes}. Shorten the prompt, its schema or its grammar."
    )]
    MessageTooLarge {
        /// The value that is too large: `request` or `result`.
        what: &'static str,
        /// Size of the value.
        bytes: usize,
        /// Bytes that a message holds.
        limit_bytes: usize,
    },
    /// Other requests hold the memory that the result would take.
    #[error("the memory for requests is in use (max_request_memory_bytes)")]
    MemoryShort {
        /// Time to wait before a retry.
        retry_after: Duration,
    },
    /// The model has no head for the work of the request.
    #[error("the model does not support `{task}`; it supports {}", supported.join(", "))]
    Unsupported {
        /// The work that was asked for: `generate`, or a pooling task.
        task: &'static str,
        /// The work that the model can do.
        supported: Vec<&'static str>,
    },
    /// The tokenizer or the chat template rejected the request.
    #[error("{0}")]
    Text(String),
    /// An image or a sound can never be in the encoder cache, even if the cache is empty.
    #[error(
        "the images or sounds of the prompt need {num_embeds} embeddings at once, and the encoder \
         cache has room for {cache_size}; send smaller ones, or give the cache more room"
    )]
    Unencodable {
        /// Number of embeddings.
        num_embeds: usize,
        /// Room in the cache.
        cache_size: usize,
    },
    /// An image or a sound of the prompt cannot be served.
    #[error(transparent)]
    Media(#[from] MediaError),
    /// Too many requests are queued. The client may retry later.
    #[error("the engine's queue is full: {what} is at its limit of {limit}")]
    QueueFull {
        /// The limit that was reached.
        what: &'static str,
        /// Value of the limit.
        limit: u64,
        /// Time to wait before a retry.
        retry_after: Duration,
    },
    /// The client used up its quota. Others are served.
    #[error("your quota is used up: {what} is at its limit of {limit}")]
    QuotaExceeded {
        /// The limit that was reached.
        what: &'static str,
        /// Value of the limit.
        limit: u64,
        /// Time to wait before a retry.
        retry_after: Duration,
    },
    /// A request like this one was convicted of making the model fail.
    #[error(
        "this request made the model fail repeatedly and is refused for {} s",
        retry_after.as_secs_f64().ceil()
    )]
    Quarantined {
        /// Time to wait before a retry.
        retry_after: Duration,
    },
    /// Too many parts of the engine failed in a row. A canary checks whether it works again.
    #[error("the engine is recovering from repeated failures")]
    Recovering {
        /// Time to wait before a retry.
        retry_after: Duration,
    },
    /// The engine is draining or has stopped.
    #[error("the engine is shutting down and takes no new requests")]
    Draining,
    /// The journal cannot be written, and the operator wants no request without it.
    #[error("the journal cannot be written, and no request is accepted without it: {0}")]
    Journal(String),
    /// A part of the engine did not answer in time, and retrying did not help.
    #[error("the engine is not available: {0}")]
    Unavailable(String),
    /// The model's logits were not finite, twice.
    #[error("the model's output was not a number, also when computed again")]
    NumericalGarbage,
    /// The client did not read its stream for too long.
    #[error("the stream was not read for too long, and the request was ended")]
    ReaderStalled,
    /// The request's deadline passed.
    #[error("the request's deadline passed")]
    DeadlineExceeded,
}

impl RequestError {
    /// Returns an [`RequestError::InvalidParameter`].
    pub fn invalid(
        field: impl Into<String>,
        value: impl std::fmt::Display,
        accepted: impl Into<String>,
    ) -> Self {
        let (field, value, accepted) = (field.into(), value.to_string(), accepted.into());
        Self::InvalidParameter { field, value, accepted }
    }
}

/// An error that ends an actor. Its supervisor decides what to restart.
#[derive(Debug, thiserror::Error)]
pub enum ActorError {
    /// A call to another actor was not answered in time.
    #[error("{callee} did not answer {call} within {limit:?}")]
    CallTimeout {
        /// Role of the called actor.
        callee: &'static str,
        /// Name of the call.
        call: &'static str,
        /// Time limit.
        limit: Duration,
    },
    /// The called actor does not run.
    #[error("{callee} is gone")]
    Gone {
        /// Role of the called actor.
        callee: &'static str,
    },
    /// The device thread panicked or could not be started.
    #[error("the device thread died: {0}")]
    DeviceThread(String),
    /// The device failed for this reason.
    #[error("the device failed: {0}")]
    Device(String),
    /// A message broke an invariant that its sender should keep.
    #[error("invariant broken: {0}")]
    Invariant(String),
}
