//! The fold of the ledger's events. [`GroundState::apply`] is the only way to change the state, so
//! a state is always what a replay of its events gives.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, LedgerConfig, LedgerEvent, Restriction};
use crate::{
    error::RequestError,
    logic::{
        admission::{Admission, AdmissionCost, Tenant},
        planted::{Bug, planted},
        recovery::{
            poison::Ward,
            quarantine::{Fingerprint, Quarantine},
            sanity::{ModelState, Sanity},
        },
        request::{
            EngineRequest, FinishReason,
            failure::Failure,
            ids::{EngineIndex, Epoch, Micros, RequestId},
            outputs::Commit,
        },
        scheduler::step_budget::StepBudget,
    },
};

/// The accepted requests with their committed tokens, and the facts that decide on further ones.
#[derive(Debug, Clone, PartialEq)]
pub struct GroundState {
    /// The last epoch of any engine.
    epoch: Epoch,
    /// The current epoch of each engine.
    epochs: BTreeMap<EngineIndex, Epoch>,
    entries: BTreeMap<RequestId, Entry>,
    admission: Admission,
    ward: Ward,
    quarantine: Quarantine,
    step_budget: StepBudget,
    sanity: Sanity,
}

impl GroundState {
    /// Returns the state before the first event.
    #[must_use]
    pub fn new(config: LedgerConfig) -> Self {
        Self {
            epoch: Epoch(0),
            epochs: BTreeMap::new(),
            entries: BTreeMap::new(),
            admission: Admission::new(config.limits),
            ward: Ward::new(),
            quarantine: Quarantine::new(),
            step_budget: StepBudget::new(config.max_num_batched_tokens),
            sanity: Sanity::default(),
        }
    }

    /// Takes an event into the state.
    pub fn apply(&mut self, event: &LedgerEvent) {
        match event {
            LedgerEvent::EpochBegan { engine, epoch, .. } => {
                self.epoch = *epoch;
                self.epochs.insert(*engine, *epoch);
            }
            LedgerEvent::Accepted { requests, tenant, at } => {
                let costs: Vec<_> = requests.iter().map(|request| cost(request)).collect();
                self.admission.reserve(*at, *tenant, &costs);
                let entries = requests.iter().map(|request| (request.id, Entry::new(request)));
                self.entries.extend(entries);
            }
            LedgerEvent::Assigned { requests, engine } => {
                for request in requests {
                    if let Some(entry) = self.entries.get_mut(request) {
                        entry.assign(*engine);
                    }
                }
            }
            LedgerEvent::Scheduled(first) => {
                if let Some(entry) = self.entries.get_mut(&first.request) {
                    entry.schedule(first);
                }
                self.admission.scheduled(first.request);
            }
            LedgerEvent::StepSucceeded => {
                self.ward.step_succeeded();
                self.step_budget.step_succeeded();
            }
            LedgerEvent::Committed { commit, at, .. } => self.commit(commit, *at),
            LedgerEvent::Ended { request, position, reason, at } => {
                self.end(*request, *position, reason, *at);
            }
            LedgerEvent::EndMoved { request, position, reason } => {
                if let Some(entry) = self.entries.get_mut(request) {
                    entry.end_at(*position, reason);
                }
            }
            LedgerEvent::OutOfMemory => {
                self.step_budget.out_of_memory();
            }
            LedgerEvent::StepFailed { requests, is_committed } => {
                self.ward.step_failed(requests, self.live().count(), *is_committed);
            }
            LedgerEvent::ModelConvicted => {
                self.sanity.probe_failed();
            }
            LedgerEvent::Forgotten { request } => {
                self.entries.remove(request);
            }
        }
    }

    fn commit(&mut self, commit: &Commit, at: Micros) {
        let Some(entry) = self.entries.get_mut(&commit.request) else { return };
        entry.commit(commit, at);
        if commit.finish == Some(FinishReason::Error(Failure::NumericalGarbage)) {
            self.sanity.failed(Fingerprint::of(entry.request()));
        } else if !commit.produced.is_empty() {
            self.sanity.succeeded();
        }
        self.ward.clear(commit.request);
        if commit.finish.is_some() && !planted(Bug::LeakQuota) {
            self.admission.ended(at, commit.request, entry.output().len());
        }
    }

    fn end(&mut self, request: RequestId, position: usize, reason: &FinishReason, at: Micros) {
        let Some(entry) = self.entries.get_mut(&request) else { return };
        entry.end_at(position, reason);
        if *reason == FinishReason::Error(Failure::Quarantined) {
            self.quarantine.convict(Fingerprint::of(entry.request()), at);
        }
        self.ward.clear(request);
        if !planted(Bug::LeakQuota) {
            self.admission.ended(at, request, entry.output().len());
        }
    }

