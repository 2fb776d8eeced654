//! The work of each request in each step, derived from the steps sent to the worker. Equal steps
//! that follow each other are one segment. Only the latest requests, segments and epochs are kept.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::logic::{
    admission::Tenant,
    request::ids::{Epoch, RequestId, Step},
    scheduler::output::SchedulerOutput,
};

/// Maximum number of requests. Ended requests are dropped first.
const MAX_REQUESTS: usize = 96;
/// Maximum number of segments of a request. The oldest are dropped first.
const MAX_SEGMENTS: usize = 48;
/// Maximum number of epochs.
const MAX_EPOCHS: usize = 32;

/// The work of a request in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Computed a part of its prompt.
    Prefill,
    /// Computed again tokens that it had before a preemption or a new epoch.
    Recompute,
    /// Computed its last token, to get the next one.
    Decode,
    /// Lost its blocks to others.
    Preempted,
}

/// A run of equal steps of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Work in each step.
    pub kind: StepKind,
    /// The first of the steps.
    pub first_step: Step,
    /// Number of steps.
    pub num_steps: u64,
    /// Tokens computed in each.
    pub num_tokens: usize,
}

/// One request's steps.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timeline {
    /// Segments, the oldest first.
    pub segments: VecDeque<Segment>,
    /// Whether the request has ended.
    pub has_ended: bool,
    /// The tenant of the request; unknown until its first step is seen.
    pub tenant: Option<Tenant>,
    /// Whether tokens before the next new one are computed again, after a preemption or in a new
    /// epoch.
    is_resumed: bool,
    /// Number of tokens when it began or resumed. It decodes from there on.
    num_tokens_at_start: usize,
}

/// The steps of all requests that were seen lately.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Timelines {
    requests: BTreeMap<RequestId, Timeline>,
    /// The first step of each epoch.
    epochs: VecDeque<(Step, Epoch)>,
}

impl Timelines {
    /// Records a step that was sent to the worker.
    pub fn record(&mut self, output: &SchedulerOutput) {
        let step = output.step;
        if self.epochs.back().is_none_or(|&(_, epoch)| epoch != output.epoch) {
            self.epochs.push_back((step, output.epoch));
            if self.epochs.len() > MAX_EPOCHS {
                self.epochs.pop_front();
            }
        }
        for request in &output.finished {
            if let Some(timeline) = self.requests.get_mut(request) {
                timeline.has_ended = true;
            }
        }
        // A request preempted and resumed in the same step is also among the new ones.
        for request in &output.preempted {
            self.timeline(*request).push(StepKind::Preempted, step, 0);
        }
        for data in &output.scheduled_new {
            let timeline = self.timeline(data.request.id);
            timeline.tenant = data.request.tenant;
            timeline.is_resumed = !data.output_token_ids.is_empty();
            timeline.num_tokens_at_start =
                data.request.num_prompt_tokens() + data.output_token_ids.len();
            timeline.compute(step, data.num_scheduled_tokens);
        }
        for data in &output.scheduled_cached {
            let timeline = self.timeline(data.request);
            match data.num_computed_tokens < timeline.num_tokens_at_start {
                true => timeline.compute(step, data.num_scheduled_tokens),
                false => timeline.push(StepKind::Decode, step, data.num_scheduled_tokens),
            }
        }
        self.forget();
    }

    /// Returns the timelines of the requests, in order of acceptance.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, &Timeline)> {
        self.requests.iter().map(|(&request, timeline)| (request, timeline))
    }

    /// Returns the epochs of the steps seen, each with its first step.
    pub fn epochs(&self) -> impl Iterator<Item = (Step, Epoch)> {
        self.epochs.iter().copied()
    }

    fn timeline(&mut self, request: RequestId) -> &mut Timeline {
        self.requests.entry(request).or_default()
    }

    fn forget(&mut self) {
        while self.requests.len() > MAX_REQUESTS {
            let ended = self.requests.iter().find(|(_, timeline)| timeline.has_ended);
            let oldest = ended.or_else(|| self.requests.first_key_value());
            let Some((&request, _)) = oldest else { return };
            self.requests.remove(&request);
        }
    }
}

impl Timeline {
    fn compute(&mut self, step: Step, num_tokens: usize) {
        let kind = if self.is_resumed { StepKind::Recompute } else { StepKind::Prefill };
        self.push(kind, step, num_tokens);
    }

