//! The scheduler: which requests compute how many tokens in the next step. It knows policy, never
//! blocks: it asks the KV cache manager through [allocation plans](super::allocation), and is told what fitted.
//!
//! There is no prefill and no decode: each request has tokens, and `num_computed_tokens` runs
//! after them. A step is planned by [`Scheduler::begin_step`], then [`Scheduler::next_plan`] and
//! [`Scheduler::apply`] in turn until there is no next plan, then [`Scheduler::finish_step`]; once
//! computed, its results go to [`Scheduler::update_from_output`]. A decode step needs at most one
//! plan; an admission one more, as its prefix hits must be known before its tokens are counted.
//!
//! With [`SchedulerConfig::async_scheduling`], the next step is planned while one is in
//! flight, on the tokens that it will draw: the device has it when it needs it.

mod admission;
mod ahead;
mod cohort;
mod config;
pub mod driver;
mod grammars;
mod growth;
mod lifecycle;
mod make_room;
mod media;
mod planning;
mod request_state;
mod request_table;
mod stats;
mod step;
mod stop_check;
mod update;
mod view;

use std::collections::{BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use self::{
    cohort::Cohort,
    grammars::Grammars,
    planning::Planning,
    request_state::Status,
    request_table::{RequestTable, Slot},
    step::InFlight,
};
pub use self::{
    config::{SchedulerConfig, SchedulerConfigError},
    lifecycle::RecoveredRequest,
    stats::{FirstScheduled, SchedulerStats, StepStats, WaitingReason},
    view::{RequestView, SchedulerView},
};
pub use super::request_queue::SchedulingPolicy;
use super::{
    block_hash::{BlockHash, none_hash},
    encoder_cache::EncoderCacheManager,
    ids::{Epoch, Micros, RequestId, Step},
    outputs::Commit,
    request_queue::RequestQueue,
    scheduler_output::SchedulerOutput,
};

/// What may be scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseState {
    /// Everything.
    #[default]
    Unpaused,
    /// Running requests go on, waiting ones wait.
    PausedNew,
    /// Nothing.
    PausedAll,
}

/// A planned step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scheduled {
    /// What the worker computes.
    pub output: SchedulerOutput,
    /// Requests that ended without being computed: a deadline passed, the KV cache is full.
    pub ended: Vec<Commit>,
    /// What became of a [`Scheduler::reset_prefix_cache`].
    pub prefix_cache_reset: Option<bool>,
    /// For metrics.
    pub stats: StepStats,
}

/// One engine's scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler {
    config: SchedulerConfig,
    none_hash: BlockHash,
    epoch: Epoch,
    /// The KV cache manager has not heard of the epoch.
    is_new_epoch: bool,
    step: Step,
    now: Micros,
    pause: PauseState,
    cohort: Option<Cohort>,
    /// Most tokens of a step; at most the configured ones.
    token_budget: usize,
    requests: RequestTable,
    /// In order of admission. Holds ended requests until the next compaction.
    running: Vec<Slot>,
    running_is_dirty: bool,
    waiting: RequestQueue<Slot>,
    grammars: Grammars,
    waiting_reason: WaitingReason,
    /// Of requests that have not begun.
    deadlines: BTreeSet<(Micros, RequestId)>,
    encoder_cache: EncoderCacheManager,
    /// Requests whose blocks are freed by the next plan that finds them in no step in flight, and
    /// whether their content is discarded.
    frees: Vec<(RequestId, bool)>,
    /// For the next output.
    finished: Vec<RequestId>,
    /// For the next output.
    preempted: Vec<RequestId>,
    planning: Option<Planning>,
    /// The steps whose results are awaited, in their order.
    in_flight: VecDeque<InFlight>,
    /// The step whose computation the next was planned beside, or would have been.
    planned_ahead_of: Option<Step>,
    /// Nothing is planned until no step is in flight.
    must_settle: bool,
    completed_step: Option<Step>,
    /// The last step that filled blocks, if the KV cache manager has not heard that it is computed.
    unsealed_step: Option<Step>,
    last_admission: Option<Step>,
    /// Asked for and not done; whether running requests are preempted for it.
    reset_requested: Option<bool>,
    kv_cache_usage: f64,
    num_preemptions: u64,
    num_stale: u64,
}

impl Scheduler {
    /// An idle scheduler. `config` must be [valid](SchedulerConfig::validate).
    #[must_use]
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            none_hash: none_hash(config.hash_seed.as_deref()),
            epoch: Epoch::default(),
            is_new_epoch: false,
            step: Step::default(),
            now: 0,
            pause: PauseState::default(),
            cohort: None,
            token_budget: config.max_num_batched_tokens,
            requests: RequestTable::default(),
            running: Vec::new(),
            running_is_dirty: false,
            waiting: RequestQueue::new(config.policy, config.priority_age_bound),
            grammars: Grammars::default(),
            waiting_reason: WaitingReason::default(),
            deadlines: BTreeSet::new(),
            encoder_cache: EncoderCacheManager::new(config.encoder_cache_size),
            frees: Vec::new(),
            finished: Vec::new(),
            preempted: Vec::new(),
            planning: None,
            in_flight: VecDeque::new(),
            planned_ahead_of: None,
            must_settle: false,
            completed_step: None,
            unsealed_step: None,
            last_admission: None,
            reset_requested: None,
            kv_cache_usage: 0.0,
            num_preemptions: 0,
            num_stale: 0,
            config,
        }
    }

    /// What it was made with.
    #[must_use]
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// The generation of the core that it belongs to.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The last step planned.
    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    /// The step whose results are awaited next.
    #[must_use]
    pub fn step_in_flight(&self) -> Option<Step> {
        self.in_flight.front().map(|in_flight| in_flight.step)
    }

    /// Whether another step has anything to do: a request lives, or somebody must hear that one
    /// ended.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.requests.num_live() > 0
            || !self.frees.is_empty()
            || !self.finished.is_empty()
            || !self.preempted.is_empty()
            || self.reset_requested.is_some()
            || self.is_new_epoch
    }

    /// Requests that have not ended.
    #[must_use]
    pub fn num_unfinished(&self) -> usize {
        self.requests.num_live()
    }

    /// The running requests, in the order in which they are scheduled.
    pub fn running(&self) -> impl Iterator<Item = RequestId> + '_ {
        let states = self.running.iter().map(|&slot| &self.requests[slot]);
        let running = states.filter(|state| state.status == Status::Running);
        running.map(|state| state.request.id)
    }

    /// The waiting requests in the order of service, with the reason why they wait: what keeps
    /// the first of those who may be admitted keeps those behind it. Those come last that wait
    /// aside for their grammar.
    #[must_use]
    pub fn waiting_reasons(&self) -> Vec<(RequestId, WaitingReason)> {
        self.first_waiting(usize::MAX)
    }

    /// Where it stands.
    #[must_use]
    pub fn stats(&self) -> SchedulerStats {
        SchedulerStats {
            step: self.step,
            num_running: self.running().count(),
            num_waiting: self.waiting.len(),
            num_skipped_waiting: self.grammars.requests().count(),
            waiting_reason: self.waiting_reason,
            kv_cache_usage: self.kv_cache_usage,
            num_preemptions: self.num_preemptions,
            num_stale: self.num_stale,
        }
    }
}
