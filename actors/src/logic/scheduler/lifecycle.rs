//! Requests are added, aborted, and recovered after a crash.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    PauseState, Scheduler, SchedulerConfig,
    aside::Resource,
    flight::Flight,
    media::Media,
    outbox::{Freed, Outbox},
    queues::Queues,
    request_state::{RequestState, Status},
    request_table::{RequestTable, Slot},
};
use crate::{
    error::RequestError,
    logic::{
        planted::{Bug, planted},
        request::{
            EngineRequest,
            ids::{Epoch, RequestId, Step, TokenId},
        },
        scheduler::request_queue::SchedulingPolicy,
    },
};

/// A live request as the ledger knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecoveredRequest {
    /// The request.
    pub request: Arc<EngineRequest>,
    /// The tokens committed so far.
    pub output_token_ids: Vec<TokenId>,
    /// Number of prompt positions whose log-probabilities were committed, from position 1 on
    /// without gaps.
    pub num_prompt_logprobs: usize,
}

impl Scheduler {
    /// Checks whether a prompt of this length can ever run. Must be called before the prompt is
    /// accepted.
    ///
    /// # Errors
    /// [`RequestError::Unservable`] if the prompt and its first output token do not fit the whole
    /// cache.
    pub fn check_servable(&self, prompt_len: usize) -> Result<(), RequestError> {
        self.config.check_servable(prompt_len)
    }

    /// Adds a new request to the waiting ones. Returns `false`, without effect, if a request with
    /// its id exists already.
    pub fn add(&mut self, request: Arc<EngineRequest>) -> bool {
        let recovered =
            RecoveredRequest { request, output_token_ids: Vec::new(), num_prompt_logprobs: 0 };
        self.enqueue(recovered)
    }

    /// Aborts requests, and returns those that were live. Their results in flight are dropped. The
    /// first step after those in flight frees their blocks.
    pub fn finish(&mut self, requests: &[RequestId]) -> Vec<RequestId> {
        let live = requests.iter().copied().filter(|&id| self.requests.find(id).is_some());
        let live: Vec<RequestId> = live.collect();
        // Plans name requests, and the answers must find these requests.
        if let Some(planning) = &mut self.planning {
            planning.finish_later.extend_from_slice(&live);
            return live;
        }
        live.into_iter().filter(|&id| self.finish_now(id)).collect()
    }

    /// Changes the pause state from the next step on.
    pub fn set_pause(&mut self, pause: PauseState) {
        self.pause = pause;
    }

    /// Returns the pause state.
    #[must_use]
    pub fn pause(&self) -> PauseState {
        self.pause
    }

    /// Asks for a reset of the prefix cache, so that no old content is hit.
    /// [`super::Scheduled::prefix_cache_reset`] of the next step says whether it was done. It is
    /// done only if no request holds a block. `reset_running` therefore preempts all running
    /// requests; they keep their order and can be admitted again at once.
    pub fn reset_prefix_cache(&mut self, reset_running: bool) {
        self.outbox.reset_requested =
            Some(reset_running || self.outbox.reset_requested == Some(true));
    }

