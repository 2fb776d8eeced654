//! An accepted request, as every actor shares it. It never changes: what changes (tokens, blocks,
//! queues) lives elsewhere and is rebuilt from this and the committed tokens.

pub mod failure;
pub mod ids;
pub mod outputs;
pub mod sampling_params;
pub mod seed;
pub mod structured_output;
pub mod work;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::{
    failure::Failure,
    ids::{Micros, RequestId, TokenId},
    sampling_params::SamplingParams,
    work::Work,
};
use super::admission::Tenant;

/// One sequence to generate: one choice of one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineRequest {
    /// Assigned by the engine, in order of acceptance.
    pub id: RequestId,
    /// The first of the requests that one client's request became: its choices, over all prompts.
    pub group: RequestId,
    /// Its place among the choices that were submitted with it, from 0.
    pub choice: u32,
    /// Whose API key it came with. Tenants share the engine.
    pub tenant: Option<Tenant>,
    /// The prompt, at least one token.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// What the model does with the prompt.
    pub work: Work,
    /// Keys the random draws together with the token's position.
    pub seed: u64,
    /// Tokens that end the output with finish reason `stop` and no stop reason: the model's
    /// end-of-sequence tokens.
    pub eos_token_ids: Arc<[TokenId]>,
    /// When it was accepted.
    pub arrival: Micros,
    /// A lower value is served first.
    pub priority: i32,
    /// Keeps its prefix-cache entries apart from those of other salts.
    pub cache_salt: Option<Arc<str>>,
    /// When it is given up.
    pub deadline: Option<Micros>,
    /// Images and sounds whose placeholders stand in the prompt, sorted by offset.
    pub mm_features: Arc<[MultimodalFeature]>,
}

/// One image or sound of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultimodalFeature {
    /// Hash of its content.
    pub identifier: Arc<str>,
    /// Position of its first placeholder token in the prompt.
    pub offset: usize,
    /// Placeholder tokens.
    pub length: usize,
    /// Embeddings that the encoder makes of it.
    pub num_embeds: usize,
}

impl EngineRequest {
    /// Returns the parameters of generation.
    #[must_use]
    pub fn sampling(&self) -> &SamplingParams {
        let Work::Generate(params) = &self.work;
        params
    }

    /// Tokens of the prompt.
    #[must_use]
    pub fn num_prompt_tokens(&self) -> usize {
        self.prompt_token_ids.len()
    }

    /// Most tokens that prompt and output may have together, within the model's context.
    #[must_use]
    pub fn max_total_tokens(&self, max_model_len: usize) -> usize {
        (self.num_prompt_tokens() + self.sampling().max_tokens as usize).min(max_model_len)
    }
}

#[cfg(any(test, feature = "chaos"))]
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
            deadline: None,
            mm_features: Arc::from([]),
        }
    }

    /// Returns the parameters of generation, for a test to change.
    pub fn sampling_mut(&mut self) -> &mut SamplingParams {
        let Work::Generate(params) = &mut self.work;
        params
    }
}

/// Why a request ended. `as_str` gives the API's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// An end-of-sequence token, a stop token or a stop string.
    Stop(Option<StopReason>),
    /// `max_tokens` or the context's end.
    Length,
    /// The client left, or asked for it.
    Abort,
    /// It kept repeating a pattern.
    Repetition,
    /// It failed alone.
    Error(Failure),
}

/// What stopped a request, where it was not the end-of-sequence token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// One of the request's `stop_token_ids`.
    Token(TokenId),
    /// One of the request's `stop` strings.
    String(String),
}

impl FinishReason {
    /// The word that the API uses.
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
