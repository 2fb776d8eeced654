//! The scheduler: it decides which requests compute how many tokens in the next step. It knows
//! policy but no blocks. It sends [allocation plans](crate::logic::kv_cache::allocation) to the KV
//! cache manager, and the answers say which operations fitted.
//!
//! Prefill and decode are not distinct: each request has tokens, and `num_computed_tokens` follows
//! their number. [`Scheduler::begin_step`] begins a step. [`Scheduler::next_plan`] and
//! [`Scheduler::apply`] then alternate until there is no next plan, and [`Scheduler::finish_step`]
//! returns the step. Once the step is computed, its results go to
//! [`Scheduler::update_from_output`]. A decode step needs at most one plan. An admission needs one
//! more, because its prefix hits must be known before its tokens are counted.
//!
//! With [`SchedulerConfig::async_scheduling`], the next step is planned while one is in flight. The
//! plan counts on the tokens that the step in flight will sample. The device therefore has its next
//! step when it needs one.

mod adapters;
mod ahead;
mod aside;
mod cohort;
mod config;
mod drafts;
pub mod driver;
mod flight;
mod growth;
mod lifecycle;
mod make_room;
mod media;
mod outbox;
pub mod output;
mod planning;
mod queues;
pub mod request_queue;
mod request_state;
mod request_table;
mod stats;
mod step;
pub mod step_budget;
mod stop_check;
mod update;
mod view;
mod waiting;

use serde::{Deserialize, Serialize};

pub use self::request_queue::SchedulingPolicy;
pub use self::{
    adapters::{AdapterNames, AdapterRoom},
    aside::Resource,
    config::{SchedulerConfig, SchedulerConfigError},
    lifecycle::RecoveredRequest,
    stats::{FirstScheduled, SchedulerStats, StepStats, WaitingReason},
    view::{RequestView, SchedulerView},
};
use self::{
    cohort::Cohort, flight::Flight, media::Media, outbox::Outbox, output::SchedulerOutput,
    planning::Planning, queues::Queues, request_state::Status, request_table::RequestTable,
};
use super::{
    kv_cache::{Demand, hashes::BlockNaming},
    request::{
        ids::{Epoch, Micros, RequestId, Step},
        outputs::Commit,
    },
};

/// The requests that may be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseState {
    /// All requests.
    #[default]
    Unpaused,
    /// Running requests only: waiting requests are not admitted.
    PausedNew,
    /// No request.
    PausedAll,
}

/// A planned step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scheduled {
    /// The work for the worker.
    pub output: SchedulerOutput,
    /// Ends of requests that were not computed, because a deadline passed or the KV cache is full.
    pub ended: Vec<Commit>,
    /// Whether the prefix cache was reset, if [`Scheduler::reset_prefix_cache`] asked for it.
    pub prefix_cache_reset: Option<bool>,
    /// Counts for the metrics.
    pub stats: StepStats,
}

/// One engine's scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: SchedulerConfig,
    demand: Demand,
    naming: BlockNaming,
    epoch: Epoch,
    step: Step,
    now: Micros,
    pause: PauseState,
    cohort: Option<Cohort>,
    /// Largest number of tokens in a step. At most the configured number.
    token_budget: usize,
    requests: RequestTable,
    queues: Queues,
    media: Media,
    /// Boxed, because each plan and each answer moves it.
    planning: Option<Box<Planning>>,
    flight: Flight,
    outbox: Outbox,
    kv_cache_usage: f64,
    num_preemptions: u64,
    num_stale: u64,
}

impl Scheduler {
    /// Returns an idle scheduler. `config` must be [valid](SchedulerConfig::validate).
    #[must_use]
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            demand: Demand::new(&config.kv_cache()),
            naming: BlockNaming::new(config.kv_spec.block_size, config.hash_seed.as_deref()),
            epoch: Epoch::default(),
            step: Step::default(),
            now: 0,
            pause: PauseState::default(),
            cohort: None,
            token_budget: config.max_num_batched_tokens,
            requests: RequestTable::default(),
            queues: Queues::new(&config),
            media: Media::new(false),
            planning: None,
            flight: Flight::default(),
            outbox: Outbox::default(),
            kv_cache_usage: 0.0,
            num_preemptions: 0,
            num_stale: 0,
            config,
        }
    }

    /// Returns the scheduler's settings.
    #[must_use]
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// Returns the current epoch: the generation of the core that the scheduler belongs to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns whether the KV cache manager has received no plan of this epoch yet.
    #[must_use]
    pub fn begins_epoch(&self) -> bool {
        self.outbox.is_new_epoch
    }

    /// Returns the last step planned.
    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    /// Returns the step whose results are awaited next.
    #[must_use]
    pub fn step_in_flight(&self) -> Option<Step> {
        self.flight.steps.front().map(|in_flight| in_flight.step)
    }

    /// Returns whether another step has work to do: a request is live, or another actor must learn
    /// that one ended.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.requests.num_live() > 0 || self.outbox.has_news()
    }

    /// Returns the number of requests that have not ended.
    #[must_use]
    pub fn num_unfinished(&self) -> usize {
        self.requests.num_live()
    }

    /// Returns the running requests, in the order in which they are scheduled.
    pub fn running(&self) -> impl Iterator<Item = RequestId> + '_ {
        let states = self.queues.running.iter().map(|&slot| &self.requests[slot]);
        let running = states.filter(|state| state.status == Status::Running);
        running.map(|state| state.request.id)
    }

    /// Returns the waiting requests in the order of service, each with the reason why it waits. The
    /// reason for the first one that may be admitted also holds for those behind it. Requests that
    /// wait aside come last.
    #[must_use]
    pub fn waiting_reasons(&self) -> Vec<(RequestId, WaitingReason)> {
        self.first_waiting(usize::MAX)
    }

    /// Returns the scheduler's current statistics.
    #[must_use]
    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats {
            step: self.step,
            num_running: self.running().count(),
            num_waiting: self.queues.waiting.len(),
            num_skipped_waiting: self.queues.aside.len(),
            waiting_reason: self.queues.waiting_reason,
            kv_cache_usage: self.kv_cache_usage,
            num_preemptions: self.num_preemptions,
            num_stale: self.num_stale,
            adapters: self.adapter_names(),
        }
    }
}
