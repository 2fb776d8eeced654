//! The readers of the ledger's events: figures that are read without a lock, the metrics with their
//! totals, the journal, and the observer of a simulation.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering},
};

use crate::{
    fault::{Chaos, Observed},
    logic::{
        ledger::{GroundState, LedgerEvent, LedgerObserver},
        recovery::sanity::ModelState,
    },
    system::{engine_metrics::EngineMetrics, journal::Journal},
};

/// All readers of one ledger. Each reads every event.
#[derive(Debug)]
pub(super) struct Observers {
    pub(super) figures: Arc<Figures>,
    pub(super) metrics: Arc<EngineMetrics>,
    pub(super) journal: Option<Arc<Journal>>,
    pub(super) chaos: Arc<Chaos>,
}

impl LedgerObserver for Observers {
    fn observe(&mut self, event: &LedgerEvent, state: &GroundState) {
        if let Some(model) = self.figures.update(state) {
            self.metrics.judged_model(model);
        }
        self.metrics.on_ledger_event(event, state);
        if let Some(journal) = &self.journal {
            journal.on_ledger_event(event, state);
        }
        self.chaos.observe(&Observed::Ledger { event, state });
    }
}

/// The state of the ledger in numbers.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) epoch: AtomicU64,
    /// Requests whose end was not delivered yet.
    pub(super) num_open: AtomicUsize,
    /// A [`ModelState`].
    model: AtomicU8,
}

impl Figures {
    /// Takes over a state. Returns the state of the model if it has changed.
    fn update(&self, state: &GroundState) -> Option<ModelState> {
        self.epoch.store(state.epoch().0, Ordering::Release);
        self.num_open.store(state.len(), Ordering::Release);
        let model = state.model_state();
        (self.model.swap(model as u8, Ordering::AcqRel) != model as u8).then_some(model)
    }

    pub(super) fn model_state(&self) -> ModelState {
        let model = self.model.load(Ordering::Acquire);
        let is_it = |state: &ModelState| *state as u8 == model;
        ModelState::ALL.into_iter().find(is_it).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_the_model_is_read_back() {
        let figures = Figures::default();
        assert_eq!(figures.model_state(), ModelState::Sound);
        for state in ModelState::ALL {
            figures.model.store(state as u8, Ordering::Release);
            assert_eq!(figures.model_state(), state);
        }
    }
}
