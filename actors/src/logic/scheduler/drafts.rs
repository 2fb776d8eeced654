//! Places for guesses: how many guessed tokens a step verifies for a request.
//!
//! The executor guesses, because only the executor knows a request's last token when a step begins.
//! The scheduler grants places. A step counts all places as computed until its result shows how
//! many guesses were right. One rule holds for all rows: computed = position + accepted.
//!
//! A model with states keeps no guess, because a wrong one could not be taken out of a state. Only
//! the tokens before the guesses count as computed there. The next step computes right guesses
//! again, before new ones. A step planned before the result is known has places for all of them.
//! Its row is planned whole or not at all, because the request's last token must be in it.
//!
//! Guesses must never cost another request its turn or its blocks. They therefore get only the
//! tokens that no running request needs, and they cause no preemption. A tenant pays only for
//! places that had a guess.

use super::{
    Scheduler, flight::InFlightRow, planning::Planning, request_state::RequestState,
    request_table::Slot,
};

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
        if most == 0 || is_part || is_refused {
            return 0;
        }
        let num_behind = self.queues.running.len().saturating_sub(planning.cursor + 1);
        let spare_tokens = planning.token_budget.saturating_sub(num_tokens + num_behind);
        let most_tokens = planning.most_tokens.saturating_sub(num_tokens);
        most.min(spare_tokens).min(most_tokens).min(state.num_guesses_max())
    }

    /// Returns how many of a request's tokens are computed whatever guesses in flight are right.
    pub(super) fn num_certain(&self, state: &RequestState) -> usize {
        match self.demand.keeps_guesses() {
            true => state.num_computed_tokens - state.num_guesses,
            false => state.num_computed_tokens.min(state.num_tokens()),
        }
    }

    /// Returns the first position that a row may compute which is planned from `start` on, because
    /// guesses in flight may be wrong.
    pub(super) fn certain_start(&self, slot: Slot, start: usize) -> usize {
        match self.demand.keeps_guesses() {
            true => start - self.requests[slot].num_guesses,
            false => start,
        }
    }

    /// Returns whether it depends on guesses in flight which tokens the request's next row has.
    pub(super) fn has_open_row(&self, state: &RequestState) -> bool {
        state.num_guesses > 0 && !self.demand.keeps_guesses()
    }

    /// Counts the guesses of a computed row that were wrong, which are not computed. The request
    /// has the row's tokens. Gives its tenant the places back that had no guess, and those of wrong
    /// guesses in a later row. `num_drafted` places had a guess.
    pub(super) fn settle_guesses(
        &mut self,
        planned: InFlightRow,
        num_rejected: usize,
        num_drafted: usize,
    ) {
        let mut num_empty = planned.num_guesses().saturating_sub(num_drafted);
        let keeps_guesses = self.demand.keeps_guesses();
        let state = &mut self.requests[planned.slot];
        state.num_guesses -= planned.num_guesses();
        if keeps_guesses {
            state.num_computed_tokens -= num_rejected;
        } else {
            let num_known = state.num_tokens();
            let num_missing = state.num_computed_tokens.saturating_sub(num_known);
            state.num_computed_tokens -= num_missing;
            num_empty += num_missing;
        }
        if num_empty > 0 {
            let tenant = self.requests[planned.slot].request.tenant;
            self.queues.waiting.refund(tenant, num_empty);
        }
    }
}
