//! The part of a system that observes it: metrics, counts, signs of progress, and the source of
//! faults on purpose, which also reports events to a simulation.

use std::sync::Arc;

use super::{
    config::SystemConfig, edges::EdgeCounts, engine_metrics::EngineMetrics,
    journal::JournalMetrics, metrics::SystemMetrics, uplink::Uplink, watched_steps::WatchedSteps,
};
use crate::{
    fault::Chaos,
    link::frames::Observation,
    logic::{
        request::{
            ids::EngineIndex,
            outputs::{DraftCounts, StepOutput},
        },
        scheduler::{SchedulerStats, StepStats},
    },
    message::Role,
    supervision::{hang_counts::HangCounts, progress::Progress},
};

/// The observers of one system. Nothing is derived from them.
pub(crate) struct Observers {
    /// The metrics of each engine.
    pub(crate) metrics: Arc<EngineMetrics>,
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
    /// The way to the front, whose metrics these are, in an engine process.
    uplink: Option<Arc<Uplink>>,
}

impl Observers {
    /// Returns the observers of a system in which nothing has happened.
    pub(crate) fn new(config: &SystemConfig, uplink: Option<Arc<Uplink>>) -> Self {
        if config.journal.is_none() {
            // Dashboards and alerts then see that there is none that fails.
            let _ = JournalMetrics::new(&config.model_name, &config.engine);
        }
        Self {
            metrics: Arc::new(EngineMetrics::new(config)),
            edges: EdgeCounts::default(),
            steps: WatchedSteps::default(),
            progress: Progress::default(),
            hangs: HangCounts::default(),
            chaos: Arc::default(),
            uplink,
        }
    }

    /// Returns the metrics of the engine in this process, or of the front.
    fn own(&self) -> &SystemMetrics {
        self.metrics.of(EngineIndex::default())
    }

    /// Counts a planned step.
    pub(crate) fn scheduled(&self, step: &StepStats, now: &SchedulerStats) {
        match &self.uplink {
            None => self.own().scheduled(step, now),
            Some(front) => front.observe(Observation::Scheduled(step.clone(), now.clone())),
        }
    }

    /// Counts messages of a past epoch or generation, and repeated messages.
    pub(crate) fn stale(&self, count: u64) {
        match &self.uplink {
            None => self.own().stale_messages.increment(count),
            Some(front) => front.observe(Observation::Stale(count)),
        }
    }

    /// Counts a recording that ended before its engine.
    pub(crate) fn recording_truncated(&self) {
        match &self.uplink {
            None => self.own().truncated_recordings.increment(1),
            Some(front) => front.observe(Observation::RecordingTruncated),
        }
    }

    /// Counts the guesses that a step verified.
    pub(crate) fn drafted(&self, output: &StepOutput) {
        let drafts = output.outputs.iter().map(|output| output.drafts);
        let drafts: Vec<DraftCounts> = drafts.filter(|drafts| drafts.num_drafted > 0).collect();
        match &self.uplink {
            _ if drafts.is_empty() => {}
            None => self.own().drafts.count(&drafts),
            Some(front) => front.observe(Observation::Drafted(drafts)),
        }
    }

    /// Counts an actor that was replaced.
    pub(crate) fn restarted(&self, role: Role) {
        match &self.uplink {
            None => self.own().restarted(role),
            Some(front) => front.observe(Observation::Restarted(role)),
        }
    }

    /// Counts an actor that hangs, by order of chaos or not.
    pub(crate) fn actor_hangs(&self, role: Role, is_ordered: bool) {
        self.hangs.actor(is_ordered);
        match &self.uplink {
            None => self.own().hung(role.as_str()),
            Some(front) => front.observe(Observation::ActorHangs(role)),
        }
    }

    /// Counts a step that hangs.
    pub(crate) fn step_hangs(&self) {
        self.hangs.step();
        match &self.uplink {
            None => self.own().hung("step"),
            Some(front) => front.observe(Observation::StepHangs),
        }
    }

    /// Shows that an engine has no queues, because its process ended.
    pub(crate) fn engine_ended(&self, engine: EngineIndex) {
        self.metrics.of(engine).scheduled(&StepStats::default(), &SchedulerStats::default());
    }

    /// Counts the news of an engine's process.
    pub(crate) fn observed(&self, engine: EngineIndex, observation: &Observation) {
        let metrics = self.metrics.of(engine);
        match observation {
            Observation::Scheduled(step, now) => metrics.scheduled(step, now),
            Observation::Drafted(drafts) => metrics.drafts.count(drafts),
            &Observation::Stale(count) => metrics.stale_messages.increment(count),
            &Observation::Restarted(role) => metrics.restarted(role),
            Observation::ActorHangs(role) => metrics.hung(role.as_str()),
            Observation::StepHangs => metrics.hung("step"),
            Observation::RecordingTruncated => metrics.truncated_recordings.increment(1),
        }
    }
}
