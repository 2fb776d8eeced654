//! One request's entry in the ledger.

use std::sync::Arc;

use super::egress::EgressEntry;
use crate::logic::{
    ids::Micros,
    outputs::{Commit, PromptLogprobs, SampledToken, TokenLogprobs},
    request::{EngineRequest, FinishReason},
    scheduler::{FirstScheduled, RecoveredRequest},
};

/// One request, its committed output, and the part of both that the egress pipeline has received.
#[derive(Debug)]
pub struct Entry {
    request: Arc<EngineRequest>,
    output: Vec<SampledToken>,
    /// Row `i` belongs to prompt position `i + 1`.
    prompt_logprobs: Vec<TokenLogprobs>,
    num_cached_tokens: Option<usize>,
    queue_time: Option<Micros>,
    end: Option<FinishReason>,
    first_token: Option<Micros>,
    last_token: Option<Micros>,
    told: Told,
}

/// The part of an entry that was sent to the egress pipeline.
#[derive(Debug, Default)]
struct Told {
    introduced: bool,
    tokens: usize,
    prompt_logprobs: usize,
    end: bool,
}

/// The times that clients waited, for the metrics. All are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitTiming {
    /// Time from arrival to the first token. Given with the first token.
    pub time_to_first_token: Option<Micros>,
    /// Time since the previous commit of tokens. Given with every later one.
    pub inter_token_latency: Option<Micros>,
    /// Time from arrival to the end. Given with the end.
    pub finished: Option<Micros>,
}

impl Entry {
    pub(super) fn new(request: Arc<EngineRequest>) -> Self {
        Self {
            request,
            output: Vec::new(),
            prompt_logprobs: Vec::new(),
            num_cached_tokens: None,
            queue_time: None,
            end: None,
            first_token: None,
            last_token: None,
            told: Told::default(),
        }
    }

    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> &Arc<EngineRequest> {
        &self.request
    }

    /// Returns the committed tokens.
    #[must_use]
    pub fn output(&self) -> &[SampledToken] {
        &self.output
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

    pub(super) fn apply(&mut self, commit: &Commit, now: Micros) -> CommitTiming {
        let mut timing = CommitTiming::default();
        if let Some(rows) = &commit.prompt_logprobs {
            self.extend_prompt_logprobs(rows);
        }
        if !commit.tokens.is_empty() {
            match self.last_token {
                None => {
                    self.first_token = Some(now);
                    timing.time_to_first_token = Some(now.saturating_sub(self.request.arrival));
                }
                Some(last) => timing.inter_token_latency = Some(now.saturating_sub(last)),
            }
            self.last_token = Some(now);
            self.output.extend_from_slice(&commit.tokens);
        }
        if commit.finish.is_some() {
            self.end.clone_from(&commit.finish);
            timing.finished = Some(now.saturating_sub(self.request.arrival));
        }
        timing
    }

    /// Records the first scheduling. Later calls change nothing, because a replay may hit more
    /// cached tokens.
    pub(super) fn note_scheduled(&mut self, first: &FirstScheduled) {
        self.num_cached_tokens.get_or_insert(first.num_cached_tokens);
        self.queue_time.get_or_insert(first.queue_time);
    }

    /// Appends the rows that are new. A prefill that is computed again repeats rows.
    fn extend_prompt_logprobs(&mut self, computed: &PromptLogprobs) {
        let held = self.prompt_logprobs.len() + 1;
        if let Some(known) = held.checked_sub(computed.start) {
            self.prompt_logprobs.extend(computed.rows.iter().skip(known).cloned());
        }
    }

    pub(super) fn end_at(&mut self, position: usize, reason: FinishReason) -> bool {
        let was_running = self.end.is_none();
        self.output.truncate(position);
        self.end = Some(reason);
        self.told.end = true;
        was_running
    }

    pub(super) fn finish(&mut self, reason: FinishReason) -> bool {
        let was_running = self.end.is_none();
        if was_running {
            self.end = Some(reason);
        }
        was_running
    }

    pub(super) fn recovered(&self) -> RecoveredRequest {
        RecoveredRequest {
            request: Arc::clone(&self.request),
            output_token_ids: self.output.iter().map(|token| token.token_id).collect(),
            num_prompt_logprobs: self.prompt_logprobs.len(),
        }
    }

    /// Forgets what was sent, because a new egress pipeline must receive everything.
    pub(super) fn untell(&mut self) {
        self.told = Told::default();
    }

    /// Returns the news that was not sent to the egress pipeline yet. From now on it counts as
    /// sent.
    pub(super) fn tell(&mut self) -> EgressEntry {
        let entry = EgressEntry {
            introduction: (!self.told.introduced).then(|| Arc::clone(&self.request)),
            request: self.request.id,
            position: self.told.tokens,
            // A stop string may have made the output shorter than the part that was sent.
            tokens: self.output.get(self.told.tokens..).unwrap_or_default().into(),
            prompt_logprobs_start: self.told.prompt_logprobs,
            prompt_logprobs: self.prompt_logprobs[self.told.prompt_logprobs..].to_vec(),
            num_cached_tokens: self.num_cached_tokens,
            queue_time: self.queue_time,
            end: self.end.clone().filter(|_| !self.told.end),
        };
        self.told = Told {
            introduced: true,
            tokens: self.output.len(),
            prompt_logprobs: self.prompt_logprobs.len(),
            end: self.end.is_some(),
        };
        entry
    }
}
