//! Limits on a step from outside. A step is limited to some requests while a failure is traced to
//! one of them. It is limited to fewer tokens when the device's memory has run out.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    PauseState, Scheduler,
    planning::{Phase, Planning},
    request_state::Status,
    request_table::Slot,
};
use crate::logic::{request::ids::RequestId, scheduler::request_queue::QueueKey};

/// The only requests that may be scheduled.
pub(super) type Cohort = Arc<BTreeSet<RequestId>>;

impl Scheduler {
    /// Sets the only requests that are admitted and scheduled from the next step on. `None` allows
    /// all requests. Other running requests keep their blocks, but they are preempted before a
    /// member is. They are also preempted whenever the members could compute nothing otherwise. A
    /// cohort has no effect while no member is live, so late news of their end stops no other
    /// request. [`Scheduler::recover`] does not change the cohort.
    pub fn set_cohort(&mut self, cohort: Option<BTreeSet<RequestId>>) {
        self.cohort = cohort.map(Arc::new);
        self.media.cohort_changed();
    }

    /// Sets the largest number of tokens in a step, from the next step on. The value is at least 1,
    /// or the length of an image that cannot be computed in parts. It is at most
    /// [`SchedulerConfig::max_num_batched_tokens`](super::SchedulerConfig). Some inputs otherwise
    /// have to be computed in one step: a prompt without chunked prefill, and an image or sound
    /// with `disable_chunked_mm_input`. An input longer than the limit is then computed in parts,
    /// because it fits no other way.
    pub fn set_token_budget(&mut self, tokens: usize) {
        let least = self.config.largest_whole_item.max(1);
        self.token_budget = tokens.clamp(least, self.config.max_num_batched_tokens);
    }

    /// Returns the largest number of tokens in the next step.
    #[must_use]
    pub fn token_budget(&self) -> usize {
        self.token_budget
    }

    /// Returns the cohort, if it has a live member.
    pub(super) fn active_cohort(&self) -> Option<&Cohort> {
        self.cohort.as_ref().filter(|cohort| self.has_live(cohort))
    }

    /// Returns the next request to admit, of those that may be admitted.
    pub(super) fn next_waiting(&self, planning: &Planning) -> Option<(QueueKey, Slot)> {
        let now = planning.now;
        let Some(cohort) = &planning.cohort else {
            let apart =
                planning.dominant.and_then(|owner| self.queues.waiting.peek_apart(owner, now));
            return apart.or_else(|| self.queues.waiting.peek(now));
        };
        let slots = cohort.iter().filter_map(|&id| self.requests.find(id));
        let places = slots.filter_map(|slot| {
            let state = &self.requests[slot];
            match state.status {
                Status::Waiting(key) => Some((key, state.request.arrival)),
                Status::WaitingFor(..)
                | Status::Running
                | Status::Admitting(_)
                | Status::Finished => None,
            }
        });
        self.queues.waiting.peek_among(places, now)
    }

    /// Preempts a request outside the cohort if the members can compute nothing, and plans the step
    /// again. Requests outside may hold the seats, blocks or encoder outputs that members need, and
    /// they do not go on meanwhile. Returns `false` if preempting does not help.
    pub(super) fn make_way(&mut self, planning: &mut Planning) -> bool {
        let Some(cohort) = &planning.cohort else { return false };
        let is_stuck = planning.rows.is_empty() && self.pause == PauseState::Unpaused;
        if !is_stuck || !self.can_use_room(cohort) {
            return false;
        }
        let place = self.victim_place(planning);
        let place = place.filter(|&place| planning.excludes(self.id_at(place)));
        let Some(place) = place else { return false };
        self.preempt(planning, place);
        planning.phase = Phase::Running;
        planning.cursor = 0;
        planning.looked_up = None;
        true
    }

    /// Returns the request at a place of the running list.
    pub(super) fn id_at(&self, place: usize) -> RequestId {
        self.requests[self.queues.running[place]].request.id
    }

    fn has_live(&self, cohort: &BTreeSet<RequestId>) -> bool {
        cohort.iter().any(|&id| self.requests.find(id).is_some())
    }

    /// Returns whether a member could use room, because it does not wait aside.
    fn can_use_room(&self, cohort: &BTreeSet<RequestId>) -> bool {
        let mut live = cohort.iter().filter_map(|&id| self.requests.find(id));
        live.any(|slot| !matches!(self.requests[slot].status, Status::WaitingFor(..)))
    }
}

impl Planning {
    /// Returns whether a request must not be scheduled in this step.
    pub(super) fn excludes(&self, request: RequestId) -> bool {
        self.cohort.as_ref().is_some_and(|cohort| !cohort.contains(&request))
    }
}