    fn push(&mut self, kind: StepKind, step: Step, num_tokens: usize) {
        if let Some(last) = self.segments.back_mut()
            && (last.kind, last.num_tokens) == (kind, num_tokens)
            && last.first_step.0 + last.num_steps == step.0
        {
            last.num_steps += 1;
            return;
        }
        self.segments.push_back(Segment { kind, first_step: step, num_steps: 1, num_tokens });
        if self.segments.len() > MAX_SEGMENTS {
            self.segments.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::logic::{
        kv_cache::BlockIds,
        request::EngineRequest,
        scheduler::output::{CachedRequestData, NewRequestData},
    };

    fn new(id: u64, outputs: &[u32], num_scheduled_tokens: usize) -> NewRequestData {
        let request = EngineRequest::for_test(id, [1; 20]);
        NewRequestData {
            request: Arc::new(request),
            output_token_ids: outputs.to_vec(),
            block_ids: BlockIds::default(),
            num_computed_tokens: 0,
            num_scheduled_tokens,
        }
    }

    fn cached(id: u64, num_computed_tokens: usize, num_tokens: usize) -> CachedRequestData {
        CachedRequestData {
            request: RequestId(id),
            new_block_ids: BlockIds::default(),
            num_computed_tokens,
            num_scheduled_tokens: num_tokens,
            num_lookahead_tokens: 0,
        }
    }

    fn step(
        step: u64,
        epoch: u64,
        new: Vec<NewRequestData>,
        cached: Vec<CachedRequestData>,
    ) -> SchedulerOutput {
        SchedulerOutput {
            step: Step(step),
            epoch: Epoch(epoch),
            scheduled_new: new,
            scheduled_cached: cached,
            ..SchedulerOutput::default()
        }
    }

    fn segments(timelines: &Timelines, request: u64) -> Vec<(StepKind, u64, u64, usize)> {
        let timeline = timelines.requests.get(&RequestId(request)).unwrap();
        let plain = |s: &Segment| (s.kind, s.first_step.0, s.num_steps, s.num_tokens);
        timeline.segments.iter().map(plain).collect()
    }

    #[test]
    fn a_request_computes_its_prompt_in_chunks_then_token_by_token() {
        let mut timelines = Timelines::default();
        timelines.record(&step(3, 1, vec![new(1, &[], 8)], vec![]));
        timelines.record(&step(4, 1, vec![], vec![cached(1, 8, 8)]));
        timelines.record(&step(5, 1, vec![], vec![cached(1, 16, 4)]));
        for at in 6..10 {
            timelines.record(&step(at, 1, vec![], vec![cached(1, 14 + at as usize, 1)]));
        }
        timelines.record(&SchedulerOutput {
            finished: vec![RequestId(1)],
            ..step(10, 1, vec![], vec![])
        });
        let prefill = StepKind::Prefill;
        assert_eq!(
            segments(&timelines, 1),
            [(prefill, 3, 2, 8), (prefill, 5, 1, 4), (StepKind::Decode, 6, 4, 1)]
        );
        assert!(timelines.requests[&RequestId(1)].has_ended);
    }

    #[test]
    fn recomputed_tokens_are_distinguished() {
        let mut timelines = Timelines::default();
        timelines.record(&step(1, 1, vec![new(1, &[], 20)], vec![]));
        timelines.record(&step(2, 1, vec![], vec![cached(1, 20, 1)]));
        let preempted = SchedulerOutput {
            preempted: vec![RequestId(1)],
            ..step(3, 1, vec![new(1, &[5, 6], 10)], vec![])
        };
        timelines.record(&preempted);
        timelines.record(&step(4, 1, vec![], vec![cached(1, 10, 12)]));
        timelines.record(&step(5, 1, vec![], vec![cached(1, 22, 1)]));
        // A new core receives the whole request, and all but the last token are cached.
        timelines.record(&step(6, 2, vec![new(1, &[5, 6, 7, 8], 1)], vec![]));
        use StepKind::{Decode, Preempted, Prefill, Recompute};
        assert_eq!(
            segments(&timelines, 1),
            [
                (Prefill, 1, 1, 20),
                (Decode, 2, 1, 1),
                (Preempted, 3, 1, 0),
                (Recompute, 3, 1, 10),
                (Recompute, 4, 1, 12),
                (Decode, 5, 1, 1),
                (Recompute, 6, 1, 1)
            ]
        );
        let epochs: Vec<_> = timelines.epochs().collect();
        assert_eq!(epochs, [(Step(1), Epoch(1)), (Step(6), Epoch(2))]);
    }

    #[test]
    fn a_step_without_it_is_a_gap() {
        let mut timelines = Timelines::default();
        for at in [1, 2, 4] {
            timelines.record(&step(at, 1, vec![], vec![cached(1, 20, 1)]));
        }
        let decode = StepKind::Decode;
        assert_eq!(segments(&timelines, 1), [(decode, 1, 2, 1), (decode, 4, 1, 1)]);
    }

    #[test]
    fn only_the_latest_is_kept() {
        let mut timelines = Timelines::default();
        for at in 1..=400 {
            let tokens = 2 + at as usize % 2;
            timelines.record(&step(at, at, vec![], vec![cached(0, 20, tokens)]));
        }
        assert_eq!(timelines.requests[&RequestId(0)].segments.len(), MAX_SEGMENTS);
        assert_eq!(timelines.epochs().last(), Some((Step(400), Epoch(400))));
        assert_eq!(timelines.epochs().count(), MAX_EPOCHS);
        let finished = vec![RequestId(3)];
        timelines
            .record(&SchedulerOutput { finished, ..step(401, 400, vec![new(3, &[], 1)], vec![]) });
        timelines.record(&SchedulerOutput {
            finished: vec![RequestId(3)],
            ..step(402, 400, vec![], vec![])
        });
        for id in 4..4 + MAX_REQUESTS as u64 {
            timelines.record(&step(500 + id, 400, vec![new(id, &[], 1)], vec![]));
        }
        let kept: Vec<u64> = timelines.requests().map(|(request, _)| request.0).collect();
        assert_eq!(kept.len(), MAX_REQUESTS);
        assert!(!kept.contains(&3), "an ended request is dropped before a live one");
        assert!(!kept.contains(&0) && kept.contains(&4));
    }
}
