//! Requests come, are given up, come back after a crash.

use std::sync::Arc;

use super::{
    PauseState, Scheduler, WaitingReason,
    grammars::Grammars,
    request_state::{RequestState, Status},
    request_table::{RequestTable, Slot},
};
use crate::{
    error::RequestError,
    fault::{Bug, planted},
    logic::{
        encoder_cache::EncoderCacheManager,
        ids::{Epoch, RequestId, Step, TokenId},
        request::EngineRequest,
        request_queue::{RequestQueue, SchedulingPolicy},
    },
};

/// A live request as the ledger remembers it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoveredRequest {
    /// The request.
    pub request: Arc<EngineRequest>,
    /// The tokens committed so far.
    pub output_token_ids: Vec<TokenId>,
    /// Prompt positions whose log-probabilities were committed, from position 1 on without gaps.
    pub num_prompt_logprobs: usize,
}

impl Scheduler {
    /// Whether a prompt of this length can ever run; ask before accepting it.
    ///
    /// # Errors
    /// [`RequestError::Unservable`] when prompt and first output token do not fit the whole cache.
    pub fn check_servable(&self, prompt_len: usize) -> Result<(), RequestError> {
        self.config.check_servable(prompt_len)
    }

    /// A new request waits. False if one with its id is there already, which is left alone.
    pub fn add(&mut self, request: Arc<EngineRequest>) -> bool {
        let recovered =
            RecoveredRequest { request, output_token_ids: Vec::new(), num_prompt_logprobs: 0 };
        self.enqueue(recovered)
    }

    /// Gives requests up. Returns those that were there; what they still have in flight is
    /// dropped, and their blocks are freed by the first step after it.
    pub fn finish(&mut self, requests: &[RequestId]) -> Vec<RequestId> {
        let live = requests.iter().copied().filter(|&id| self.requests.find(id).is_some());
        let live: Vec<RequestId> = live.collect();
        // Plans name requests, and their answers must find them.
        if let Some(planning) = &mut self.planning {
            planning.finish_later.extend_from_slice(&live);
            return live;
        }
        live.into_iter().filter(|&id| self.finish_now(id)).collect()
    }

    /// Changes what may be scheduled from the next step on.
    pub fn set_pause(&mut self, pause: PauseState) {
        self.pause = pause;
    }

    /// What may be scheduled.
    #[must_use]
    pub fn pause(&self) -> PauseState {
        self.pause
    }

    /// Asks that nothing cached be hit any more; [`super::Scheduled::prefix_cache_reset`] of the
    /// next step tells whether it was done. It is done only if no request holds a block, so
    /// `reset_running` preempts those that do; they keep their order and come back at once.
    pub fn reset_prefix_cache(&mut self, reset_running: bool) {
        self.reset_requested = Some(reset_running || self.reset_requested == Some(true));
    }

    /// The core begins again: all that was derived is dropped, and the live requests wait in the
    /// order of the policy. Steps count on from `last_step` or the last one of this scheduler.
    /// The first plan of the new epoch makes the KV cache manager let go of all tables; a worker
    /// drops all requests with the first step of the new epoch.
    pub fn recover(&mut self, epoch: Epoch, last_step: Step, mut live: Vec<RecoveredRequest>) {
        self.epoch = epoch;
        self.is_new_epoch = true;
        self.step = self.step.max(last_step);
        self.requests = RequestTable::default();
        self.running.clear();
        self.running_is_dirty = false;
        self.waiting = RequestQueue::new(self.config.policy, self.config.priority_age_bound);
        self.grammars = Grammars::default();
        self.waiting_reason = WaitingReason::default();
        self.deadlines.clear();
        self.encoder_cache = EncoderCacheManager::new(self.config.encoder_cache_size);
        self.frees.clear();
        self.finished.clear();
        self.preempted.clear();
        self.planning = None;
        self.in_flight.clear();
        self.planned_ahead_of = None;
        self.must_settle = false;
        self.completed_step = None;
        self.unsealed_step = None;
        self.last_admission = None;
        live.sort_by_key(|recovered| {
            let request = &recovered.request;
            let priority = match self.config.policy {
                SchedulingPolicy::Fcfs => 0,
                SchedulingPolicy::Priority => request.priority,
            };
            (priority, request.arrival, request.id)
        });
        for recovered in live {
            self.enqueue(recovered);
        }
    }

