//! The part of a system that observes it: metrics, counts, signs of progress, and the source of
//! faults on purpose, which also reports events to a simulation.

use std::sync::Arc;

use super::{
    config::SystemConfig, edges::EdgeCounts, hang_counts::HangCounts, metrics::SystemMetrics,
    progress::Progress, watched_steps::WatchedSteps,
};
use crate::{fault::Chaos, message::Role};

/// The observers of one system. Nothing is derived from them.
pub(super) struct Observers {
    /// The metrics.
    pub(super) metrics: Arc<SystemMetrics>,
    /// Messages along each edge.
    pub(super) edges: EdgeCounts,
    /// The steps that observers outside the engine see.
    pub(super) steps: WatchedSteps,
    /// Whether the engine makes progress.
    pub(super) progress: Progress,
    /// Hangs so far.
    pub(super) hangs: HangCounts,
    /// Faults on purpose.
    pub(super) chaos: Arc<Chaos>,
}

impl Observers {
    /// Returns the observers of a system in which nothing has happened.
    pub(super) fn new(config: &SystemConfig) -> Self {
        Self {
            metrics: Arc::new(SystemMetrics::new(&config.model_name, &config.engine)),
            edges: EdgeCounts::default(),
            steps: WatchedSteps::default(),
            progress: Progress::default(),
            hangs: HangCounts::default(),
            chaos: Arc::default(),
        }
    }

    /// Counts an actor that hangs, by order of chaos or not.
    pub(super) fn actor_hangs(&self, role: Role, is_ordered: bool) {
        self.metrics.hung(role.as_str());
        self.hangs.actor(is_ordered);
    }

    /// Counts a step that hangs.
    pub(super) fn step_hangs(&self) {
        self.metrics.hung("step");
        self.hangs.step();
    }
}