    /// Returns the last epoch that began. It is the current one of its engine.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the current epoch of an engine.
    #[must_use]
    pub fn epoch_of(&self, engine: EngineIndex) -> Epoch {
        self.epochs.get(&engine).copied().unwrap_or_default()
    }

    /// Returns the engine whose current epoch this is.
    #[must_use]
    pub fn engine_of(&self, epoch: Epoch) -> Option<EngineIndex> {
        self.epochs.iter().find(|(_, current)| **current == epoch).map(|(engine, _)| *engine)
    }

    /// Returns the number of live requests of an engine.
    #[must_use]
    pub fn num_live_of(&self, engine: EngineIndex) -> usize {
        self.live_of(engine).count()
    }

    /// Returns the live requests of an engine, in order of acceptance.
    pub fn live_of(&self, engine: EngineIndex) -> impl Iterator<Item = &Entry> + '_ {
        self.live().filter(move |entry| entry.engine() == engine)
    }

    /// Returns the live requests of an engine that another one may have had before, and for which
    /// it has committed nothing since.
    #[must_use]
    pub fn newcomers(&self, engine: EngineIndex) -> BTreeSet<RequestId> {
        let newcomers = self.live_of(engine).filter(|entry| entry.is_newcomer());
        newcomers.map(|entry| entry.request().id).collect()
    }

    /// Returns the number of open requests: accepted ones whose end was not delivered yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
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

    /// Returns the ids of all open requests, in order of acceptance.
    pub fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.entries.keys().copied()
    }

    /// Returns the entries of the requests that have not ended, in order of acceptance.
    pub fn live(&self) -> impl Iterator<Item = &Entry> + '_ {
        self.entries.values().filter(|entry| entry.end().is_none())
    }

    /// Returns the entry of a request that has not ended.
    #[must_use]
    pub fn get_live(&self, request: RequestId) -> Option<&Entry> {
        self.get(request).filter(|entry| entry.end().is_none())
    }

    /// Returns the reservations of open requests.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Returns the current limits on an engine's scheduler. Only suspects run in an engine that has
    /// one. A step without suspects cannot be their fault, so other engines run all requests.
    #[must_use]
    pub fn restriction(&self, engine: EngineIndex) -> Restriction {
        let has_suspect =
            || self.live_of(engine).any(|entry| self.ward.suspects(entry.request().id));
        let cohort = self.ward.cohort().filter(|_| has_suspect()).cloned();
        Restriction { cohort, token_budget: self.step_budget.tokens() }
    }

    /// Returns whether the model computes finite numbers, judged by the ends of requests.
    #[must_use]
    pub fn model_state(&self) -> ModelState {
        self.sanity.state()
    }

    /// Checks whether `num_requests` requests would be accepted now, regardless of their content.
    ///
    /// # Errors
    /// [`RequestError::QuotaExceeded`] and [`RequestError::QueueFull`] if they would exceed a
    /// limit.
    pub fn check_room(
        &self,
        num_requests: usize,
        tenant: Option<Tenant>,
        now: Micros,
    ) -> Result<(), RequestError> {
        self.admission.check(now, tenant, num_requests)
    }

    /// Checks whether these new requests may be accepted.
    pub(super) fn check_acceptance<'a>(
        &self,
        requests: impl Iterator<Item = &'a EngineRequest> + Clone,
        tenant: Option<Tenant>,
        now: Micros,
    ) -> Result<(), RequestError> {
        if !self.quarantine.is_empty() {
            for request in requests.clone() {
                self.quarantine.check(Fingerprint::of(request), now)?;
            }
        }
        let costs: Vec<_> = requests.map(cost).collect();
        self.admission.check_costs(now, tenant, &costs)
    }

    /// Returns whether the next step can be smaller than the last one.
    pub(super) fn can_shrink_step(&self) -> bool {
        self.step_budget.tokens() > 1
    }

    /// Returns the requests that a failure of the step `batch` convicts.
    pub(super) fn convicts(&self, batch: &[RequestId], is_committed: bool) -> Vec<RequestId> {
        let convicted = self.ward.convicts(batch, self.live().count(), is_committed);
        convicted.into_iter().collect()
    }
}

fn cost(request: &EngineRequest) -> (RequestId, AdmissionCost) {
    let max_tokens = request.max_tokens() as usize;
    let cost = AdmissionCost { prompt_tokens: request.num_input_tokens(), max_tokens };
    (request.id, cost)
}
