//! The scheduler as somebody sees it who looks in from outside: counts and reasons, no content.

use serde::{Deserialize, Serialize};

use super::{PauseState, Scheduler, SchedulerStats, WaitingReason, request_table::Slot};
use crate::logic::{
    admission::Tenant,
    ids::{Epoch, Micros, RequestId},
};

/// The scheduler between two steps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SchedulerView {
    /// The epoch that it plans for.
    pub epoch: Epoch,
    /// Its figures.
    pub stats: SchedulerStats,
    /// What is held back.
    pub pause: PauseState,
    /// Running requests, in the order in which they are scheduled; perhaps not all.
    pub running: Vec<RequestView>,
    /// Waiting requests, the next to be served first; perhaps not all.
    pub waiting: Vec<RequestView>,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestView {
    /// Which.
    pub id: RequestId,
    /// Whose API key it came with.
    pub tenant: Option<Tenant>,
    /// When it was accepted.
    pub arrival: Micros,
    /// A lower value is served first.
    pub priority: i32,
    /// Tokens of its prompt.
    pub num_prompt_tokens: usize,
    /// Tokens that it has got.
    pub num_output_tokens: usize,
    /// Tokens that it gets at most.
    pub max_tokens: u32,
    /// Tokens of both whose KV is there, or will be after the steps in flight.
    pub num_computed_tokens: usize,
    /// Blocks that it holds.
    pub num_blocks: usize,
    /// Why it waits, if it does.
    pub waits_for: Option<WaitingReason>,
}

impl Scheduler {
    /// How things stand, with at most so many running and so many waiting requests.
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

    /// The first of [`Scheduler::waiting_reasons`].
    pub(super) fn first_waiting(&self, most: usize) -> Vec<(RequestId, WaitingReason)> {
        let cohort = self.active_cohort();
        let slots = self.waiting.first(most, self.now).into_iter();
        let with_reason = |slot| {
            let id = self.requests[slot].request.id;
            match cohort.is_some_and(|cohort| !cohort.contains(&id)) {
                true => (id, WaitingReason::Suspects),
                false => (id, self.waiting_reason),
            }
        };
        let aside = self.grammars.requests();
        let aside = aside.map(|id| (id, WaitingReason::StructuredOutputGrammar));
        slots.map(with_reason).chain(aside).take(most).collect()
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
            max_tokens: request.params.max_tokens,
            num_computed_tokens: state.num_computed_tokens,
            num_blocks: state.num_blocks,
            waits_for,
        }
    }
}
