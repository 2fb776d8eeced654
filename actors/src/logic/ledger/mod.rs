//! The ground state: the accepted requests and their committed tokens. Everything else that the
//! engine knows about a request is derived from this and can be rebuilt by replay.
//!
//! Every operation decides first, by the state alone, and records its decisions as events. A
//! rejected operation records none. The state is the fold of the events. Observers read the same
//! events. The cursors of the egress shards are not part of the state, because a new shard receives
//! all output again.

mod commit;
mod egress;
mod entry;
mod event;
mod failure;
mod fold;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, sync::Arc};

pub use commit::{CommitVerdict, Reported};
pub use egress::{BatchId, EgressBatch, EgressEntry};
pub use entry::{CommitTiming, Entry};
pub use event::{End, LedgerEvent, LedgerObserver};
pub use failure::Restriction;
pub use fold::GroundState;

use self::egress::Shard;
use super::{
    admission::{AdmissionLimits, Tenant},
    request::{
        EngineRequest, FinishReason,
        ids::{EngineIndex, Epoch, Micros, RequestId},
    },
    scheduler::RecoveredRequest,
};
use crate::error::RequestError;

/// The ledger of one system. `O` observes its events.
#[derive(Debug)]
pub struct Ledger<O = ()> {
    state: GroundState,
    shards: Vec<Shard>,
    observer: O,
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

impl<O: LedgerObserver> Ledger<O> {
    /// Returns an empty ledger.
    #[must_use]
    pub fn new(config: LedgerConfig, observer: O) -> Self {
        let shards = (0..config.num_shards.max(1)).map(|_| Shard::default()).collect();
        Self { state: GroundState::new(config), shards, observer }
    }

    /// Returns the ground state.
    #[must_use]
    pub fn state(&self) -> &GroundState {
        &self.state
    }

    /// Applies an event to the state and passes it to the observer.
    fn record(&mut self, event: &LedgerEvent) {
        self.state.apply(event);
        self.observer.observe(event, &self.state);
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
        requests.retain(|request| self.state.get(request.id).is_none());
        if requests.is_empty() {
            return Ok(requests);
        }
        self.state.check_acceptance(requests.iter().map(AsRef::as_ref), tenant, now)?;
        Ok(self.enter(requests, tenant, now))
    }

    /// Accepts requests that an earlier process has accepted, whatever the limits are now. Returns
    /// those that the ledger did not have.
    pub fn restore(
        &mut self,
        mut requests: Vec<Arc<EngineRequest>>,
        tenant: Option<Tenant>,
        now: Micros,
    ) -> Vec<Arc<EngineRequest>> {
        requests.retain(|request| self.state.get(request.id).is_none());
        match requests.is_empty() {
            true => requests,
            false => self.enter(requests, tenant, now),
        }
    }

    fn enter(
        &mut self,
        requests: Vec<Arc<EngineRequest>>,
        tenant: Option<Tenant>,
        now: Micros,
    ) -> Vec<Arc<EngineRequest>> {
        self.record(&LedgerEvent::Accepted { requests: requests.clone(), tenant, at: now });
        requests.iter().for_each(|request| self.mark_dirty(request.id));
        requests
    }

    /// Ends those of `requests` that still run, because a client left or a deadline passed. Returns
    /// the requests that it ended.
    pub fn finish(
        &mut self,
        requests: &[RequestId],
        reason: &FinishReason,
        now: Micros,
    ) -> Vec<RequestId> {
        let mut running = Vec::new();
        for &request in requests {
            let Some(entry) = self.state.get_live(request) else { continue };
            let (position, reason) = (entry.output().len(), reason.clone());
            self.record(&LedgerEvent::Ended { request, position, reason, at: now });
            self.mark_dirty(request);
            running.push(request);
        }
        running
    }

    /// Ends a request whose output the detokenizer found complete after `position` tokens. Later
    /// tokens are dropped. Returns whether the request was still running. If so, the scheduler must
    /// stop it.
    pub fn end_at(
        &mut self,
        request: RequestId,
        position: usize,
        reason: FinishReason,
        now: Micros,
    ) -> bool {
        let Some(entry) = self.state.get(request) else { return false };
        let was_running = entry.end().is_none();
        self.record(&match was_running {
            true => LedgerEvent::Ended { request, position, reason, at: now },
            false => LedgerEvent::EndMoved { request, position, reason },
        });
        self.shard_knows_end(request);
        was_running
    }

    /// Records that the logits of a probe were not finite. Returns whether this convicts the model.
    pub fn probe_failed(&mut self) -> bool {
        let convicts =
            self.state.model_state() == crate::logic::recovery::sanity::ModelState::Suspect;
        if convicts {
            self.record(&LedgerEvent::ModelConvicted);
        }
        convicts
    }

    /// Gives requests to an engine. They continue there when it begins its next epoch, or, if they
    /// are new, when it is sent them.
    pub fn assign(&mut self, requests: Vec<RequestId>, engine: EngineIndex) {
        let has_changed =
            |id: &RequestId| self.state.get(*id).is_some_and(|entry| entry.engine() != engine);
        let requests: Vec<_> = requests.into_iter().filter(has_changed).collect();
        if !requests.is_empty() {
            self.record(&LedgerEvent::Assigned { requests, engine });
        }
    }

    /// Begins a new epoch of an engine. Returns it and the requests that the new core must
    /// continue, in order of acceptance.
    pub fn begin_epoch(
        &mut self,
        engine: EngineIndex,
        why: impl Into<Cow<'static, str>>,
    ) -> (Epoch, Vec<RecoveredRequest>) {
        let epoch = self.state.epoch().next();
        self.record(&LedgerEvent::EpochBegan { engine, epoch, why: why.into() });
        (epoch, self.state.live_of(engine).map(Entry::recovered).collect())
    }
}
