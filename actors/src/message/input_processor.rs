//! Messages to an input processor: a client's request, to be tokenized and checked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ractor::RpcReplyPort;

use super::edge::{Edge, Letter, edge, pings};
use crate::{
    error::RequestError,
    logic::{
        admission::Tenant,
        input::{
            encoder_text::EncoderText,
            fit::TruncationSide,
            languages::{LanguageTokens, RequestLanguages},
        },
        request::{
            ids::{RequestId, TokenId},
            lora::LoraRequest,
            media::MultimodalFeature,
            pooling_params::PoolingParams,
            sampling_params::SamplingParams,
            work::Work,
        },
    },
    ports::{ChatPrompt, ExpandedPrompt, RawMedia},
};

/// A message that an input processor receives.
#[derive(Debug)]
pub enum InputProcessorMessage {
    /// From the engine's door: check this request and turn its prompt into token ids.
    Process(InputJob, RpcReplyPort<Result<ProcessedRequest, RequestError>>),
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

impl Letter for InputProcessorMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Process(..) => edge!(Door -> InputProcessor),
            Self::Ping => Edge::TIMER,
        }
    }

    pings!();
}

/// A request to process. The door keeps a copy.
#[derive(Debug, Clone)]
pub struct InputJob {
    /// The request.
    pub raw: Arc<RawRequest>,
    is_running: Arc<AtomicBool>,
}

/// Marks its job as running until it is dropped.
#[derive(Debug)]
pub struct RunningJob(Arc<AtomicBool>);

impl InputJob {
    /// Returns a job that has not begun.
    #[must_use]
    pub fn new(raw: Arc<RawRequest>) -> Self {
        Self { raw, is_running: Arc::default() }
    }

    /// Begins the job. It counts as running until the returned value is dropped.
    #[must_use]
    pub fn run(&self) -> RunningJob {
        self.is_running.store(true, Ordering::Release);
        RunningJob(Arc::clone(&self.is_running))
    }

    /// Returns whether the job is running now. If so, neither the job nor its answer was lost.
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
    /// The text, tokens or conversation that the model continues.
    pub prompt: Prompt,
    /// The images and sounds of the prompt, in the order of their placeholders.
    pub media: Arc<[RawMedia]>,
    /// Sampling parameters. Their `max_tokens` and `bad_words` are overwritten from the fields
    /// below.
    pub params: SamplingParams,
    /// Asks for pooling instead of generation. Sampling parameters then have no effect.
    pub pooling: Option<PoolingParams>,
    /// Largest number of output tokens: the whole context at most. The room that the context leaves
    /// beside the prompt is a limit too. `None` means `max_tokens_default`.
    pub max_tokens: Option<u32>,
    /// Largest number of output tokens if the client gives none. The room that the context leaves
    /// is a limit too.
    pub max_tokens_default: Option<u32>,
    /// Words that must not appear in the output.
    pub bad_words: Vec<String>,
    /// Whether the tokenizer adds the special tokens that the model expects around a text.
    pub add_special_tokens: bool,
    /// The languages of the text and of the output, for models that translate.
    pub languages: RequestLanguages,
    /// Number of prompt tokens to keep. -1 means as many as leave room for an output token.
    pub truncate_prompt_tokens: Option<i64>,
    /// The end at which a prompt is truncated.
    pub truncation_side: TruncationSide,
    /// A token that follows the prompt's own, which a model expects behind a pair of texts.
    pub end_token: Option<TokenId>,
    /// Whether padding tokens follow a shorter prompt, up to the longest that is accepted. They
    /// count as its tokens.
    pub pads_to_limit: bool,
    /// Priority: a lower value is served first.
    pub priority: i32,
    /// Separates the request's prefix-cache entries from those with another salt.
    pub cache_salt: Option<String>,
    /// The adapter whose weights are added to the model's.
    pub lora: Option<Arc<LoraRequest>>,
    /// The tenant whose API key came with the request. Quotas and shares are counted by tenant.
    pub tenant: Option<Tenant>,
    /// Set if the client's request has several prompts or steps: the id of the first of their
    /// requests. All requests of a group take turns with other requests as one.
    pub group: Option<RequestId>,
    /// The name of the answer that it is a part of. The journal keeps requests that have one.
    pub answer_id: Option<Arc<str>>,
    /// Longest wait until the request begins. After that it is aborted.
    pub timeout: Option<Duration>,
}

