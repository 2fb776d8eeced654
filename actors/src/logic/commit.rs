//! What the scheduler asks the ledger to make permanent.

use serde::{Deserialize, Serialize};

use super::{
    ids::RequestId,
    outputs::{PromptLogprobs, SampledToken},
    request::FinishReason,
};

/// New tokens of one request, and its end if they are the last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Commit {
    /// Whose they are.
    pub request: RequestId,
    /// Index in the output of the first of `tokens`: what the ledger must hold before it.
    pub position: usize,
    /// The new tokens, possibly none.
    pub tokens: Vec<SampledToken>,
    /// Log-probabilities of prompt tokens that the step computed.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// Prompt tokens that came from the prefix cache, told once.
    pub num_cached_tokens: Option<usize>,
    /// Why the request ends with these tokens.
    pub finish: Option<FinishReason>,
}