    /// Begins a new epoch: drops all derived state and queues the live requests in the order of the
    /// policy. Step numbers continue from `last_step` or from this scheduler's last step, whichever
    /// is later. With the first plan of the new epoch, the KV cache manager frees all tables. With
    /// its first step, a worker drops all requests.
    pub fn recover(&mut self, epoch: Epoch, last_step: Step, mut live: Vec<RecoveredRequest>) {
        self.epoch = epoch;
        self.step = self.step.max(last_step);
        self.requests = RequestTable::default();
        self.queues = Queues::new(&self.config);
        self.queues.resumes = live.iter().any(|request| !request.output_token_ids.is_empty());
        self.media = Media::new(self.config.encoder_cache_size > 0);
        self.planning = None;
        self.flight = Flight::default();
        // A reset that was requested is still to be done.
        let reset_requested = self.outbox.reset_requested;
        live.sort_by_key(|recovered| {
            let request = &recovered.request;
            let priority = match self.config.policy {
                SchedulingPolicy::Fcfs => 0,
                SchedulingPolicy::Priority => request.priority,
            };
            (priority, request.arrival, request.id)
        });
        let resumed = may_have_held(&live, &self.config);
        self.outbox = Outbox { reset_requested, is_new_epoch: true, resumed, ..Outbox::default() };
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
            self.queues.deadlines.insert((deadline, request.id));
        }
        // The last token is only sampled. It needs no room.
        let outgrows = self.demand.num_tokens_max().map_or(usize::MAX, |most| most + 1);
        let max_model_len = self.config.max_model_len.min(outgrows);
        let (waiting, aside) = (&mut self.queues.waiting, &mut self.queues.aside);
        self.requests.insert(request.id, |slot| {
            let status = match Resource::of(&request) {
                None => Status::Waiting(waiting.push_back(&request, slot)),
                Some(resource) => {
                    aside.wait(&resource, request.id);
                    Status::WaitingFor(resource, waiting.reserve_back(&request))
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
            self.outbox.frees.retain(|freed| freed.request != id);
        }
        true
    }

    /// Releases a request that ends while it waits. It holds no blocks, but the block directory may
    /// still keep a tail for it.
    fn release_waiting(&mut self, slot: Slot, discard: bool) {
        let state = &self.requests[slot];
        if state.held.has_tail() {
            self.outbox.frees.push(state.freed(discard));
        }
        self.requests.release(slot);
    }

    /// Ends a running or waiting request. A plan frees its blocks once no step in flight contains
    /// it. The next output reports the end to the worker.
    pub(super) fn end(&mut self, slot: Slot, discard: bool) {
        self.free_media(slot);
        let state = &mut self.requests[slot];
        let id = state.request.id;
        let before = std::mem::replace(&mut state.status, Status::Finished);
        if let Some(deadline) = state.request.deadline {
            self.queues.deadlines.remove(&(deadline, id));
        }
        self.outbox.finished.push(id);
        if state.request.lora.is_some() {
            self.queues.aside.ask_for_adapters();
        }
        self.requests.hide(id);
        match before {
            Status::Waiting(key) => {
                let state = &self.requests[slot];
                self.queues.waiting.remove(key, state.request.arrival);
                self.release_waiting(slot, discard);
            }
            Status::WaitingFor(resource, _) => {
                self.queues.aside.leave(&resource, id);
                self.release_waiting(slot, discard);
            }
            Status::Running | Status::Finished | Status::Admitting(_) => {
                self.outbox.frees.push(self.requests[slot].freed(discard));
                self.queues.running_is_dirty = true;
            }
        }
    }

    /// Returns a running request to the queue, before the others. It will be computed from the
    /// start.
    pub(super) fn requeue(&mut self, slot: Slot, discard: bool) {
        self.free_media(slot);
        let state = &mut self.requests[slot];
        state.forget_computed();
        let freed = match discard {
            true => state.freed(true),
            // The request goes on with its hashes, which would be copied.
            false => Freed { request: state.request.id, ..Freed::default() },
        };
        let request = Arc::clone(&state.request);
        state.status = Status::Waiting(self.queues.waiting.push_front(&request, slot));
        if let Some(deadline) = request.deadline.filter(|_| state.output_token_ids.is_empty()) {
            self.queues.deadlines.insert((deadline, request.id));
        }
        self.outbox.frees.push(freed);
        self.outbox.preempted.push(request.id);
        self.queues.running_is_dirty = true;
    }

    /// Removes requests that no longer run from the running list.
    pub(super) fn compact_running(&mut self) {
        if !std::mem::take(&mut self.queues.running_is_dirty) {
            return;
        }
        let requests = &mut self.requests;
        self.queues.running.retain(|&slot| match requests[slot].status {
            Status::Running => true,
            Status::Finished => {
                requests.release(slot);
                false
            }
            Status::Waiting(_) | Status::WaitingFor(..) | Status::Admitting(_) => false,
        });
    }
}

/// Returns the requests that may have held blocks before the crash: all that have begun to answer,
/// and as many others as fit into the batch and the KV cache with them. Other requests may have the
/// blocks of the first one first. `live` is in the order of the policy.
fn may_have_held(live: &[RecoveredRequest], config: &SchedulerConfig) -> Vec<RequestId> {
    let has_begun = |recovered: &&RecoveredRequest| !recovered.output_token_ids.is_empty();
    let (begun, new): (Vec<_>, Vec<_>) = live.iter().partition(has_begun);
    let num_tokens = |recovered: &RecoveredRequest| {
        recovered.request.prompt_token_ids.len() + recovered.output_token_ids.len()
    };
    let mut room = config.num_blocks as usize * config.kv_spec.block_size;
    room = room.saturating_sub(begun.iter().map(|recovered| num_tokens(recovered)).sum());
    let fits = |recovered: &&RecoveredRequest| {
        let left = room.checked_sub(num_tokens(recovered));
        room = left.unwrap_or(0);
        left.is_some()
    };
    let most = config.max_num_seqs.saturating_sub(begun.len());
    let new: Vec<_> = new.into_iter().take(most).take_while(fits).collect();
    new.iter().rev().chain(begun.iter().rev()).map(|recovered| recovered.request.id).collect()
}
