//! The steps in flight: planned, and not computed yet as far as the scheduler knows.

use std::collections::VecDeque;

use super::request_table::Slot;
use crate::logic::request::ids::{RequestId, Step};

/// The steps in flight, and the state of planning beside them.
#[derive(Debug, Clone, Default)]
pub(super) struct Flight {
    /// The steps whose results are awaited, in their order.
    pub(super) steps: VecDeque<InFlight>,
    /// The step in flight when planning the next step was last attempted.
    pub(super) planned_ahead_of: Option<Step>,
    /// Whether planning waits until no step is in flight.
    pub(super) must_settle: bool,
    pub(super) completed_step: Option<Step>,
    /// The last step that filled blocks, if the KV cache manager has not learned yet that it is
    /// computed.
    pub(super) unsealed_step: Option<Step>,
}

/// A step that the worker computes now or later.
#[derive(Debug, Clone)]
pub(super) struct InFlight {
    pub(super) step: Step,
    /// The rows, in the order of the output.
    pub(super) rows: Vec<InFlightRow>,
}

/// A request's part of a step in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlightRow {
    pub(super) slot: Slot,
    pub(super) request: RequestId,
    /// The first position that the row may compute.
    pub(super) start: usize,
    /// Largest number of tokens that the row yields. A part of a prompt yields none. Another row
    /// yields one for the request's last token, and one for each guessed token after it.
    pub(super) num_draws: usize,
    pub(super) is_answered: bool,
}

impl InFlightRow {
    /// Returns how many of the row's tokens are guesses.
    pub(super) fn num_guesses(&self) -> usize {
        self.num_draws.saturating_sub(1)
    }

    /// Returns how many of the row's tokens were wrong guesses, given the number of tokens that it
    /// yielded. The request's computed tokens end at the row's position plus the accepted tokens.
    /// Wrong guesses therefore do not count as computed. Returns `None` if the row lacks its token.
    pub(super) fn num_rejected(&self, num_sampled: usize) -> Option<usize> {
        match (self.num_draws, num_sampled) {
            // A worker may draw for a part of a prompt. The token is dropped.
            (0, _) => Some(0),
            (_, 0) => None,
            // The next step computes tokens beyond the draws.
            (num_draws, num_sampled) => Some(num_draws.saturating_sub(num_sampled)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::scheduler::request_table::RequestTable;

    #[test]
    fn computed_tokens_end_at_the_position_plus_the_accepted_ones() {
        let slot = RequestTable::default().next_slot();
        let row = |num_draws| InFlightRow {
            slot,
            request: RequestId(1),
            start: 0,
            num_draws,
            is_answered: false,
        };
        let rejected = |num_draws, num_sampled| row(num_draws).num_rejected(num_sampled);
        assert_eq!([rejected(0, 0), rejected(0, 1)], [Some(0), Some(0)], "a part draws nothing");
        assert_eq!([rejected(1, 0), rejected(1, 1), rejected(1, 2)], [None, Some(0), Some(0)]);
        assert_eq!([rejected(3, 1), rejected(3, 3), rejected(3, 4)], [Some(2), Some(0), Some(0)]);
    }
}
