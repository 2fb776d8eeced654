//! The steps that an engine process computes, as its front knows them. If the process dies, one of
//! their requests may be the cause.

use std::collections::VecDeque;

use crate::logic::request::ids::{Epoch, RequestId, Step};

/// The steps in flight of one engine process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepsInFlight {
    epoch: Epoch,
    /// The steps, in order, each with its requests and their numbers of computed tokens after it.
    steps: VecDeque<(Step, Vec<(RequestId, usize)>)>,
}

impl StepsInFlight {
    /// Records that the device got a step. Each request comes with its number of computed tokens
    /// after the step. A new epoch drops the steps of the one before.
    pub fn given(&mut self, epoch: Epoch, step: Step, requests: Vec<(RequestId, usize)>) {
        if epoch > self.epoch {
            *self = Self { epoch, steps: VecDeque::new() };
        }
        if epoch == self.epoch {
            self.steps.push_back((step, requests));
        }
    }

    /// Records that a step was computed, and so all before it.
    pub fn done(&mut self, epoch: Epoch, step: Step) {
        if epoch == self.epoch {
            self.steps.retain(|(other, _)| *other > step);
        }
    }

    /// Records that a step failed. The steps after it are dropped.
    pub fn failed(&mut self) {
        self.steps.clear();
    }

    /// Returns the requests of all steps in flight, and their epoch. A request comes with its
    /// number of computed tokens after the first of these steps that it is in. Returns `None` if no
    /// step is in flight.
    #[must_use]
    pub fn suspects(&self) -> Option<(Epoch, Vec<(RequestId, usize)>)> {
        let mut suspects: Vec<(RequestId, usize)> = Vec::new();
        for (request, num_tokens) in self.steps.iter().flat_map(|(_, requests)| requests) {
            if !suspects.iter().any(|(known, _)| known == request) {
                suspects.push((*request, *num_tokens));
            }
        }
        (!suspects.is_empty()).then_some((self.epoch, suspects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests<const N: usize>(requests: [(u64, usize); N]) -> Vec<(RequestId, usize)> {
        requests.map(|(id, num_tokens)| (RequestId(id), num_tokens)).to_vec()
    }

    #[test]
    fn the_requests_of_all_steps_in_flight_are_suspects() {
        let mut steps = StepsInFlight::default();
        assert_eq!(steps.suspects(), None);
        steps.given(Epoch(2), Step(5), requests([(1, 10), (2, 20)]));
        steps.given(Epoch(2), Step(6), requests([(1, 11), (3, 30)]));
        let suspects = requests([(1, 10), (2, 20), (3, 30)]);
        assert_eq!(steps.suspects(), Some((Epoch(2), suspects)));
        steps.done(Epoch(2), Step(5));
        assert_eq!(steps.suspects(), Some((Epoch(2), requests([(1, 11), (3, 30)]))));
        steps.done(Epoch(2), Step(6));
        assert_eq!(steps.suspects(), None);
    }

    #[test]
    fn a_new_epoch_and_a_failed_step_drop_the_others() {
        let mut steps = StepsInFlight::default();
        steps.given(Epoch(2), Step(5), requests([(1, 10)]));
        steps.given(Epoch(3), Step(6), requests([(2, 20)]));
        steps.given(Epoch(2), Step(7), requests([(3, 30)]));
        steps.done(Epoch(2), Step(9));
        assert_eq!(steps.suspects(), Some((Epoch(3), requests([(2, 20)]))));
        steps.failed();
        assert_eq!(steps.suspects(), None);
    }
}
