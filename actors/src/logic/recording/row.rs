//! The result of one request in a step, as a recording has it: without log-probabilities.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    codec::hash,
    logic::request::{
        ids::{RequestId, TokenId},
        outputs::{
            DraftCounts, Pooled, Produced, PromptLogprobs, RequestOutput, RowFailure, SampledToken,
        },
    },
};

/// The result of one request in a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowDone {
    /// One token and nothing else, as in nearly all steps.
    Token {
        /// The request.
        request: RequestId,
        /// The token.
        token: TokenId,
    },
    /// Any result.
    Other(RequestId, Box<RowRest>),
}

/// The parts of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowRest {
    /// The tokens, or the pooled numbers.
    pub result: RowResult,
    /// The first position and the number of the prompt's log-probabilities.
    pub prompt_logprobs: Option<(usize, usize)>,
    /// The guesses of tokens. They may depend on time.
    pub drafts: DraftCounts,
    /// The reason why there is no token.
    pub failure: Option<RowFailure>,
}

/// The work of a step for one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowResult {
    /// The tokens that were drawn.
    Tokens(Vec<TokenId>),
    /// The hash of pooled numbers.
    Pooled(u64),
}

impl RowDone {
    /// Returns the recorded form of a result.
    #[must_use]
    pub fn of(output: &RequestOutput) -> Self {
        let RequestOutput { request, produced, prompt_logprobs, drafts, failure } = output;
        let result = match produced {
            Produced::Tokens(tokens) => {
                RowResult::Tokens(tokens.iter().map(|token| token.token_id).collect())
            }
            Produced::Pooled(pooled) => RowResult::Pooled(hash(&(&pooled.values, pooled.width))),
        };
        let span = |logprobs: &PromptLogprobs| (logprobs.start, logprobs.rows.len());
        let rest = RowRest {
            result,
            prompt_logprobs: prompt_logprobs.as_ref().map(span),
            drafts: *drafts,
            failure: failure.clone(),
        };
        rest.of_request(*request)
    }

    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> RequestId {
        match self {
            Self::Token { request, .. } | Self::Other(request, _) => *request,
        }
    }

    /// Returns the tokens that were drawn.
    #[must_use]
    pub fn tokens(&self) -> &[TokenId] {
        match self {
            Self::Token { token, .. } => std::slice::from_ref(token),
            Self::Other(_, rest) => match &rest.result {
                RowResult::Tokens(tokens) => tokens,
                RowResult::Pooled(_) => &[],
            },
        }
    }

    /// Returns the parts of the result.
    #[must_use]
    pub fn rest(&self) -> RowRest {
        match self {
            Self::Other(_, rest) => RowRest::clone(rest),
            Self::Token { token, .. } => RowRest {
                result: RowResult::Tokens(vec![*token]),
                prompt_logprobs: None,
                drafts: DraftCounts::default(),
                failure: None,
            },
        }
    }

    /// Returns whether another computation has the same result. Guesses do not count.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        let without_drafts = |row: &Self| RowRest { drafts: DraftCounts::default(), ..row.rest() };
        self.request() == other.request() && without_drafts(self) == without_drafts(other)
    }

    /// Returns the result for a scheduler: its log-probabilities are empty, as are pooled numbers.
    #[must_use]
    pub fn output(&self) -> RequestOutput {
        let RowRest { result, prompt_logprobs, drafts, failure } = self.rest();
        let token = |token_id| SampledToken { token_id, logprobs: None };
        let produced = match result {
            RowResult::Tokens(tokens) => tokens.into_iter().map(token).collect(),
            RowResult::Pooled(_) => Produced::Pooled(Pooled { values: Arc::from([]), width: 0 }),
        };
        let rows = |(start, count)| PromptLogprobs { start, rows: vec![Vec::new(); count] };
        RequestOutput {
            request: self.request(),
            produced,
            prompt_logprobs: prompt_logprobs.map(rows),
            drafts,
            failure,
        }
    }
}

impl RowRest {
    /// Returns the shortest form.
    #[must_use]
    pub fn of_request(self, request: RequestId) -> RowDone {
        let is_plain = self.prompt_logprobs.is_none()
            && self.drafts == DraftCounts::default()
            && self.failure.is_none();
        match self.result {
            RowResult::Tokens(ref tokens) if is_plain && tokens.len() == 1 => {
                let token = tokens.first().copied().unwrap_or_default();
                RowDone::Token { request, token }
            }
            _ => RowDone::Other(request, Box::new(self)),
        }
    }
}

/// In words, for a report of a difference.
impl std::fmt::Display for RowDone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rest = self.rest();
        match (&rest.failure, &rest.result) {
            (Some(failure), _) => write!(f, "failure {failure:?}")?,
            (None, RowResult::Tokens(tokens)) => write!(f, "tokens {tokens:?}")?,
            (None, RowResult::Pooled(hash)) => write!(f, "pooled numbers with hash {hash:016x}")?,
        }
        match rest.prompt_logprobs {
            Some((start, count)) => {
                write!(f, " and {count} log-probabilities of the prompt from position {start} on")
            }
            None => Ok(()),
        }
    }
}
