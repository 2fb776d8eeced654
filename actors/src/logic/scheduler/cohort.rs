//! Restricting a step from outside: to some requests, while a failure is being traced to one of
//! them, and to fewer tokens, when the device's memory has run out.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    PauseState, Scheduler,
    planning::{Phase, Planning},
    request_state::Status,
    request_table::Slot,
};
use crate::logic::{ids::RequestId, request_queue::QueueKey};

/// The only requests that may be scheduled.
pub(super) type Cohort = Arc<BTreeSet<RequestId>>;

impl Scheduler {
    /// From the next step on, only these requests are admitted and scheduled; `None`: everybody.
    /// Others that run keep their blocks, but give way before a member does, and whenever the
    /// members could compute nothing otherwise. Without effect while no member is live, so that
    /// word of their end that comes late stops nobody. [`Scheduler::recover`] leaves it as it is.
    pub fn set_cohort(&mut self, cohort: Option<BTreeSet<RequestId>>) {
        self.cohort = cohort.map(Arc::new);
    }

    /// From the next step on, a step computes at most so many tokens: at least 1, and at most
    /// [`SchedulerConfig::max_num_batched_tokens`](super::SchedulerConfig). What has to be computed
    /// in one step and is longer (a prompt without chunked prefill, an image or sound with
    /// `disable_chunked_mm_input`) is then computed in parts: it fits no other way.
    pub fn set_token_budget(&mut self, tokens: usize) {
        self.token_budget = tokens.clamp(1, self.config.max_num_batched_tokens);
    }

    /// Most tokens of the next step.
    #[must_use]
    pub fn token_budget(&self) -> usize {
        self.token_budget
    }

    /// The cohort, if it has a live member.
    pub(super) fn active_cohort(&self) -> Option<&Cohort> {
        self.cohort.as_ref().filter(|cohort| self.has_live(cohort))
    }

    /// The next one to admit, of those who may be.
    pub(super) fn next_waiting(&self, planning: &Planning) -> Option<(QueueKey, Slot)> {
        let now = planning.now;
        let Some(cohort) = &planning.cohort else {
            let apart = planning.dominant.and_then(|owner| self.waiting.peek_apart(owner, now));
            return apart.or_else(|| self.waiting.peek(now));
        };
        let slots = cohort.iter().filter_map(|&id| self.requests.find(id));
        let places = slots.filter_map(|slot| {
            let state = &self.requests[slot];
            match state.status {
                Status::Waiting(key) => Some((key, state.request.arrival)),
                Status::WaitingForStructuredOutputGrammar(_)
                | Status::Running
                | Status::Admitting(_)
                | Status::Finished => None,
            }
        });
        self.waiting.peek_among(places, now)
    }

    /// When the members of the cohort can compute nothing, it may be for what others hold (seats,
    /// blocks, encoder outputs), who do not get on meanwhile: one of those is preempted, and the
    /// step is planned again. False when that does not help.
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

    /// Who stands at a place of the running list.
    pub(super) fn id_at(&self, place: usize) -> RequestId {
        self.requests[self.running[place]].request.id
    }

    fn has_live(&self, cohort: &BTreeSet<RequestId>) -> bool {
        cohort.iter().any(|&id| self.requests.find(id).is_some())
    }

    /// Whether a member waits for more than its grammar.
    fn can_use_room(&self, cohort: &BTreeSet<RequestId>) -> bool {
        let mut live = cohort.iter().filter_map(|&id| self.requests.find(id));
        live.any(|slot| {
            !matches!(self.requests[slot].status, Status::WaitingForStructuredOutputGrammar(_))
        })
    }
}

impl Planning {
    /// Whether a request must not be scheduled in this step.
    pub(super) fn excludes(&self, request: RequestId) -> bool {
        self.cohort.as_ref().is_some_and(|cohort| !cohort.contains(&request))
    }
}
