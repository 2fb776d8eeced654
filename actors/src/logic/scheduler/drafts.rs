//! Places for guesses: how many guessed tokens a step verifies for a request.
//!
//! The executor guesses, because only the executor knows a request's last token when a step begins.
//! The scheduler grants places. A step counts all places as computed until its result shows how
//! many guesses were right. One rule holds for all rows: computed = position + accepted.
//!
//! Guesses must never cost another request its turn or its blocks. They therefore get only the
//! tokens that no running request needs, and they cause no preemption. A tenant pays only for
//! places that had a guess.

use super::{Scheduler, flight::InFlightRow, planning::Planning, request_table::Slot};

impl Scheduler {
    /// Returns the number of guesses that a row may verify after `num_tokens` tokens of the
    /// request at the planning's cursor.
    pub(super) fn num_lookahead(
        &self,
        planning: &Planning,
        slot: Slot,
        num_tokens: usize,
    ) -> usize {
        let state = &self.requests[slot];
        let most = state.num_wanted_guesses.min(self.config.num_lookahead_tokens);
        let is_part = num_tokens == 0 || num_tokens < state.num_remaining();
        // A failed step with guesses says nothing about the requests, so suspects have none.
        let is_refused = planning.is_tight || planning.is_short || planning.cohort.is_some();
        // A wrong guess would stay in a state.
        if most == 0 || is_part || is_refused || !self.demand.keeps_tokens_apart() {
            return 0;
        }
        let num_behind = self.queues.running.len().saturating_sub(planning.cursor + 1);
        let spare_tokens = planning.token_budget.saturating_sub(num_tokens + num_behind);
        let most_tokens = planning.most_tokens.saturating_sub(num_tokens);
        most.min(spare_tokens).min(most_tokens).min(state.num_guesses_max())
    }
    /// Gives the tenant of a computed row the places back that had no guess. `num_drafted` places
    /// had one.
    pub(super) fn refund_places(&mut self, planned: InFlightRow, num_drafted: usize) {
        let num_empty = planned.num_guesses().saturating_sub(num_drafted);
        if num_empty > 0 {
            let tenant = self.requests[planned.slot].request.tenant;
            self.queues.waiting.refund(tenant, num_empty);
        }
    }
}