    fn enqueue(&mut self, recovered: RecoveredRequest) -> bool {
        let RecoveredRequest { request, output_token_ids, num_prompt_logprobs } = recovered;
        if self.requests.find(request.id).is_some() {
            return false;
        }
        if let Some(deadline) = request.deadline.filter(|_| output_token_ids.is_empty()) {
            self.deadlines.insert((deadline, request.id));
        }
        let max_model_len = self.config.max_model_len;
        let (waiting, grammars) = (&mut self.waiting, &mut self.grammars);
        self.requests.insert(request.id, |slot| {
            let format = request.params.structured_output.as_ref();
            let status = match format.filter(|_| !planted(Bug::SkipGrammar)) {
                None => Status::Waiting(waiting.push_back(&request, slot)),
                Some(format) => {
                    grammars.wait(format, request.id);
                    Status::WaitingForStructuredOutputGrammar(waiting.reserve_back(&request))
                }
            };
            let mut state = RequestState::new(request, output_token_ids, status, max_model_len);
            state.num_prompt_logprobs = num_prompt_logprobs;
            state
        });
        true
    }

    pub(super) fn finish_now(&mut self, id: RequestId) -> bool {
        let Some(slot) = self.requests.find(id) else { return false };
        self.end(slot, false);
        if planted(Bug::LeakOnAbort) {
            self.frees.retain(|(freed, _)| *freed != id);
        }
        true
    }

    /// A request that ends while it waits holds no blocks, but the block directory may still keep a
    /// tail for it.
    fn release_waiting(&mut self, slot: Slot, discard: bool) {
        let state = &self.requests[slot];
        if state.has_tail {
            self.frees.push((state.request.id, discard));
        }
        self.requests.release(slot);
    }

    /// A request is over, running or waiting: a plan frees its blocks when no step in flight has it,
    /// the next output tells the worker.
    pub(super) fn end(&mut self, slot: Slot, discard: bool) {
        self.free_media(slot);
        let state = &mut self.requests[slot];
        let id = state.request.id;
        let before = std::mem::replace(&mut state.status, Status::Finished);
        if let Some(deadline) = state.request.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        self.finished.push(id);
        self.requests.hide(id);
        match before {
            Status::Waiting(key) => {
                let state = &self.requests[slot];
                self.waiting.remove(key, state.request.arrival);
                self.release_waiting(slot, discard);
            }
            Status::WaitingForStructuredOutputGrammar(_) => {
                if let Some(format) = &self.requests[slot].request.params.structured_output {
                    self.grammars.leave(format, id);
                }
                self.release_waiting(slot, discard);
            }
            Status::Running | Status::Finished | Status::Admitting(_) => {
                self.frees.push((id, discard));
                self.running_is_dirty = true;
            }
        }
    }

    /// A running request waits again, ahead of the others, and will be computed from the start.
    pub(super) fn requeue(&mut self, slot: Slot, discard: bool) {
        self.free_media(slot);
        let state = &mut self.requests[slot];
        state.forget_computed();
        let request = Arc::clone(&state.request);
        state.status = Status::Waiting(self.waiting.push_front(&request, slot));
        if let Some(deadline) = request.deadline.filter(|_| state.output_token_ids.is_empty()) {
            self.deadlines.insert((deadline, request.id));
        }
        self.frees.push((request.id, discard));
        self.preempted.push(request.id);
        self.running_is_dirty = true;
    }

    /// Takes those out of the running list that no longer run.
    pub(super) fn compact_running(&mut self) {
        if !std::mem::take(&mut self.running_is_dirty) {
            return;
        }
        let requests = &mut self.requests;
        self.running.retain(|&slot| match requests[slot].status {
            Status::Running => true,
            Status::Finished => {
                requests.release(slot);
                false
            }
            Status::Waiting(_)
            | Status::WaitingForStructuredOutputGrammar(_)
            | Status::Admitting(_) => false,
        });
    }
}
