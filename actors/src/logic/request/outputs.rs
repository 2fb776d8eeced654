//! The results of a step: tokens, or the numbers of a pooling request.

use std::sync::Arc;

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

/// The log-probabilities of one position: first those of the actual token, then the top ones.
pub type TokenLogprobs = Vec<Logprob>;

/// One token that the sampler drew.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampledToken {
    /// The token.
    pub token_id: TokenId,
    /// Present if and only if the request asked for them.
    pub logprobs: Option<TokenLogprobs>,
}

/// The tokens that a step drew for one request. This is nearly always one token, which needs no
/// allocation.
pub type SampledTokens = SmallVec<[SampledToken; 1]>;

/// The result of a request's work, or a part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Produced {
    /// Generated tokens, in order.
    Tokens(SampledTokens),
    /// The whole result of a pooling request.
    Pooled(Pooled),
}

/// The result of a pooling request: rows of numbers. All actors share the numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pooled {
    /// The rows, one after the other. All numbers are finite.
    pub values: Arc<[f32]>,
    /// Number of elements in a row.
    pub width: usize,
}

impl Pooled {
    /// Returns the rows: one for the prompt, or one for each token.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f32]> {
        self.values.chunks_exact(self.width.max(1))
    }

    /// Returns the size of the numbers in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&self.values[..])
    }
}

impl Produced {
    /// Returns the generated tokens. A pooled result has none.
    #[must_use]
    pub fn tokens(&self) -> &[SampledToken] {
        match self {
            Self::Tokens(tokens) => tokens,
            Self::Pooled(_) => &[],
        }
    }

    /// Appends a generated token. It replaces a pooled result.
    pub fn push(&mut self, token: SampledToken) {
        match self {
            Self::Tokens(tokens) => tokens.push(token),
            Self::Pooled(_) => *self = Self::from_iter([token]),
        }
    }

    /// Keeps the first `len` generated tokens.
    pub fn truncate(&mut self, len: usize) {
        if let Self::Tokens(tokens) = self {
            tokens.truncate(len);
        }
    }

    /// Returns the generated tokens alone. A pooled result has none.
    #[must_use]
    pub fn into_tokens(self) -> SampledTokens {
        match self {
            Self::Tokens(tokens) => tokens,
            Self::Pooled(_) => SampledTokens::new(),
        }
    }

    /// Returns the result of a pooling request.
    #[must_use]
    pub fn pooled(&self) -> Option<&Pooled> {
        match self {
            Self::Tokens(_) => None,
            Self::Pooled(pooled) => Some(pooled),
        }
    }

    /// Returns whether there is neither a token nor a pooled result.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Tokens(tokens) => tokens.is_empty(),
            Self::Pooled(_) => false,
        }
    }

    /// Returns roughly how many tokens take as much memory, for limits on batches.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Tokens(tokens) => tokens.len(),
            Self::Pooled(pooled) => pooled.bytes() / size_of::<SampledToken>(),
        }
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
    /// Position in the prompt of the first row. At least 1, because no token predicts the first.
    pub start: usize,
    /// One row for each position.
    pub rows: Vec<TokenLogprobs>,
}

/// The output of a step for one scheduled request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestOutput {
    /// The request.
    pub request: RequestId,
    /// Empty until the whole prompt is computed.
    pub produced: Produced,
    /// Present if and only if the request asked for them and this step computed prompt tokens.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Guesses of its tokens.
    pub drafts: DraftCounts,
    /// The reason why no token could be drawn. A request that fails is also in the steps that were
    /// planned ahead. It fails in them for the same reason and is no part of them. A request that
    /// was to draw no token is computed on, because others in those steps may share its blocks.
    pub failure: Option<RowFailure>,
}

/// Guesses of one request's tokens, also called drafts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DraftCounts {
    /// Number of guessed tokens that the step verified.
    pub num_drafted: u32,
    /// How many of them were right. They are among the drawn tokens.
    pub num_accepted: u32,
    /// Number of guesses that the executor would verify in a later step, if there is room.
    pub num_wanted: u32,
}

/// The reason why a request got no token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowFailure {
    /// Its row of logits was not finite. Its content in the KV cache cannot be used.
    NotANumber,
    /// Its grammar, or its token rules, allow no further token, for this reason. The request ends,
    /// and its client sees the text.
    Grammar(String),
    /// Its adapter is not in memory, though the scheduler was told so. The client sees the text.
    Adapter(String),
    /// An image or sound of the request is not in memory, though the scheduler was told so.
    Media,
}

/// The worker's answer to a `SchedulerOutput`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepOutput {
    /// Epoch of the step.
    pub epoch: Epoch,
    /// Number of the step.
    pub step: Step,
    /// One entry for each scheduled request, in the order of the `SchedulerOutput`.
    pub outputs: Vec<RequestOutput>,
}

/// The part of a step's output that becomes permanent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// The request.
    pub request: RequestId,
    /// Number of output tokens before this commit, so the index of the first new one.
    pub position: usize,
    /// New tokens. May be empty if `prompt_logprobs` or `finish` is present.
    pub produced: Produced,
    /// Prompt positions that were not committed before.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Present if and only if the request ends with this commit.
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
