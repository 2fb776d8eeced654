//! The steps that an engine process computes and its work beside them, as its front knows them. If
//! the process dies, one of their requests may be the cause.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::logic::request::{
    EngineRequest,
    ids::{Epoch, RequestId, Step},
    lora::LoraRequest,
    structured_output::StructuredOutput,
};

/// Work beside the steps, which may end the process as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SideWork {
    /// Encodes the images and sounds with these identifiers.
    Encode(Vec<Arc<str>>),
    /// Compiles the grammar of this format.
    Compile(Arc<StructuredOutput>),
    /// Loads this adapter.
    Load(Arc<LoraRequest>),
}

impl SideWork {
    /// Returns whether a request needs the result.
    #[must_use]
    pub fn is_for(&self, request: &EngineRequest) -> bool {
        match self {
            Self::Encode(items) => {
                request.mm_features.iter().any(|item| items.contains(&item.identifier))
            }
            Self::Compile(format) => {
                let params = request.sampling();
                params.and_then(|params| params.structured_output.as_ref()) == Some(format)
            }
            Self::Load(adapter) => request.lora.as_ref() == Some(adapter),
        }
    }
}

/// The requests that needed work beside the steps when a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NeededAtEnds(BTreeSet<RequestId>);

impl NeededAtEnds {
    /// Records the end of a process while these requests needed work beside its steps. Returns
    /// those that did so at an earlier end, too: most ends do not repeat, and all other requests
    /// wait until the grammar or the image of a suspect is ready. Forgets requests that have ended.
    #[must_use]
    pub fn again(
        &mut self,
        beside: &[RequestId],
        is_live: impl Fn(RequestId) -> bool,
    ) -> Vec<RequestId> {
        self.0.retain(|request| is_live(*request));
        let again = beside.iter().copied().filter(|request| self.0.contains(request)).collect();
        self.0.extend(beside);
        again
    }
}

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

    /// Returns the same, with the requests of work beside the steps. These may have computed no
    /// token. `epoch` is the current one: steps of an earlier one do not count.
    #[must_use]
    pub fn suspects_with(
        &self,
        epoch: Epoch,
        beside: Vec<RequestId>,
    ) -> Option<(Epoch, Vec<(RequestId, usize)>)> {
        let of_steps = self.suspects().filter(|(of_steps, _)| *of_steps == epoch);
        let mut suspects = of_steps.map_or_else(Vec::new, |(_, suspects)| suspects);
        for request in beside {
            if !suspects.iter().any(|(known, _)| *known == request) {
                suspects.push((request, 0));
            }
        }
        (!suspects.is_empty()).then_some((epoch, suspects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::request::{media::MultimodalFeature, structured_output::OutputFormat};

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
    fn the_requests_of_work_beside_the_steps_are_suspects_too() {
        let mut steps = StepsInFlight::default();
        assert_eq!(steps.suspects_with(Epoch(2), Vec::new()), None);
        let beside = vec![RequestId(2), RequestId(7)];
        let alone = requests([(2, 0), (7, 0)]);
        assert_eq!(steps.suspects_with(Epoch(2), beside.clone()), Some((Epoch(2), alone.clone())));
        steps.given(Epoch(2), Step(5), requests([(1, 10), (2, 20)]));
        let all = requests([(1, 10), (2, 20), (7, 0)]);
        assert_eq!(steps.suspects_with(Epoch(2), beside.clone()), Some((Epoch(2), all)));
        assert_eq!(steps.suspects_with(Epoch(3), beside), Some((Epoch(3), alone)));
        assert_eq!(steps.suspects_with(Epoch(3), Vec::new()), None);
    }

    #[test]
    fn a_request_is_no_suspect_at_the_first_end_that_finds_its_work() {
        let mut needed = NeededAtEnds::default();
        let [one, two] = [1, 2].map(RequestId);
        assert_eq!(needed.again(&[one], |_| true), []);
        assert_eq!(needed.again(&[one, two], |_| true), [one]);
        assert_eq!(needed.again(&[], |_| true), []);
        assert_eq!(needed.again(&[one, two], |_| true), [one, two], "also after other ends");
        assert_eq!(needed.again(&[one, two], |request| request == two), [two]);
    }

    #[test]
    fn work_is_for_the_requests_that_wait_for_its_result() {
        let item = MultimodalFeature::of_text(&[1, 2]);
        let format = |text: &str| Arc::new(OutputFormat::Regex(text.to_owned()).into());
        let adapter = |name| Arc::new(LoraRequest::for_test(name));
        let mut constrained = EngineRequest::for_test(1, [3]);
        constrained.sampling_mut().structured_output = Some(format("a"));
        let pictured = EngineRequest {
            mm_features: Arc::from([item.clone()]),
            ..EngineRequest::for_test(2, [3])
        };
        let adapted = EngineRequest { lora: Some(adapter("a")), ..EngineRequest::for_test(3, [3]) };
        let all = [&constrained, &pictured, &adapted];
        let is_for = |work: SideWork| all.map(|request| work.is_for(request));
        assert_eq!(is_for(SideWork::Compile(format("a"))), [true, false, false]);
        assert_eq!(is_for(SideWork::Compile(format("b"))), [false; 3]);
        assert_eq!(is_for(SideWork::Encode(vec![item.identifier])), [false, true, false]);
        assert_eq!(is_for(SideWork::Encode(vec!["other".into()])), [false; 3]);
        assert_eq!(is_for(SideWork::Load(adapter("a"))), [false, false, true]);
        assert_eq!(is_for(SideWork::Load(adapter("b"))), [false; 3]);
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
