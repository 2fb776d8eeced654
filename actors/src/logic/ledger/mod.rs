//! The ground state: the accepted requests and their committed tokens. Everything else that the
//! engine knows about a request is derived from this and can be rebuilt by replay.
//!
//! Every operation validates first and applies second, so a rejected operation changes nothing.

mod egress;
mod entry;
mod failure;
#[cfg(test)]
mod tests;

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

pub use egress::{BatchId, EgressBatch, EgressEntry};
pub use entry::{CommitTiming, Entry};
pub use failure::Restriction;

use self::egress::Shard;
use super::{
    admission::{Admission, AdmissionCost, AdmissionLimits, Tenant},
    failure::Failure,
    ids::{Epoch, Micros, RequestId},
    outputs::Commit,
    planted::{Bug, planted},
    poison::Ward,
    quarantine::{Fingerprint, Quarantine},
    request::{EngineRequest, FinishReason},
    sanity::{ModelState, Sanity},
    scheduler::{FirstScheduled, RecoveredRequest},
    step_budget::StepBudget,
};
use crate::error::RequestError;

/// The ledger of one engine.
#[derive(Debug)]
pub struct Ledger {
    epoch: Epoch,
    entries: BTreeMap<RequestId, Entry>,
    shards: Vec<Shard>,
    admission: Admission,
    ward: Ward,
    quarantine: Quarantine,
    step_budget: StepBudget,
    sanity: Sanity,
}

/// The settings of a ledger.
#[derive(Debug, Clone, Copy)]
pub struct LedgerConfig {
    /// The limits on accepted requests.
    pub limits: AdmissionLimits,
    /// Number of egress shards, at least 1.
    pub num_shards: usize,
    /// Largest number of tokens in a step.
    pub max_num_batched_tokens: usize,
}

/// The result of a [`Commit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitVerdict {
    /// The commit is permanent now.
    Accepted(CommitTiming),
    /// The commit comes from a core that was replaced.
    StaleEpoch,
    /// The ledger has seen the commit before.
    Repeated,
    /// An earlier commit is missing.
    Gap,
    /// The request has ended.
    Ended,
    /// The ledger does not have the request, or has it no longer.
    Unknown,
}

impl Ledger {
    /// Returns an empty ledger.
    #[must_use]
    pub fn new(config: LedgerConfig) -> Self {
        Self {
            epoch: Epoch(0),
            entries: BTreeMap::new(),
            shards: (0..config.num_shards.max(1)).map(|_| Shard::default()).collect(),
            admission: Admission::new(config.limits),
            ward: Ward::new(),
            quarantine: Quarantine::new(),
            step_budget: StepBudget::new(config.max_num_batched_tokens),
            sanity: Sanity::default(),
        }
    }

    /// Returns the current epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the number of open requests: accepted ones whose end was not delivered yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the reservations of open requests.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Returns whether no request is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the entry of a request.
    #[must_use]
    pub fn get(&self, request: RequestId) -> Option<&Entry> {
        self.entries.get(&request)
    }

    /// Returns the number of prompt and output tokens of a request that has not ended.
    #[must_use]
    pub fn num_live_tokens(&self, request: RequestId) -> Option<usize> {
        let entry = self.get(request).filter(|entry| entry.end().is_none())?;
        Some(entry.request().num_prompt_tokens() + entry.output().len())
    }

    /// Accepts all of `requests` or none, because the choices of one prompt belong together.
    /// Requests that the ledger already has are accepted again without effect. Returns the new
    /// requests.
    ///
    /// # Errors
    /// [`RequestError::Quarantined`] if one of them made the model fail before.
    /// [`RequestError::QuotaExceeded`] and [`RequestError::QueueFull`] if they would exceed a
    /// limit.
    pub fn accept(
        &mut self,
        mut requests: Vec<Arc<EngineRequest>>,
        tenant: Option<Tenant>,
        now: Micros,
    ) -> Result<Vec<Arc<EngineRequest>>, RequestError> {
        requests.retain(|request| !self.entries.contains_key(&request.id));
        if !self.quarantine.is_empty() {
            for request in &requests {
                self.quarantine.check(Fingerprint::of(request), now)?;
            }
        }
        let costs: Vec<_> = requests.iter().map(|request| (request.id, cost(request))).collect();
        self.admission.admit(now, tenant, &costs)?;
        for request in &requests {
            self.entries.insert(request.id, Entry::new(Arc::clone(request)));
            self.mark_dirty(request.id);
        }
        Ok(requests)
    }

