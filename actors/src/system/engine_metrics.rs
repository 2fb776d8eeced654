//! The metrics of each engine of one system. Those of a request count for the engine that has it.

use std::sync::Arc;

use super::{config::SystemConfig, metrics::SystemMetrics, totals::Totals};
use crate::{
    error::RequestError,
    logic::{
        ledger::{GroundState, LedgerEvent},
        recovery::sanity::ModelState,
        request::ids::EngineIndex,
    },
};

/// The metrics of all engines. They share their totals.
#[derive(Debug)]
pub struct EngineMetrics {
    first: SystemMetrics,
    others: Vec<SystemMetrics>,
}

impl EngineMetrics {
    /// Returns the metrics of engines that have done nothing.
    #[must_use]
    pub fn new(config: &SystemConfig) -> Self {
        let totals = Arc::<Totals>::default();
        let of_engine = |label: &str| {
            let (name, guesses) = (&config.model_name, config.scheduler.num_lookahead_tokens);
            SystemMetrics::with_totals(name, label, guesses, Arc::clone(&totals))
        };
        Self {
            first: of_engine(&config.engine),
            others: (1..config.num_engines).map(|index| of_engine(&index.to_string())).collect(),
        }
    }

    /// Returns the metrics of an engine.
    pub(crate) fn of(&self, engine: EngineIndex) -> &SystemMetrics {
        let other = engine.0.checked_sub(1).and_then(|index| self.others.get(index));
        other.unwrap_or(&self.first)
    }

    /// Returns the counts of all engines.
    pub(crate) fn totals(&self) -> &Totals {
        &self.first.totals
    }

    /// Counts an event of the ledger.
    pub(crate) fn on_ledger_event(&self, event: &LedgerEvent, state: &GroundState) {
        let of = |request| state.get(request).map(|entry| entry.engine());
        let engine = match event {
            LedgerEvent::EpochBegan { engine, .. } => Some(*engine),
            LedgerEvent::Committed { commit, .. } => of(commit.request),
            event => event.end().and_then(|end| of(end.request)),
        };
        self.of(engine.unwrap_or_default()).on_ledger_event(event, state);
    }

    /// Counts a request that was rejected before an engine had it.
    pub(crate) fn rejected(&self, error: &RequestError) {
        self.first.rejected(error);
    }

    /// Shows engines without requests.
    pub(crate) fn ended(&self) {
        self.first.ended();
        self.others.iter().for_each(SystemMetrics::ended);
    }

    /// Shows a changed state of the model, which all engines have.
    pub(crate) fn judged_model(&self, model: ModelState) {
        self.first.judged_model(model);
        self.others.iter().for_each(|metrics| metrics.judged_model(model));
    }
}
