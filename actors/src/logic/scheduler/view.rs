//! The scheduler as an observer outside the engine sees it: counts and reasons, but no content.

use serde::{Deserialize, Serialize};

use super::{PauseState, Scheduler, SchedulerStats, WaitingReason, request_table::Slot};
use crate::logic::{
    admission::Tenant,
    request::ids::{Epoch, Micros, RequestId},
};

/// The state of the scheduler between two steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SchedulerView {
    /// The epoch that the scheduler plans for.
    pub epoch: Epoch,
    /// The scheduler's figures.
    pub stats: SchedulerStats,
    /// The pause state.
    pub pause: PauseState,
    /// Running requests, in the order in which they are scheduled. The list may be cut.
    pub running: Vec<RequestView>,
    /// Waiting requests, beginning with the next to be served. The list may be cut.
    pub waiting: Vec<RequestView>,
}

/// The figures of one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestView {
    /// The request.
    pub id: RequestId,
    /// The tenant whose API key came with the request.
    pub tenant: Option<Tenant>,
    /// The time when the request was accepted.
    pub arrival: Micros,
    /// Priority: a lower value is served first.
    pub priority: i32,
    /// Number of prompt tokens.
    pub num_prompt_tokens: usize,
    /// Number of output tokens so far.
    pub num_output_tokens: usize,
    /// Largest number of output tokens.
    pub max_tokens: u32,
    /// Number of prompt and output tokens whose KV exists, or will exist after the steps in flight.
    pub num_computed_tokens: usize,
    /// Number of blocks that the request holds.
    pub num_blocks: usize,
    /// The reason why the request waits, if it does.
    pub waits_for: Option<WaitingReason>,
}

impl Scheduler {
    /// Returns the scheduler's state, with at most `most_running` running and `most_waiting`
    /// waiting requests.
    #[must_use]
    pub fn view(&self, most_running: usize, most_waiting: usize) -> SchedulerView {
        let running = self.running().take(most_running).filter_map(|id| self.requests.find(id));
        let waiting = self.first_waiting(most_waiting).into_iter();
        let waiting = waiting.filter_map(|(id, reason)| Some((self.requests.find(id)?, reason)));
        SchedulerView {
            epoch: self.epoch,
            stats: self.stats(),
            pause: self.pause,
            running: running.map(|slot| self.request_view(slot, None)).collect(),
            waiting: waiting.map(|(slot, reason)| self.request_view(slot, Some(reason))).collect(),
        }
    }

    /// Returns the first `most` of [`Scheduler::waiting_reasons`].
    pub(super) fn first_waiting(&self, most: usize) -> Vec<(RequestId, WaitingReason)> {
        let cohort = self.active_cohort();
        let slots = self.queues.waiting.first(most, self.now).into_iter();
        let with_reason = |slot| {
            let id = self.requests[slot].request.id;
            match cohort.is_some_and(|cohort| !cohort.contains(&id)) {
                true => (id, WaitingReason::Suspects),
                false => (id, self.queues.waiting_reason),
            }
        };
        slots.map(with_reason).chain(self.queues.aside.reasons()).take(most).collect()
    }

    fn request_view(&self, slot: Slot, waits_for: Option<WaitingReason>) -> RequestView {
        let state = &self.requests[slot];
        let request = &state.request;
        RequestView {
            id: request.id,
            tenant: request.tenant,
            arrival: request.arrival,
            priority: request.priority,
            num_prompt_tokens: request.num_prompt_tokens(),
            num_output_tokens: state.output_token_ids.len(),
            max_tokens: request.max_tokens(),
            num_computed_tokens: self.num_certain(state),
            num_blocks: state.held.num_blocks(),
            waits_for,
        }
    }
}
