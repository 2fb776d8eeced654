//! An accepted request, which all actors share. It never changes. The changing parts (tokens,
//! blocks, queues) are elsewhere, and are rebuilt from the request and its committed tokens.

pub mod failure;
pub mod ids;
pub mod lora;
pub mod media;
pub mod outputs;
pub mod pooling_params;
pub mod sampling_params;
pub mod seed;
pub mod structured_output;
pub mod work;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::{
    failure::Failure,
    ids::{Micros, RequestId, TokenId},
    lora::LoraRequest,
    media::MultimodalFeature,
    pooling_params::PoolingParams,
    sampling_params::SamplingParams,
    work::Work,
};
use super::admission::Tenant;

/// The beginning of the cache salt of requests in the model's short context. Salts of clients have
/// no NUL.
const SHORT: &str = "short\0";

/// One output to generate: one choice of one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineRequest {
    /// Assigned by the engine, in order of acceptance.
    pub id: RequestId,
    /// The first request of its group. A client's request becomes a group: its choices, over all
    /// prompts.
    pub group: RequestId,
    /// Its index among the choices that were submitted with it, from 0.
    pub choice: u32,
    /// The tenant of its API key. Tenants share the engine.
    pub tenant: Option<Tenant>,
    /// The prompt, at least one token.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// The work of the model on the prompt.
    pub work: Work,
    /// Keys the random draws together with the token's position.
    pub seed: u64,
    /// Tokens that end the output with finish reason `stop` and no stop reason: the model's
    /// end-of-sequence tokens.
    pub eos_token_ids: Arc<[TokenId]>,
    /// Time of its acceptance.
    pub arrival: Micros,
    /// A lower value is served first.
    pub priority: i32,
    /// Keeps its prefix-cache entries apart from those of other salts.
    pub cache_salt: Option<Arc<str>>,
    /// The adapter whose weights are added to the model's.
    pub lora: Option<Arc<LoraRequest>>,
    /// Time at which it is given up.
    pub deadline: Option<Micros>,
    /// The name of the answer that it is a part of. The journal keeps requests that have one.
    pub answer_id: Option<Arc<str>>,
    /// Images and sounds with placeholders in the prompt, sorted by offset. Also the sound or text
    /// to which all tokens attend.
    pub mm_features: Arc<[MultimodalFeature]>,
}

impl EngineRequest {
    /// Returns the parameters of generation, if the request generates.
    #[must_use]
    pub fn sampling(&self) -> Option<&SamplingParams> {
        match &self.work {
            Work::Generate(params) => Some(params),
            Work::Pool(_) => None,
        }
    }

    /// Returns the parameters of pooling, if the request pools.
    #[must_use]
    pub fn pooling(&self) -> Option<&PoolingParams> {
        match &self.work {
            Work::Generate(_) => None,
            Work::Pool(params) => Some(params),
        }
    }

    /// Returns the maximum number of output tokens.
    #[must_use]
    pub fn max_tokens(&self) -> u32 {
        self.sampling().map_or(0, |params| params.max_tokens)
    }

    /// Returns the number of tokens of the prompt.
    #[must_use]
    pub fn num_prompt_tokens(&self) -> usize {
        self.prompt_token_ids.len()
    }

    /// Returns the request with the mark of the model's short context, if prompt and output have at
    /// most `limit` tokens together, whatever it generates. Its keys are not those of longer
    /// requests, so the mark is a part of its cache salt.
    #[must_use]
    pub fn marked_if_within(self, limit: usize) -> Self {
        if self.num_prompt_tokens() + self.max_tokens() as usize > limit {
            return self;
        }
        let salt = format!("{SHORT}{}", self.cache_salt.as_deref().unwrap_or_default());
        Self { cache_salt: Some(salt.into()), ..self }
    }

    /// Returns whether the request has the mark of the model's short context.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.cache_salt.as_deref().is_some_and(|salt| salt.starts_with(SHORT))
    }

    /// Returns the number of tokens that the client sent: those of the prompt, and those of the
    /// texts that an encoder takes.
    #[must_use]
    pub fn num_input_tokens(&self) -> usize {
        let of_encoder = self.mm_features.iter().map(MultimodalFeature::num_text_tokens);
        self.num_prompt_tokens() + of_encoder.sum::<usize>()
    }

    /// Returns the maximum number of tokens that prompt and output may have together, within the
    /// model's context.
    #[must_use]
    pub fn max_total_tokens(&self, max_model_len: usize) -> usize {
        (self.num_prompt_tokens() + self.max_tokens() as usize).min(max_model_len)
    }
}

#[cfg(any(test, feature = "testing"))]
impl EngineRequest {
    /// Returns a request of a test, alone in its group, with default parameters.
    #[must_use]
    pub fn for_test(id: u64, prompt: impl IntoIterator<Item = TokenId>) -> Self {
        Self {
            id: RequestId(id),
            group: RequestId(id),
            choice: 0,
            tenant: None,
            prompt_token_ids: prompt.into_iter().collect(),
            work: Work::Generate(SamplingParams::default()),
            seed: 0,
            eos_token_ids: Arc::from([]),
            arrival: 0,
            priority: 0,
            cache_salt: None,
            lora: None,
            deadline: None,
            answer_id: None,
            mm_features: Arc::from([]),
        }
    }

    /// Returns the parameters of generation, for a test to change.
    ///
    /// # Panics
    /// If the request pools.
    pub fn sampling_mut(&mut self) -> &mut SamplingParams {
        match &mut self.work {
            Work::Generate(params) => params,
            Work::Pool(_) => unreachable!("the test's request generates"),
        }
    }
}

/// The reason why a request ended. `as_str` returns the API's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// An end-of-sequence token, a stop token or a stop string.
    Stop(Option<StopReason>),
    /// `max_tokens` or the context's end.
    Length,
    /// The client left, or aborted the request.
    Abort,
    /// The output kept repeating a pattern.
    Repetition,
    /// The request failed while others did not.
    Error(Failure),
}

/// The token or string that stopped a request, unless it was the end-of-sequence token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// One of the request's `stop_token_ids`.
    Token(TokenId),
    /// One of the request's `stop` strings.
    String(String),
}

impl FinishReason {
    /// Returns the API's word.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Stop(_) => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
            Self::Repetition => "repetition",
            Self::Error(_) => "error",
        }
    }
}
