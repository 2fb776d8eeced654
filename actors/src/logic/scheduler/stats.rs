//! Figures about the scheduler, for metrics and debugging.

use serde::{Deserialize, Serialize};

use super::AdapterNames;
use crate::logic::request::ids::{Micros, RequestId, Step};

/// The reason why requests wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitingReason {
    /// No step was planned since the request arrived.
    #[default]
    NotPlannedYet,
    /// `max_num_seqs` requests run already.
    MaxNumSeqs,
    /// The step's token budget was used up.
    TokenBudget,
    /// There are too few free KV cache blocks.
    KvCache,
    /// An image or sound is being encoded, or the encoder cache has no room for it.
    EncoderCache,
    /// A running request had to be preempted in this step.
    Preemption,
    /// Scheduling is paused.
    Paused,
    /// `prefill_schedule_interval` steps have not passed.
    PrefillInterval,
    /// A step failed. The suspects run alone to find the request that makes it fail.
    Suspects,
    /// The grammar for the request's output is being compiled.
    StructuredOutputGrammar,
    /// The request's adapter is being loaded, or too many other adapters are in use.
    LoraAdapter,
    /// In the first steps after a crash, few new prompts join requests whose outputs had begun.
    Recovery,
}

impl WaitingReason {
    /// Returns the label of vLLM's `num_requests_waiting_by_reason`.
    #[must_use]
    pub fn class(self) -> &'static str {
        match self {
            Self::Paused
            | Self::PrefillInterval
            | Self::Recovery
            | Self::Suspects
            | Self::StructuredOutputGrammar
            | Self::LoraAdapter => "deferred",
            _ => "capacity",
        }
    }
}

/// The current figures of the scheduler.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SchedulerStats {
    /// The last step planned.
    pub step: Step,
    /// Number of running requests.
    pub num_running: usize,
    /// Number of requests that wait for their turn.
    pub num_waiting: usize,
    /// Number of requests that wait aside. Other requests pass them.
    pub num_skipped_waiting: usize,
    /// The reason why requests wait for their turn.
    pub waiting_reason: WaitingReason,
    /// Share of the KV cache in use when the last plan was executed, in `[0, 1]`.
    pub kv_cache_usage: f64,
    /// Number of preemptions since the start.
    pub num_preemptions: u64,
    /// Number of results dropped since the start. These are step outputs and allocations of another
    /// epoch or step, and rows of requests that no longer run.
    pub num_stale: u64,
    /// The adapters of live requests.
    pub adapters: AdapterNames,
}

impl SchedulerStats {
    /// Returns the figures of two engines together. The reason is that of one whose requests wait.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let waiting_reason = match self.num_waiting {
            0 => other.waiting_reason,
            _ => self.waiting_reason,
        };
        Self {
            step: self.step.max(other.step),
            num_running: self.num_running + other.num_running,
            num_waiting: self.num_waiting + other.num_waiting,
            num_skipped_waiting: self.num_skipped_waiting + other.num_skipped_waiting,
            waiting_reason,
            kv_cache_usage: f64::midpoint(self.kv_cache_usage, other.kv_cache_usage),
            num_preemptions: self.num_preemptions + other.num_preemptions,
            num_stale: self.num_stale + other.num_stale,
            adapters: self.adapters.and(other.adapters),
        }
    }
}

/// The figures of one step.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StepStats {
    /// Number of tokens to compute.
    pub num_scheduled_tokens: usize,
    /// Number of prompt tokens to compute for the first time.
    pub prompt_tokens_computed: usize,
    /// Number of prompt tokens in the prefix cache, of requests admitted for the first time.
    pub prompt_tokens_cached: usize,
    /// Number of tokens to recompute after a preemption, a retry or a new epoch.
    pub recomputed_tokens: usize,
    /// Number of tokens in adopted tails of the last epoch. They need not be recomputed.
    pub adopted_tail_tokens: usize,
    /// Number of tokens looked up for requests admitted for the first time.
    pub prefix_cache_queries: usize,
    /// Number of these tokens that were found.
    pub prefix_cache_hits: usize,
    /// Requests preempted.
    pub preempted: Vec<RequestId>,
    /// Requests admitted for the first time.
    pub first_scheduled: Vec<FirstScheduled>,
}

/// The facts about a request that has left the queue for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstScheduled {
    /// The request.
    pub request: RequestId,
    /// Microseconds since its arrival.
    pub queue_time: Micros,
    /// Number of prompt tokens that the prefix cache held.
    pub num_cached_tokens: usize,
}
