//! The ledger's side of the egress pipeline. Requests are spread over egress shards, each a
//! detokenizer and a streamer. A shard has one batch at a time. While it works, the ledger keeps
//! its news as cursors and not as messages, so a slow shard costs no memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Entry, Ledger, LedgerEvent, LedgerObserver};
use crate::logic::{
    planted::{Bug, planted},
    request::{
        EngineRequest, FinishReason,
        ids::{Micros, RequestId},
        outputs::{Produced, TokenLogprobs},
    },
};

/// Number of tokens after which a batch ends. It still includes all news of its last request. The
/// limit lets a shard that receives everything again confirm each batch in time, however much there
/// is.
const BATCH_SIZE: usize = 8_192;

/// Names one batch of the egress pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct BatchId {
    /// The shard.
    pub shard: usize,
    /// The generation of the shard that the batch is for: 1 or more.
    pub generation: u64,
    /// Number of earlier batches in this generation.
    pub number: u64,
}

/// News of one shard's requests.
#[derive(Debug, Clone, PartialEq)]
pub struct EgressBatch {
    /// The name of the batch.
    pub id: BatchId,
    /// News, in order of requests.
    pub entries: Vec<EgressEntry>,
}

/// News of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct EgressEntry {
    /// The request itself, if the shard receives its first news of it.
    pub introduction: Option<Arc<EngineRequest>>,
    /// The request.
    pub request: RequestId,
    /// Number of output tokens before the new ones.
    pub position: usize,
    /// New committed tokens, or the result of a pooling request.
    pub produced: Produced,
    /// Number of rows of prompt log-probabilities that were sent before.
    pub prompt_logprobs_start: usize,
    /// Log-probabilities of further prompt tokens.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Prompt tokens that came from the prefix cache, once known.
    pub num_cached_tokens: Option<usize>,
    /// Microseconds from the request's arrival until it was first scheduled, once known.
    pub queue_time: Option<Micros>,
    /// The reason why no more tokens follow, if none do.
    pub end: Option<FinishReason>,
}

/// One egress shard as the ledger sees it.
#[derive(Debug, Default)]
pub(super) struct Shard {
    generation: u64,
    /// Batches sent in this generation.
    num_batches: u64,
    /// The time when the last batch was sent, if it is not confirmed.
    in_flight_since: Option<Micros>,
    dirty: BTreeSet<RequestId>,
    told: BTreeMap<RequestId, Told>,
}

/// The part of an entry that was sent to its shard.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    introduced: bool,
    tokens: usize,
    prompt_logprobs: usize,
    end: bool,
}

impl Told {
    /// Returns the news that was not sent to the shard yet. From now on it counts as sent.
    fn tell(&mut self, entry: &Entry) -> EgressEntry {
        let told = *self;
        // A stop string may have made the output shorter than the part that was sent.
        let new = entry.output().get(told.tokens..).unwrap_or_default();
        *self = Self {
            introduced: true,
            tokens: entry.output().len(),
            prompt_logprobs: entry.prompt_logprobs().len(),
            end: entry.end().is_some(),
        };
        EgressEntry {
            introduction: (!told.introduced).then(|| Arc::clone(entry.request())),
            request: entry.request().id,
            position: told.tokens,
            produced: match entry.pooled().filter(|_| !told.end) {
                Some(pooled) => Produced::Pooled(pooled.clone()),
                None => Produced::Tokens(new.into()),
            },
            prompt_logprobs_start: told.prompt_logprobs,
            prompt_logprobs: entry.prompt_logprobs()[told.prompt_logprobs..].to_vec(),
            num_cached_tokens: entry.num_cached_tokens(),
            queue_time: entry.queue_time(),
            end: entry.end().cloned().filter(|_| !told.end),
        }
    }
}

impl<O: LedgerObserver> Ledger<O> {
    /// Returns the shard that serves a request.
    #[must_use]
    pub fn shard_of(&self, request: RequestId) -> usize {
        (request.0 % self.shards.len() as u64) as usize
    }

    pub(super) fn mark_dirty(&mut self, request: RequestId) {
        let shard = self.shard_of(request);
        self.shards[shard].dirty.insert(request);
    }

    /// Records that the shard of a request found its end itself.
    pub(super) fn shard_knows_end(&mut self, request: RequestId) {
        let shard = self.shard_of(request);
        self.shards[shard].told.entry(request).or_default().end = true;
    }

    /// Begins a new generation of a shard, because its detokenizer or streamer is new. The shard
    /// will receive everything again. Returns the new generation, or `None` if the shard does not
    /// exist.
    pub fn attach(&mut self, shard: usize) -> Option<u64> {
        let requests = self.state.requests().filter(|&id| self.shard_of(id) == shard).collect();
        let state = self.shards.get_mut(shard)?;
        state.generation += 1;
        state.num_batches = 0;
        state.in_flight_since = None;
        state.dirty = requests;
        if !planted(Bug::SkipReplay) {
            state.told.clear();
        }
        Some(state.generation)
    }

    /// Returns the next batch for a shard, if the shard is idle and has news.
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
            let Some(entry) = self.state.get(request) else { continue };
            let news = state.told.entry(request).or_default().tell(entry);
            size += 1 + news.produced.size() + news.prompt_logprobs.len();
            entries.push(news);
        }
        Some(EgressBatch { id, entries })
    }

    /// Returns whether this batch was sent and is not confirmed.
    #[must_use]
    pub fn awaits(&self, batch: BatchId) -> bool {
        self.shards.get(batch.shard).is_some_and(|state| {
            let is_last =
                (state.generation, state.num_batches) == (batch.generation, batch.number + 1);
            is_last && state.in_flight_since.is_some()
        })
    }

    /// Records that a shard has delivered its batch to the clients, including the ends of the
    /// requests `ended`. Returns those of them that still ran. Returns `None`, without effect,
    /// unless the shard's unconfirmed batch is `batch`.
    pub fn delivered(
        &mut self,
        batch: BatchId,
        ended: &[RequestId],
        now: Micros,
    ) -> Option<Vec<RequestId>> {
        if !self.awaits(batch) {
            return None;
        }
        // The detokenizer's report of a stop string may be late or lost.
        let running = self.finish(ended, &FinishReason::Stop(None), now);
        let state = self.shards.get_mut(batch.shard)?;
        state.in_flight_since = None;
        for request in ended {
            state.dirty.remove(request);
            state.told.remove(request);
        }
        if !planted(Bug::NeverForget) {
            ended.iter().for_each(|&request| self.record(&LedgerEvent::Forgotten { request }));
        }
        Some(running)
    }

    /// Sends everything again to the shards whose unconfirmed batch was sent at `before` or
    /// earlier, because the batch or its confirmation was lost. Returns these shards.
    pub fn repair(&mut self, before: Micros) -> Vec<usize> {
        let overdue: Vec<_> = self.overdue(before).collect();
        for &shard in &overdue {
            self.attach(shard);
        }
        overdue
    }

    pub(super) fn overdue(&self, before: Micros) -> impl Iterator<Item = usize> + '_ {
        let late = move |shard: &Shard| shard.in_flight_since.is_some_and(|since| since <= before);
        self.shards.iter().enumerate().filter(move |(_, shard)| late(shard)).map(|(i, _)| i)
    }

    /// Returns the number of egress shards.
    #[must_use]
    pub fn num_shards(&self) -> usize {
        self.shards.len()
    }
}
