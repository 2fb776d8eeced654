//! The part of a system that observes it: metrics, counts, signs of progress, and the source of
//! faults on purpose, which also reports events to a simulation.

use std::sync::Arc;

use super::{
    config::SystemConfig, edges::EdgeCounts, journal::JournalMetrics, metrics::SystemMetrics,
    watched_steps::WatchedSteps,
};
use crate::{
    fault::Chaos,
    message::Role,
    supervision::{hang_counts::HangCounts, progress::Progress},
};

/// The observers of one system. Nothing is derived from them.
pub(crate) struct Observers {
    /// The metrics.
    pub(crate) metrics: Arc<SystemMetrics>,
    /// Messages along each edge.
    pub(crate) edges: EdgeCounts,
    /// The steps that observers outside the engine see.
    pub(crate) steps: WatchedSteps,
    /// Whether the engine makes progress.
    pub(crate) progress: Progress,
    /// Hangs so far.
    pub(crate) hangs: HangCounts,
    /// Faults on purpose.
    pub(crate) chaos: Arc<Chaos>,
}

impl Observers {
    /// Returns the observers of a system in which nothing has happened.
    pub(crate) fn new(config: &SystemConfig) -> Self {
        if config.journal.is_none() {
            // Dashboards and alerts then see that there is none that fails.
            let _ = JournalMetrics::new(&config.model_name, &config.engine);
        }
        Self {
            metrics: Arc::new(SystemMetrics::new(
                &config.model_name,
                &config.engine,
                config.scheduler.num_lookahead_tokens,
            )),
            edges: EdgeCounts::default(),
            steps: WatchedSteps::default(),
            progress: Progress::default(),
            hangs: HangCounts::default(),
            chaos: Arc::default(),
        }
    }

    /// Counts an actor that hangs, by order of chaos or not.
    pub(crate) fn actor_hangs(&self, role: Role, is_ordered: bool) {
        self.metrics.hung(role.as_str());
        self.hangs.actor(is_ordered);
    }

    /// Counts a step that hangs.
    pub(crate) fn step_hangs(&self) {
        self.metrics.hung("step");
        self.hangs.step();
    }
}