    /// Checks whether `num_requests` requests would be accepted now, regardless of their content.
    ///
    /// # Errors
    /// As [`Ledger::accept`].
    pub fn check_room(
        &mut self,
        num_requests: usize,
        tenant: Option<Tenant>,
        now: Micros,
    ) -> Result<(), RequestError> {
        self.admission.check(now, tenant, num_requests)
    }

    /// Makes new tokens permanent, if they come from the current core and follow the committed
    /// ones.
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
        if commit.finish == Some(FinishReason::Error(Failure::NumericalGarbage)) {
            self.sanity.failed(Fingerprint::of(entry.request()));
        } else if !commit.tokens.is_empty() {
            self.sanity.succeeded();
        }
        self.ward.clear(commit.request);
        self.mark_dirty(commit.request);
        self.note_end(commit.request, now);
        CommitVerdict::Accepted(timing)
    }

    /// Records that a request has left the queue for the first time.
    pub fn note_scheduled(&mut self, first: &FirstScheduled) {
        if let Some(entry) = self.entries.get_mut(&first.request) {
            entry.note_scheduled(first);
        }
        self.admission.scheduled(first.request);
    }

    /// Ends a request whose output the detokenizer found complete after `position` tokens. Later
    /// tokens are dropped. Returns whether the request was still running, so that the scheduler
    /// must stop it.
    pub fn end_at(
        &mut self,
        request: RequestId,
        position: usize,
        reason: FinishReason,
        now: Micros,
    ) -> bool {
        let entry = self.entries.get_mut(&request);
        let was_running = entry.is_some_and(|entry| entry.end_at(position, reason));
        self.note_end(request, now);
        was_running
    }

    /// Ends a request from outside, because the client left or the deadline passed. Returns whether
    /// it was still running.
    pub fn finish(&mut self, request: RequestId, reason: FinishReason, now: Micros) -> bool {
        let ended = self.entries.get_mut(&request).is_some_and(|entry| entry.finish(reason));
        if ended {
            self.mark_dirty(request);
            self.note_end(request, now);
        }
        ended
    }

    /// Releases the reservations of a request, if it has ended.
    fn note_end(&mut self, request: RequestId, now: Micros) {
        if let Some(entry) = self.entries.get(&request).filter(|entry| entry.end().is_some()) {
            if !planted(Bug::LeakQuota) {
                self.admission.ended(now, request, entry.output().len());
            }
            self.ward.clear(request);
        }
    }

    /// Returns whether the model computes finite numbers, judged by the ends of requests.
    #[must_use]
    pub fn model_state(&self) -> ModelState {
        self.sanity.state()
    }

    /// Records that the logits of a probe were not finite. Returns whether this convicts the model.
    pub fn probe_failed(&mut self) -> bool {
        self.sanity.probe_failed()
    }

    /// Begins a new epoch. Returns it and the requests that the new core must continue, in order of
    /// acceptance.
    pub fn begin_epoch(&mut self) -> (Epoch, Vec<RecoveredRequest>) {
        self.epoch = self.epoch.next();
        let live = self.entries.values().filter(|entry| entry.end().is_none());
        (self.epoch, live.map(Entry::recovered).collect())
    }

    /// Returns the ids of all open requests.
    pub fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.entries.keys().copied()
    }
}

fn cost(request: &EngineRequest) -> AdmissionCost {
    let max_tokens = request.params.max_tokens as usize;
    AdmissionCost { prompt_tokens: request.num_prompt_tokens(), max_tokens }
}
