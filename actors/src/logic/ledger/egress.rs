//! The ledger's side of the way out. Requests are spread over egress shards (a detokenizer and a
//! streamer each). A shard has one batch at a time; while it works, news gathers here as cursors,
//! not as messages, so a slow shard costs no memory.

use std::{collections::BTreeSet, sync::Arc};

use super::Ledger;
use crate::{
    fault::{Bug, planted},
    logic::{
        ids::{Micros, RequestId},
        outputs::{SampledTokens, TokenLogprobs},
        request::{EngineRequest, FinishReason},
    },
};

/// Tokens after which a batch ends with the request that it is at. A shard that is told everything
/// again confirms in time, however much that is.
const BATCH_SIZE: usize = 8_192;

/// Names one batch on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct BatchId {
    /// The shard.
    pub shard: usize,
    /// The incarnation of the shard that it is meant for: 1 or more.
    pub generation: u64,
    /// Batches before it in this generation.
    pub number: u64,
}

/// News of one shard's requests.
#[derive(Debug, Clone, PartialEq)]
pub struct EgressBatch {
    /// Its name.
    pub id: BatchId,
    /// News, by request.
    pub entries: Vec<EgressEntry>,
}

/// News of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct EgressEntry {
    /// There when the shard hears of the request for the first time.
    pub introduction: Option<Arc<EngineRequest>>,
    /// The request.
    pub request: RequestId,
    /// Index in the output of the first of `tokens`.
    pub position: usize,
    /// Committed tokens.
    pub tokens: SampledTokens,
    /// Rows of prompt log-probabilities told before.
    pub prompt_logprobs_start: usize,
    /// Log-probabilities of further prompt tokens.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Prompt tokens that came from the prefix cache, once known.
    pub num_cached_tokens: Option<usize>,
    /// Microseconds from its arrival until it was first scheduled, once known.
    pub queue_time: Option<Micros>,
    /// Why no more tokens follow.
    pub end: Option<FinishReason>,
}

/// One egress shard as the ledger sees it.
#[derive(Debug, Default)]
pub(super) struct Shard {
    generation: u64,
    /// Batches sent in this generation.
    num_batches: u64,
    /// Since when the last of them is out.
    in_flight_since: Option<Micros>,
    dirty: BTreeSet<RequestId>,
}

impl Ledger {
    /// The shard that serves a request.
    #[must_use]
    pub fn shard_of(&self, request: RequestId) -> usize {
        (request.0 % self.shards.len() as u64) as usize
    }

    pub(super) fn mark_dirty(&mut self, request: RequestId) {
        let shard = self.shard_of(request);
        self.shards[shard].dirty.insert(request);
    }

    /// A detokenizer or streamer of this shard is new: it will be told everything again. Returns
    /// the shard's new generation, `None` for a shard that does not exist.
    pub fn attach(&mut self, shard: usize) -> Option<u64> {
        let requests: Vec<_> =
            self.entries.keys().copied().filter(|&id| self.shard_of(id) == shard).collect();
        let state = self.shards.get_mut(shard)?;
        state.generation += 1;
        state.num_batches = 0;
        state.in_flight_since = None;
        state.dirty = requests.iter().copied().collect();
        let generation = state.generation;
        for request in requests {
            if planted(Bug::SkipReplay) {
                break;
            }
            if let Some(entry) = self.entries.get_mut(&request) {
                entry.untell();
            }
        }
        Some(generation)
    }

    /// The next batch for a shard, if it is idle and there is news.
    pub fn take_batch(&mut self, shard: usize, now: Micros) -> Option<EgressBatch> {
        let state = self.shards.get_mut(shard)?;
        if state.generation == 0 || state.in_flight_since.is_some() || state.dirty.is_empty() {
            return None;
        }
        state.in_flight_since = Some(now);
        let id = BatchId { shard, generation: state.generation, number: state.num_batches };
        state.num_batches += 1;
        let (mut entries, mut size) = (Vec::new(), 0);
        while size < BATCH_SIZE
            && let Some(request) = state.dirty.pop_first()
        {
            let Some(entry) = self.entries.get_mut(&request) else { continue };
            let told = entry.tell();
            size += 1 + told.tokens.len() + told.prompt_logprobs.len();
            entries.push(told);
        }
        Some(EgressBatch { id, entries })
    }

    /// Whether this batch is out.
    #[must_use]
    pub fn awaits(&self, batch: BatchId) -> bool {
        self.shards.get(batch.shard).is_some_and(|state| {
            let is_last =
                (state.generation, state.num_batches) == (batch.generation, batch.number + 1);
            is_last && state.in_flight_since.is_some()
        })
    }

    /// A shard has handed its batch to the clients; the ends of `ended` reached theirs. Ignored
    /// unless it is the batch that is out.
    pub fn delivered(&mut self, batch: BatchId, ended: &[RequestId]) -> bool {
        let awaits = self.awaits(batch);
        let Some(state) = self.shards.get_mut(batch.shard).filter(|_| awaits) else { return false };
        state.in_flight_since = None;
        for request in ended {
            state.dirty.remove(request);
            if !planted(Bug::NeverForget) {
                self.entries.remove(request);
            }
        }
        true
    }

    /// Shards whose batch has been out since `before` or earlier: it, or its answer, is lost.
    pub fn overdue(&self, before: Micros) -> impl Iterator<Item = usize> + '_ {
        let late = move |shard: &Shard| shard.in_flight_since.is_some_and(|since| since <= before);
        self.shards.iter().enumerate().filter(move |(_, shard)| late(shard)).map(|(i, _)| i)
    }

    /// Number of egress shards.
    #[must_use]
    pub fn num_shards(&self) -> usize {
        self.shards.len()
    }
}
