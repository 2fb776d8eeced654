//! The state that cannot be derived: the ledger's store, the number of the last step, and the
//! operator's pause. It outlives every actor.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{config::SystemConfig, hold::Hold, observers::Observers};
use crate::{logic::request::ids::Step, shell::ledger::store::LedgerStore};

/// The ground state of one system.
pub(crate) struct GroundState {
    /// The place where the ledger lives.
    pub(crate) ledger: LedgerStore,
    last_step: AtomicU64,
    /// The operator's pause, which also applies to a new scheduler.
    pub(crate) hold: Hold,
}

impl GroundState {
    /// Returns the state of a system that has served no request. Observers see the ledger's events.
    pub(crate) fn new(config: &SystemConfig, observers: &Observers) -> Self {
        let (metrics, chaos) = (Arc::clone(&observers.metrics), Arc::clone(&observers.chaos));
        let ledger = LedgerStore::new(config.ledger(), metrics, config.journal.clone(), chaos);
        Self { ledger, last_step: AtomicU64::new(0), hold: Hold::default() }
    }

    /// Returns the last step that was planned. A new scheduler continues from this number.
    pub(crate) fn last_step(&self) -> Step {
        Step(self.last_step.load(Ordering::Relaxed))
    }

    /// Records that a step was planned.
    pub(crate) fn planned(&self, step: Step) {
        self.last_step.store(step.0, Ordering::Relaxed);
    }
}
