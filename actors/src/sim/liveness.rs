//! Liveness: after the faults have ended, every accepted request ends within a bound. The checker
//! computes it from the tokens of the requests, and from the longest times of a step and of a
//! recovery. So no request waits for ever, or for an event that another request happens to cause.

use crate::logic::request::{EngineRequest, ids::Micros};

/// Longest time of a step that does not hang.
const LONGEST_STEP: Micros = 50_000;
/// Longest wait of a request for its grammar, its images, its adapter, and its client's retry.
const LONGEST_WAIT: Micros = 3_000_000;
/// Number of times that a request's tokens are computed: once, and again after a preemption or as
/// a suspect in a smaller group.
const NUM_TIMES: u64 = 3;

/// The bound of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Liveness {
    /// The time at which all requests have ended. `None`: there are still faults.
    bound: Option<Micros>,
    paused_at: Option<Micros>,
}

impl Liveness {
    /// Begins the phase. `recovery` is the longest time until work goes on after the last fault.
    pub(super) fn begin(
        &mut self,
        now: Micros,
        recovery: Micros,
        live: impl Iterator<Item = Micros>,
    ) {
        if self.bound.is_none() {
            self.bound = Some(now + 2 * recovery + live.sum::<Micros>());
        }
    }

    /// Extends the bound for a request that is accepted now and takes at most `time`.
    pub(super) fn accepted(&mut self, now: Micros, time: Micros) {
        self.bound = self.bound.map(|bound| bound.max(now) + time);
    }

    /// Records whether the operator pauses requests. A pause does not count.
    pub(super) fn set_paused(&mut self, now: Micros, is_paused: bool) {
        if let (Some(bound), Some(at)) = (&mut self.bound, self.paused_at.take()) {
            *bound += now.saturating_sub(at);
        }
        self.paused_at = is_paused.then_some(now);
    }

    /// Returns the time at which all requests have ended, if it is known.
    pub(super) fn bound(&self) -> Option<Micros> {
        self.bound.filter(|_| self.paused_at.is_none())
    }
}

/// Returns the longest time that a request takes, with the time that others take before it.
/// `prefill_interval` is the number of steps from one that begins prompts to the next.
pub(super) fn longest_time(request: &EngineRequest, prefill_interval: u64) -> Micros {
    let max_tokens = request.sampling().map_or(1, |params| params.max_tokens as usize);
    let num_tokens = (request.num_prompt_tokens() + max_tokens) as u64;
    LONGEST_WAIT + NUM_TIMES * LONGEST_STEP * num_tokens * prefill_interval.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_grows_with_requests_and_pauses() {
        let mut liveness = Liveness::default();
        liveness.accepted(5, 100);
        assert_eq!(liveness.bound(), None, "there are still faults");
        liveness.begin(10, 7, [3, 4].into_iter());
        assert_eq!(liveness.bound(), Some(10 + 14 + 7));
        liveness.accepted(20, 9);
        assert_eq!(liveness.bound(), Some(40));
        liveness.accepted(60, 1);
        assert_eq!(liveness.bound(), Some(61), "nothing was to be done for a while");
        liveness.set_paused(61, true);
        assert_eq!(liveness.bound(), None);
        liveness.set_paused(70, false);
        assert_eq!(liveness.bound(), Some(70));
    }
}
