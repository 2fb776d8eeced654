//! Planning a step while the one before is computed. The tokens that the earlier step samples are
//! not known yet, but their places are. A running request gets one more token and needs a place for
//! it. The worker appends the tokens that it samples, so it has them when it computes the planned
//! step.
//!
//! A request may end unexpectedly with the step in flight, by the token that it gets. It is then
//! computed once more; the result is dropped, and the request keeps its blocks until then. All
//! other actions that would interfere with a step in flight wait until there is none. These are
//! preemption, retries, cohorts, pauses and resets.

use super::{PauseState, Scheduler, request_state::Status, request_table::Slot};

impl Scheduler {
    /// Returns whether the next step can be planned while one is in flight. There is one attempt
    /// for each step in flight. Otherwise every message that arrives meanwhile could cause an empty
    /// plan.
    #[must_use]
    pub fn can_plan_ahead(&self) -> bool {
        self.config.async_scheduling
            && self.flight.steps.len() == 1
            && self.flight.planned_ahead_of != self.step_in_flight()
            && !self.flight.must_settle
            && self.pause == PauseState::Unpaused
            && self.outbox.reset_requested.is_none()
            && self.active_cohort().is_none()
            && self.queues.running.iter().any(|&slot| self.goes_on(slot))
    }

    fn goes_on(&self, slot: Slot) -> bool {
        let state = &self.requests[slot];
        let has_more = state.num_remaining() > 0 && !state.will_be_full();
        state.status == Status::Running && has_more
    }
}
