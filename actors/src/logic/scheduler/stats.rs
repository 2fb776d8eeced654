//! What the scheduler tells about itself, as data for metrics and debugging.

use serde::{Deserialize, Serialize};

use crate::logic::ids::{Micros, RequestId, Step};

/// Why requests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingReason {
    /// No step was planned since it came.
    #[default]
    NotPlannedYet,
    /// `max_num_seqs` requests run.
    MaxNumSeqs,
    /// The step's tokens were spent.
    TokenBudget,
    /// Too few free KV cache blocks.
    KvCache,
    /// The encoder had no room for an image or sound.
    EncoderBudget,
    /// A running request had to be preempted in this step.
    Preemption,
    /// Scheduling is paused.
    Paused,
    /// `prefill_schedule_interval` steps have not passed.
    PrefillInterval,
    /// A step failed, and others run alone to find out which of them makes it fail.
    Suspects,
    /// The grammar that its output has to follow is being compiled.
    StructuredOutputGrammar,
}

impl WaitingReason {
    /// The label of vLLM's `num_requests_waiting_by_reason`.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Paused
            | Self::PrefillInterval
            | Self::Suspects
            | Self::StructuredOutputGrammar => "deferred",
            _ => "capacity",
        }
    }
}

/// The scheduler now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SchedulerStats {
    /// Steps planned so far.
    pub step: Step,
    /// Requests running.
    pub num_running: usize,
    /// Requests waiting for their turn.
    pub num_waiting: usize,
    /// Requests waiting aside until their grammar is compiled: others pass them.
    pub num_skipped_waiting: usize,
    /// Why those wait.
    pub waiting_reason: WaitingReason,
    /// Share of the KV cache in use when the last plan was executed, in `[0, 1]`.
    pub kv_cache_usage: f64,
    /// Requests preempted, ever.
    pub num_preemptions: u64,
    /// Step outputs and allocations of another epoch or step, and rows of requests that no longer
    /// run: dropped, ever.
    pub num_stale: u64,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepStats {
    /// Tokens to compute.
    pub num_scheduled_tokens: usize,
    /// Prompt tokens to compute for the first time.
    pub prompt_tokens_computed: usize,
    /// Prompt tokens of requests admitted for the first time that the prefix cache held.
    pub prompt_tokens_cached: usize,
    /// Tokens to compute again after a preemption, a retry or a new epoch.
    pub recomputed_tokens: usize,
    /// Tokens of tails that the last epoch left: they need not be computed again.
    pub adopted_tail_tokens: usize,
    /// Tokens looked up for requests admitted for the first time.
    pub prefix_cache_queries: usize,
    /// Those of them that were there.
    pub prefix_cache_hits: usize,
    /// Requests preempted.
    pub num_preempted: usize,
    /// Requests admitted for the first time.
    pub first_scheduled: Vec<FirstScheduled>,
}

/// A request left the queue for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstScheduled {
    /// The request.
    pub request: RequestId,
    /// Microseconds since its arrival.
    pub queue_time: Micros,
    /// Prompt tokens that the prefix cache held.
    pub num_cached_tokens: usize,
}
