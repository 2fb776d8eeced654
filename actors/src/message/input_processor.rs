//! To an input processor: what a client sent, to be made into token ids and checked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ractor::RpcReplyPort;

use super::edge::{Edge, Letter, pings};
use crate::{
    error::RequestError,
    logic::{
        admission::Tenant,
        ids::{RequestId, TokenId},
        input::TruncationSide,
        sampling_params::SamplingParams,
    },
    ports::ChatPrompt,
};

/// Received by an input processor.
#[derive(Debug)]
pub enum InputProcessorMessage {
    /// From the engine's door.
    Process(InputJob, RpcReplyPort<Result<ProcessedRequest, RequestError>>),
    /// From the watchdog.
    Ping,
}

impl Letter for InputProcessorMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Process(..) => Edge::DoorToInput,
            Self::Ping => Edge::Timer,
        }
    }

    pings!();
}

/// A request to be processed. The door keeps a copy.
#[derive(Debug, Clone)]
pub struct InputJob {
    /// The request.
    pub raw: Arc<RawRequest>,
    is_running: Arc<AtomicBool>,
}

/// A job is worked on while this lives.
#[derive(Debug)]
pub struct RunningJob(Arc<AtomicBool>);

impl InputJob {
    /// A job that is not begun.
    #[must_use]
    pub fn new(raw: Arc<RawRequest>) -> Self {
        Self { raw, is_running: Arc::default() }
    }

    /// Begins with it.
    #[must_use]
    pub fn run(&self) -> RunningJob {
        self.is_running.store(true, Ordering::Release);
        RunningJob(Arc::clone(&self.is_running))
    }

    /// Whether it is worked on at this moment: then neither the job nor its answer got lost.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Acquire)
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A request as its client wrote it.
#[derive(Debug, Clone)]
pub struct RawRequest {
    /// What to continue.
    pub prompt: Prompt,
    /// How to sample. Its `max_tokens` and `bad_words` are overwritten from the fields below.
    pub params: SamplingParams,
    /// Output tokens at most; `None`: as many as the context leaves, up to `max_tokens_default`.
    pub max_tokens: Option<u32>,
    /// Where the client says nothing, no more than these, and no more than the context leaves.
    pub max_tokens_default: Option<u32>,
    /// Words that must not appear.
    pub bad_words: Vec<String>,
    /// Whether the tokenizer adds what the model expects around a text.
    pub add_special_tokens: bool,
    /// Keep only this many prompt tokens; -1: as many as the context leaves.
    pub truncate_prompt_tokens: Option<i64>,
    /// Which end of a truncated prompt goes.
    pub truncation_side: TruncationSide,
    /// A lower value is served first.
    pub priority: i32,
    /// Keeps its prefix-cache entries apart.
    pub cache_salt: Option<String>,
    /// Whose API key it came with: for quotas and shares.
    pub tenant: Option<Tenant>,
    /// The first of the requests that the client's request has become so far, if it has several
    /// prompts or steps: together they take turns with others as one.
    pub group: Option<RequestId>,
    /// It is given up when it has not begun by then.
    pub timeout: Option<Duration>,
}

/// What to continue.
#[derive(Debug, Clone)]
pub enum Prompt {
    /// Plain text.
    Text(String),
    /// Token ids, taken as they are.
    Tokens(Vec<TokenId>),
    /// A conversation, for the chat template.
    Chat(Arc<ChatPrompt>),
}

/// A request ready to be accepted.
#[derive(Debug, Clone)]
pub struct ProcessedRequest {
    /// At least one token, all of them in the vocabulary.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// Validated and normalized; `max_tokens` fits the context.
    pub params: SamplingParams,
}

impl RawRequest {
    /// A request for `prompt` with vLLM's defaults.
    #[must_use]
    pub fn new(prompt: Prompt) -> Self {
        let add_special_tokens = !matches!(prompt, Prompt::Chat(_));
        Self {
            prompt,
            params: SamplingParams::default(),
            max_tokens: None,
            max_tokens_default: None,
            bad_words: Vec::new(),
            add_special_tokens,
            truncate_prompt_tokens: None,
            truncation_side: TruncationSide::default(),
            priority: 0,
            cache_salt: None,
            tenant: None,
            group: None,
            timeout: None,
        }
    }
}
