//! Errors, split by who must act: the client ([`RequestError`]) or the supervisor
//! ([`ActorError`]).

use std::time::Duration;

/// What a client did wrong, or must be told: the request is refused or ends, nothing else does.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// A parameter is out of range or of the wrong kind.
    #[error("{field} must be {accepted}, got {value}")]
    InvalidParameter {
        /// The request's field.
        field: String,
        /// What was given.
        value: String,
        /// What would be accepted.
        accepted: String,
    },
    /// Prompt and output do not fit the model's context.
    #[error(
        "This model's maximum context length is {max_model_len} tokens. However, you requested \
         {max_tokens} output tokens and your prompt contains {prompt_tokens} input tokens. \
         Shorten the prompt or ask for fewer tokens."
    )]
    ContextLength {
        /// Tokens that the model can attend to.
        max_model_len: usize,
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens asked for.
        max_tokens: usize,
    },
    /// A prompt's text that no tokenizing could make fit the model's context.
    #[error(
        "the prompt has {text_bytes} bytes of text, and the model's context of {max_model_len} \
         tokens holds {max_text_bytes} at the very most. Shorten the prompt, or set \
         `truncate_prompt_tokens`."
    )]
    TextTooLong {
        /// Tokens that the model can attend to.
        max_model_len: usize,
        /// Length of the text, bytes.
        text_bytes: usize,
        /// What so many of the longest token would be, bytes.
        max_text_bytes: usize,
    },
    /// A prompt with more tokens than the model's context has, which were not all counted.
    #[error(
        "This model's maximum context length is {max_model_len} tokens. However, your prompt \
         contains at least {min_prompt_tokens} input tokens. Shorten the prompt, or set \
         `truncate_prompt_tokens`."
    )]
    PromptTooLong {
        /// Tokens that the model can attend to.
        max_model_len: usize,
        /// Tokens found before the rest of the prompt was left.
        min_prompt_tokens: usize,
    },
    /// The prompt was not templated and tokenized in time. Trying again at once would not help.
    #[error(
        "the prompt was not templated and tokenized within {} s; shorten it, or try again later",
        limit.as_secs_f64()
    )]
    InputTimeout {
        /// How long it may take.
        limit: Duration,
    },
    /// The prompt could never be held in the KV cache, whatever else were to leave it.
    #[error(
        "the prompt needs {needed_blocks} KV cache blocks of {block_size} tokens, the whole cache \
         has {total_blocks}; shorten the prompt or give the cache more memory"
    )]
    Unservable {
        /// Blocks that prompt and first output token take.
        needed_blocks: usize,
        /// Blocks there are.
        total_blocks: usize,
        /// Tokens a block holds.
        block_size: usize,
    },
    /// The text side refused: tokenizer, chat template.
    #[error("{0}")]
    Text(String),
    /// Too many requests are queued. Try again later.
    #[error("the engine's queue is full: {what} is at its limit of {limit}")]
    QueueFull {
        /// Which limit was reached.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// When trying again makes sense.
        retry_after: Duration,
    },
    /// The caller used up what it may use. Others are served.
    #[error("your quota is used up: {what} is at its limit of {limit}")]
    QuotaExceeded {
        /// Which limit was reached.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// When trying again makes sense.
        retry_after: Duration,
    },
    /// A request like this one was convicted of making the model fail.
    #[error(
        "this request made the model fail repeatedly and is refused for {} s",
        retry_after.as_secs_f64().ceil()
    )]
    Quarantined {
        /// When it will not be refused any more.
        retry_after: Duration,
    },
    /// Too many parts of the engine failed in a row. It is being tried whether it works again.
    #[error("the engine is recovering from repeated failures")]
    Recovering {
        /// When trying again makes sense.
        retry_after: Duration,
    },
    /// The engine is draining or has stopped.
    #[error("the engine is shutting down and takes no new requests")]
    Draining,
    /// A part of the engine did not answer in time, and retrying did not help.
    #[error("the engine is not available: {0}")]
    Unavailable(String),
    /// The model gave numbers that are no numbers, twice.
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
    /// An [`RequestError::InvalidParameter`].
    pub fn invalid(
        field: impl Into<String>,
        value: impl std::fmt::Display,
        accepted: impl Into<String>,
    ) -> Self {
        let (field, value, accepted) = (field.into(), value.to_string(), accepted.into());
        Self::InvalidParameter { field, value, accepted }
    }
}

/// What ends an actor: its supervisor decides what to restart.
#[derive(Debug, thiserror::Error)]
pub enum ActorError {
    /// A call to another actor was not answered in time.
    #[error("{callee} did not answer {call} within {limit:?}")]
    CallTimeout {
        /// The role that was asked.
        callee: &'static str,
        /// What it was asked.
        call: &'static str,
        /// How long it had.
        limit: Duration,
    },
    /// The actor called is not there.
    #[error("{callee} is gone")]
    Gone {
        /// The role that was asked.
        callee: &'static str,
    },
    /// The device thread panicked or could not be started.
    #[error("the device thread died: {0}")]
    DeviceThread(String),
    /// The device said why it cannot go on.
    #[error("the device failed: {0}")]
    Device(String),
    /// A message broke an invariant that its sender holds.
    #[error("invariant broken: {0}")]
    Invariant(String),
}
