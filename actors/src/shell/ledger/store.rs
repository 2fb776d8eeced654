//! The place where the ledger lives. Only the ledger actor changes it. All other actors ask the
//! questions here and never see the ledger itself, so it may live in another process.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use parking_lot::{Mutex, MutexGuard};

use super::observers::{Figures, Observers};
use crate::{
    error::RequestError,
    fault::Chaos,
    logic::{
        admission::Tenant,
        ledger::{Ledger, LedgerConfig},
        recovery::sanity::ModelState,
        request::{
            EngineRequest,
            ids::{EngineIndex, Epoch, Micros, RequestId},
        },
    },
    system::{engine_metrics::EngineMetrics, journal::Journal},
};

/// The ledger of one system. It outlives every actor.
#[derive(Debug)]
pub struct LedgerStore {
    ledger: Mutex<Ledger<Observers>>,
    figures: Arc<Figures>,
}

impl LedgerStore {
    /// Returns the store of an empty ledger.
    #[must_use]
    pub fn new(
        config: LedgerConfig,
        metrics: Arc<EngineMetrics>,
        journal: Option<Arc<Journal>>,
        chaos: Arc<Chaos>,
    ) -> Self {
        let figures = Arc::new(Figures::default());
        let observers = Observers { figures: Arc::clone(&figures), metrics, journal, chaos };
        Self { ledger: Mutex::new(Ledger::new(config, observers)), figures }
    }

    /// Returns the ledger, for its actor to change.
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger<Observers>> {
        self.ledger.lock()
    }

    /// Returns the current epoch. Waits for no lock.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch(self.figures.epoch.load(Ordering::Acquire))
    }

    /// Returns the number of requests whose end was not delivered yet. Waits for no lock.
    #[must_use]
    pub fn num_open(&self) -> usize {
        self.figures.num_open.load(Ordering::Acquire)
    }

    /// Returns whether the model computes finite numbers. Waits for no lock.
    #[must_use]
    pub fn model_state(&self) -> ModelState {
        self.figures.model_state()
    }

    /// Returns the ids of the requests whose end was not delivered yet.
    #[must_use]
    pub fn open_requests(&self) -> Vec<RequestId> {
        self.ledger.lock().state().requests().collect()
    }

    /// Returns whether a request is open.
    #[must_use]
    pub fn is_open(&self, request: RequestId) -> bool {
        self.ledger.lock().state().get(request).is_some()
    }

    /// Returns whether a request is open and has not ended.
    #[must_use]
    pub fn is_live(&self, request: RequestId) -> bool {
        self.ledger.lock().state().get_live(request).is_some()
    }

    /// Returns the number of prompt and output tokens of each request that has not ended.
    #[must_use]
    pub fn live_lengths(&self) -> BTreeMap<RequestId, usize> {
        let ledger = self.ledger.lock();
        ledger.state().live().map(|entry| (entry.request().id, entry.num_tokens())).collect()
    }

    /// Returns the number of committed output tokens of each open request.
    #[must_use]
    pub fn output_lengths(&self) -> BTreeMap<RequestId, usize> {
        let ledger = self.ledger.lock();
        let state = ledger.state();
        let length = |id| (id, state.get(id).map_or(0, |entry| entry.output().len()));
        state.requests().map(length).collect()
    }

    /// Returns the engines of open requests.
    pub(super) fn engines_of(&self, requests: &[RequestId]) -> BTreeMap<RequestId, EngineIndex> {
        let ledger = self.ledger.lock();
        let engine = |id: &RequestId| Some((*id, ledger.state().get(*id)?.engine()));
        requests.iter().filter_map(engine).collect()
    }

    /// Returns the current epoch of an engine, and its requests that may be the cause if work
    /// beside its steps has ended its process. `needs` says whether a request needs a result of it.
    #[must_use]
    pub fn suspects_beside(
        &self,
        engine: EngineIndex,
        needs: impl Fn(&EngineRequest) -> bool,
    ) -> (Epoch, Vec<RequestId>) {
        let ledger = self.ledger.lock();
        let state = ledger.state();
        (state.epoch_of(engine), state.suspects_beside(engine, needs))
    }

    /// Returns the number of requests of an engine that have not ended.
    #[must_use]
    pub fn num_live_of(&self, engine: EngineIndex) -> usize {
        self.ledger.lock().state().num_live_of(engine)
    }

    /// Returns the reservations of open requests.
    #[must_use]
    pub fn admission(&self) -> crate::logic::admission::Admission {
        self.ledger.lock().state().admission().clone()
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
        self.ledger.lock().state().check_room(num_requests, tenant, now)
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;
    use crate::system::SystemConfig;

    fn store() -> LedgerStore {
        let config = SystemConfig::new(crate::logic::scheduler::SchedulerConfig::default());
        let metrics = Arc::new(EngineMetrics::new(&config));
        LedgerStore::new(config.ledger(), metrics, None, Arc::default())
    }

    #[test]
    fn questions_of_health_probes_wait_for_no_lock() {
        let store = Arc::new(store());
        let mut ledger = store.lock();
        let (epoch, _) = ledger.begin_epoch(EngineIndex(0), "the test begins");
        let (sender, receiver) = flume::bounded(1);
        let asked = Arc::clone(&store);
        let asking = thread::spawn(move || {
            let answers = (asked.epoch(), asked.num_open(), asked.model_state());
            sender.send(answers).unwrap();
        });
        let answers = receiver.recv_timeout(Duration::from_secs(60));
        drop(ledger);
        asking.join().unwrap();
        assert_eq!(answers, Ok((epoch, 0, ModelState::Sound)));
    }
}
