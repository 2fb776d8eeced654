//! One request's entry in the ledger.

use std::sync::Arc;

use crate::logic::{
    request::{
        EngineRequest, FinishReason,
        ids::{EngineIndex, Micros},
        outputs::{Commit, Pooled, PromptLogprobs, SampledToken, TokenLogprobs},
    },
    scheduler::{FirstScheduled, RecoveredRequest},
};

/// One request and its committed output.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    request: Arc<EngineRequest>,
    /// The engine that computes it.
    engine: EngineIndex,
    /// Whether another engine may have had it before, and this one has committed nothing for it
    /// since. New requests of several engines count, too: they have no tail that could be used.
    is_newcomer: bool,
    output: Vec<SampledToken>,
    /// The result of a pooling request, which ended with it.
    pooled: Option<Pooled>,
    /// Row `i` belongs to prompt position `i + 1`.
    prompt_logprobs: Vec<TokenLogprobs>,
    num_cached_tokens: Option<usize>,
    queue_time: Option<Micros>,
    end: Option<FinishReason>,
    first_token: Option<Micros>,
    last_token: Option<Micros>,
    timing: CommitTiming,
}

/// The times that a client waited for a commit, for the metrics. All are in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitTiming {
    /// Time from arrival to the first token. Given with the first token.
    pub time_to_first_token: Option<Micros>,
    /// Time since the previous commit of tokens. Given with every later one.
    pub inter_token_latency: Option<Micros>,
}

impl Entry {
    pub(super) fn new(request: &Arc<EngineRequest>) -> Self {
        Self {
            request: Arc::clone(request),
            engine: EngineIndex::default(),
            is_newcomer: false,
            output: Vec::new(),
            pooled: None,
            prompt_logprobs: Vec::new(),
            num_cached_tokens: None,
            queue_time: None,
            end: None,
            first_token: None,
            last_token: None,
            timing: CommitTiming::default(),
        }
    }

    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> &Arc<EngineRequest> {
        &self.request
    }

    /// Returns the engine that computes the request.
    #[must_use]
    pub fn engine(&self) -> EngineIndex {
        self.engine
    }

    /// Returns whether another engine may have had the request before, and this one has committed
    /// nothing for it since. A tail that this engine has of an earlier time is too old then.
    #[must_use]
    pub fn is_newcomer(&self) -> bool {
        self.is_newcomer
    }

    pub(super) fn assign(&mut self, engine: EngineIndex) {
        self.engine = engine;
        self.is_newcomer = true;
    }

    /// Returns the committed tokens.
    #[must_use]
    pub fn output(&self) -> &[SampledToken] {
        &self.output
    }

    /// Returns the result of a pooling request, once it is committed.
    #[must_use]
    pub fn pooled(&self) -> Option<&Pooled> {
        self.pooled.as_ref()
    }

    /// Returns the reason of the end, if the request has ended.
    #[must_use]
    pub fn end(&self) -> Option<&FinishReason> {
        self.end.as_ref()
    }

    /// Returns the time when the first token was committed.
    #[must_use]
    pub fn first_token(&self) -> Option<Micros> {
        self.first_token
    }

    /// Returns the time when the last token so far was committed.
    #[must_use]
    pub fn last_token(&self) -> Option<Micros> {
        self.last_token
    }

    /// Returns the times that the client waited for the last commit.
    #[must_use]
    pub fn timing(&self) -> CommitTiming {
        self.timing
    }

    /// Returns the number of prompt and output tokens.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.request.num_prompt_tokens() + self.output.len()
    }

    /// Returns the time from arrival until the request was first scheduled, once known.
    #[must_use]
    pub fn queue_time(&self) -> Option<Micros> {
        self.queue_time
    }

    /// Returns the number of prompt tokens that came from the prefix cache, once known.
    #[must_use]
    pub fn num_cached_tokens(&self) -> Option<usize> {
        self.num_cached_tokens
    }

    /// Returns the log-probabilities of prompt tokens.
    pub(super) fn prompt_logprobs(&self) -> &[TokenLogprobs] {
        &self.prompt_logprobs
    }

    pub(super) fn commit(&mut self, commit: &Commit, at: Micros) {
        self.is_newcomer = false;
        self.timing = CommitTiming::default();
        if let Some(rows) = &commit.prompt_logprobs {
            self.extend_prompt_logprobs(rows);
        }
        if !commit.produced.tokens().is_empty() {
            match self.last_token {
                None => {
                    self.first_token = Some(at);
                    let waited = at.saturating_sub(self.request.arrival);
                    self.timing.time_to_first_token = Some(waited);
                }
                Some(last) => self.timing.inter_token_latency = Some(at.saturating_sub(last)),
            }
            self.last_token = Some(at);
            self.output.extend_from_slice(commit.produced.tokens());
        }
        self.pooled = commit.produced.pooled().cloned();
        self.end.clone_from(&commit.finish);
    }

    pub(super) fn schedule(&mut self, first: &FirstScheduled) {
        self.num_cached_tokens = Some(first.num_cached_tokens);
        self.queue_time = Some(first.queue_time);
    }

    /// Appends the rows that are new. A prefill that is computed again repeats rows.
    fn extend_prompt_logprobs(&mut self, computed: &PromptLogprobs) {
        let held = self.prompt_logprobs.len() + 1;
        if let Some(known) = held.checked_sub(computed.start) {
            self.prompt_logprobs.extend(computed.rows.iter().skip(known).cloned());
        }
    }

    pub(super) fn end_at(&mut self, position: usize, reason: &FinishReason) {
        self.output.truncate(position);
        self.end = Some(reason.clone());
    }

    pub(super) fn recovered(&self) -> RecoveredRequest {
        RecoveredRequest {
            request: Arc::clone(&self.request),
            output_token_ids: self.output.iter().map(|token| token.token_id).collect(),
            num_prompt_logprobs: self.prompt_logprobs.len(),
        }
    }
}
