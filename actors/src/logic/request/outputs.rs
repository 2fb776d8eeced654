//! What a step gives back, token by token.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::{
    FinishReason,
    ids::{Epoch, RequestId, Step, TokenId},
};
use crate::logic::scheduler::FirstScheduled;

/// Log-probability of one token at one position.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Logprob {
    /// The token.
    pub token_id: TokenId,
    /// Natural logarithm of its probability, before temperature and filters.
    pub logprob: f32,
    /// 1 for the most likely token.
    pub rank: u32,
}

/// The log-probabilities of one position: first the token that stands there, then the top ones.
pub type TokenLogprobs = Vec<Logprob>;

/// One token that the sampler drew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampledToken {
    /// The token.
    pub token_id: TokenId,
    /// There iff the request asked for them.
    pub logprobs: Option<TokenLogprobs>,
}

/// What a step drew for one request: nearly always one token, which needs no memory of its own.
pub type SampledTokens = SmallVec<[SampledToken; 1]>;

/// The result of a request's work, or a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Produced {
    /// Generated tokens, in order.
    Tokens(SampledTokens),
}

impl Produced {
    /// Returns the generated tokens.
    #[must_use]
    pub fn tokens(&self) -> &SampledTokens {
        let Self::Tokens(tokens) = self;
        tokens
    }

    /// Returns the generated tokens, to add to or to drop.
    pub fn tokens_mut(&mut self) -> &mut SampledTokens {
        let Self::Tokens(tokens) = self;
        tokens
    }

    /// Returns the generated tokens alone.
    #[must_use]
    pub fn into_tokens(self) -> SampledTokens {
        let Self::Tokens(tokens) = self;
        tokens
    }
}

/// No result.
impl Default for Produced {
    fn default() -> Self {
        Self::Tokens(SampledTokens::new())
    }
}

impl FromIterator<SampledToken> for Produced {
    fn from_iter<I: IntoIterator<Item = SampledToken>>(tokens: I) -> Self {
        Self::Tokens(tokens.into_iter().collect())
    }
}

/// Log-probabilities of prompt tokens that one chunk of a prefill computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PromptLogprobs {
    /// Position in the prompt of the first row; at least 1, as nothing predicts the first token.
    pub start: usize,
    /// A row a position.
    pub rows: Vec<TokenLogprobs>,
}

/// What one scheduled request got from a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestOutput {
    /// Whose it is.
    pub request: RequestId,
    /// Empty while the prompt is not computed to its end.
    pub produced: Produced,
    /// There iff the request asked and this step computed prompt tokens.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Why no token could be drawn. A request in steps that were planned ahead fails in them for the
    /// same reason, and is no part of them; one that was to draw none is computed on, as others that
    /// were planned ahead may share its blocks.
    pub failure: Option<RowFailure>,
}

/// Why a request got no token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowFailure {
    /// Its row of logits was no number: what it left in the KV cache cannot be used.
    NotANumber,
    /// Its grammar cannot go on, for this reason: it ends, and the text is its client's to see.
    Grammar(String),
}

/// What the worker answers to a `SchedulerOutput`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepOutput {
    /// The epoch it was computed in.
    pub epoch: Epoch,
    /// The step.
    pub step: Step,
    /// One entry for each scheduled request, in the order of the `SchedulerOutput`.
    pub outputs: Vec<RequestOutput>,
}

/// What a step adds to a request for good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// Whose it is.
    pub request: RequestId,
    /// Output tokens that it had before: the index of the first new one.
    pub position: usize,
    /// May be empty when `prompt_logprobs` or `finish` is there.
    pub produced: Produced,
    /// Prompt positions that were not committed before.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// There iff the request has ended with this commit.
    pub finish: Option<FinishReason>,
}

/// The changes that a step made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepReport {
    /// Requests that left the queue for the first time.
    pub first_scheduled: Vec<FirstScheduled>,
    /// New tokens and ends of requests, for the ledger to make permanent.
    pub commits: Vec<Commit>,
    /// Whether a step was computed.
    pub is_computed: bool,
}