/// The text, tokens or conversation that the model continues.
#[derive(Debug, Clone)]
pub enum Prompt {
    /// Plain text.
    Text(String),
    /// Token ids, used unchanged.
    Tokens(Vec<TokenId>),
    /// Token ids with the places of images and sounds, as another request has them. They are used
    /// unchanged.
    Expanded(Arc<ExpandedPrompt>),
    /// A conversation, for the chat template.
    Chat(Arc<ChatPrompt>),
    /// Two texts, which the tokenizer joins as the model expects.
    Pair(Arc<str>, Arc<str>),
    /// Late chunking: texts that follow each other and are read as one. The result has a vector for
    /// each.
    Chunks(Arc<[String]>),
}

/// A request that is ready for acceptance.
#[derive(Debug, Clone)]
pub struct ProcessedRequest {
    /// Ids of at least one token; all are in the vocabulary.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// The work, with validated and normalized parameters; `max_tokens` fits the context.
    pub work: Work,
    /// The places of images and sounds in the prompt, sorted by offset.
    pub mm_features: Arc<[MultimodalFeature]>,
}

impl RawRequest {
    /// Returns a request that pools `prompt`. A prompt that is too long keeps its first tokens if
    /// it is truncated.
    #[must_use]
    pub fn pool(prompt: Prompt, params: PoolingParams) -> Self {
        let truncation_side = TruncationSide::Right;
        Self { pooling: Some(params), truncation_side, ..Self::new(prompt) }
    }

    /// Returns the tokens of the languages that the request names. `text` is the model's encoder,
    /// if the prompt is its text.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] if the model or the prompt has no place for them.
    pub fn language_tokens(
        &self,
        text: Option<&EncoderText>,
    ) -> Result<LanguageTokens, RequestError> {
        let Some(text) = text else {
            self.languages.refuse("unset, because the model has no languages")?;
            return Ok(LanguageTokens::default());
        };
        let tokens = self.languages.tokens(text)?;
        if tokens.around.is_some() || tokens.before_text.is_some() {
            if !matches!(self.prompt, Prompt::Text(_) | Prompt::Chat(_)) {
                self.languages.refuse("unset for token ids, which are used unchanged")?;
            }
            if tokens.around.is_some() && !self.add_special_tokens {
                let accepted = "unset without add_special_tokens, because it is one of them";
                self.languages.refuse(accepted)?;
            }
        }
        Ok(tokens)
    }

    /// Returns the number of outputs that the request asks for.
    #[must_use]
    pub fn num_outputs(&self) -> u32 {
        if self.pooling.is_some() { 1 } else { self.params.n }
    }

    /// Returns a request for `prompt` with vLLM's defaults.
    #[must_use]
    pub fn new(prompt: Prompt) -> Self {
        let add_special_tokens = !matches!(prompt, Prompt::Chat(_));
        Self {
            prompt,
            media: [].into(),
            params: SamplingParams::default(),
            pooling: None,
            max_tokens: None,
            max_tokens_default: None,
            bad_words: Vec::new(),
            add_special_tokens,
            languages: RequestLanguages::default(),
            truncate_prompt_tokens: None,
            truncation_side: TruncationSide::default(),
            end_token: None,
            pads_to_limit: false,
            priority: 0,
            cache_salt: None,
            lora: None,
            tenant: None,
            group: None,
            answer_id: None,
            timeout: None,
        }
    }

    /// Returns the tokens of the prompt with [`RawRequest::end_token`].
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] if the prompt is truncated, which could drop that token.
    pub fn ended(&self, mut tokens: Vec<TokenId>) -> Result<Vec<TokenId>, RequestError> {
        match (self.end_token, self.truncate_prompt_tokens) {
            (Some(_), Some(count)) => {
                let accepted = "unset, because the model expects a token behind a pair; \
                                max_tokens_per_doc cuts documents";
                return Err(RequestError::invalid("truncate_prompt_tokens", count, accepted));
            }
            (end, _) => tokens.extend(end),
        }
        Ok(tokens)
    }

    /// Returns whether the prompt has images, videos or sounds.
    #[must_use]
    pub fn has_media(&self) -> bool {
        let is_expanded =
            matches!(&self.prompt, Prompt::Expanded(prompt) if !prompt.features.is_empty());
        is_expanded || !self.media.is_empty()
    }

    /// Returns whether the journal keeps the request.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.answer_id.is_some()
    }
}
