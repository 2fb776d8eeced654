//! Planning a step while the one before is computed. What that one draws is not known yet, but where
//! it will stand is: a request that runs gets one token more, and needs a place for it. The worker
//! appends the tokens that it draws, so it has them when the planned step's turn comes.
//!
//! A request that ends with the step in flight, by a token that nobody could foresee, is computed
//! once more in vain, and keeps its blocks until that is done. Whatever else would interfere with
//! what is under way waits until nothing is: preemption, retries, cohorts, pauses, resets.

use super::{PauseState, Scheduler, request_state::Status, request_table::Slot};

impl Scheduler {
    /// Whether the next step can be planned while one is in flight. Each gets one try, so that there is
    /// no plan of nothing for every message that comes meanwhile.
    #[must_use]
    pub fn can_plan_ahead(&self) -> bool {
        self.config.async_scheduling
            && self.in_flight.len() == 1
            && self.planned_ahead_of != self.step_in_flight()
            && !self.must_settle
            && self.pause == PauseState::Unpaused
            && self.reset_requested.is_none()
            && self.active_cohort().is_none()
            && self.running.iter().any(|&slot| self.goes_on(slot))
    }

    fn goes_on(&self, slot: Slot) -> bool {
        let state = &self.requests[slot];
        let has_more = state.num_remaining() > 0 && !state.will_be_full();
        state.status == Status::Running && has_more
    }
}
