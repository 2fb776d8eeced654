//! The ground state: what was accepted, and which tokens were committed. Everything else that the
//! engine knows of a request is derived from this and can be rebuilt by replay.
//!
//! Every operation validates first and applies second, so that a refusal changes nothing.

mod egress;
mod entry;
#[cfg(test)]
mod tests;

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc, time::Duration};

pub use egress::{BatchId, EgressBatch, EgressEntry};
pub use entry::{CommitTiming, Entry};

use self::egress::Shard;
use super::{
    ids::{Epoch, Micros, RequestId},
    outputs::Commit,
    request::{EngineRequest, FinishReason},
    scheduler::{FirstScheduled, RecoveredRequest},
};
use crate::{
    error::RequestError,
    fault::{Bug, planted},
};

/// The ledger of one engine.
#[derive(Debug)]
pub struct Ledger {
    epoch: Epoch,
    entries: BTreeMap<RequestId, Entry>,
    shards: Vec<Shard>,
    max_requests: usize,
}

/// What became of a [`Commit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitVerdict {
    /// It is permanent now.
    Accepted(CommitTiming),
    /// It comes from a core that was replaced.
    StaleEpoch,
    /// It was seen before.
    Repeated,
    /// One before it is missing.
    Gap,
    /// The request has ended.
    Ended,
    /// The request is not here, or no longer.
    Unknown,
}

impl Ledger {
    /// An empty ledger that holds at most `max_requests` and feeds `num_shards` egress pipelines.
    #[must_use]
    pub fn new(max_requests: usize, num_shards: usize) -> Self {
        let shards = (0..num_shards.max(1)).map(|_| Shard::default()).collect();
        Self { epoch: Epoch(0), entries: BTreeMap::new(), shards, max_requests }
    }

    /// The current epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Requests accepted whose end was not delivered yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no request is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What is known of a request.
    #[must_use]
    pub fn get(&self, request: RequestId) -> Option<&Entry> {
        self.entries.get(&request)
    }

    /// Accepts all of `requests` or none: the choices of one prompt belong together. Those that are
    /// here already are accepted again without effect. Returns the new ones.
    ///
    /// # Errors
    /// [`RequestError::QueueFull`] when they would exceed the limit.
    pub fn accept(
        &mut self,
        mut requests: Vec<Arc<EngineRequest>>,
    ) -> Result<Vec<Arc<EngineRequest>>, RequestError> {
        requests.retain(|request| !self.entries.contains_key(&request.id));
        if self.entries.len() + requests.len() > self.max_requests {
            let (what, limit) = ("max_num_requests", self.max_requests as u64);
            let retry_after = Duration::from_secs(1);
            return Err(RequestError::QueueFull { what, limit, retry_after });
        }
        for request in &requests {
            self.entries.insert(request.id, Entry::new(Arc::clone(request)));
            self.mark_dirty(request.id);
        }
        Ok(requests)
    }

    /// Makes new tokens permanent, if they come from the current core and follow what is there.
    pub fn commit(&mut self, epoch: Epoch, commit: &Commit, now: Micros) -> CommitVerdict {
        if epoch != self.epoch && !planted(Bug::NoEpochFence) {
            return CommitVerdict::StaleEpoch;
        }
        let Some(entry) = self.entries.get_mut(&commit.request) else {
            return CommitVerdict::Unknown;
        };
        if entry.end().is_some() {
            return CommitVerdict::Ended;
        }
        match commit.position.cmp(&entry.output().len()) {
            Ordering::Less if !planted(Bug::NoDedup) => return CommitVerdict::Repeated,
            Ordering::Greater if !planted(Bug::NoGapCheck) => return CommitVerdict::Gap,
            _ => {}
        }
        let timing = entry.apply(commit, now);
        self.mark_dirty(commit.request);
        CommitVerdict::Accepted(timing)
    }

    /// Notes what is known since a request left the queue for the first time.
    pub fn note_scheduled(&mut self, first: &FirstScheduled) {
        if let Some(entry) = self.entries.get_mut(&first.request) {
            entry.note_cached_tokens(first.num_cached_tokens);
        }
    }

    /// The text side found the output complete after `position` tokens: what follows is dropped.
    /// Returns whether the scheduler must be told to stop it.
    pub fn end_at(&mut self, request: RequestId, position: usize, reason: FinishReason) -> bool {
        self.entries.get_mut(&request).is_some_and(|entry| entry.end_at(position, reason))
    }

    /// Ends a request from outside: the client left, or its deadline passed. Returns whether it was
    /// still running.
    pub fn finish(&mut self, request: RequestId, reason: FinishReason) -> bool {
        let ended = self.entries.get_mut(&request).is_some_and(|entry| entry.finish(reason));
        if ended {
            self.mark_dirty(request);
        }
        ended
    }

    /// Begins a new epoch and tells what the new core must take up, by acceptance.
    pub fn begin_epoch(&mut self) -> (Epoch, Vec<RecoveredRequest>) {
        self.epoch = self.epoch.next();
        let live = self.entries.values().filter(|entry| entry.end().is_none());
        (self.epoch, live.map(Entry::recovered).collect())
    }

    /// Ids of all open requests.
    pub fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.entries.keys().copied()
    }
}
