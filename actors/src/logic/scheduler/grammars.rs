//! Requests whose output is constrained wait aside until their grammar is compiled. Others pass
//! them meanwhile; then they take the place in the queue that was kept for them.
//!
//! What is compiled is kept elsewhere, where executors find it. Here is only known who waits for
//! what, so each request asks for its format, and asking again for one that is compiled is cheap.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Scheduler, request_state::Status};
use crate::logic::{
    failure::Failure,
    ids::RequestId,
    outputs::{Commit, SampledTokens},
    request::FinishReason,
    structured_output::StructuredOutput,
};

/// Who waits for which format.
#[derive(Debug, Clone, Default)]
pub(super) struct Grammars {
    awaited: BTreeMap<Arc<StructuredOutput>, BTreeSet<RequestId>>,
    /// Those of them that were not asked for yet.
    unasked: Vec<Arc<StructuredOutput>>,
}

impl Grammars {
    /// The request waits for its format.
    pub(super) fn wait(&mut self, format: &Arc<StructuredOutput>, request: RequestId) {
        let waiting = self.awaited.entry(Arc::clone(format)).or_default();
        if waiting.is_empty() {
            self.unasked.push(Arc::clone(format));
        }
        waiting.insert(request);
    }

    /// The request waits no longer.
    pub(super) fn leave(&mut self, format: &StructuredOutput, request: RequestId) {
        if let Some(waiting) = self.awaited.get_mut(format) {
            waiting.remove(&request);
            if waiting.is_empty() {
                self.awaited.remove(format);
            }
        }
    }

    /// Requests that wait.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.awaited.values().flatten().copied()
    }
}

impl Scheduler {
    /// The formats that became wanted since the last call and still are: each is to be compiled,
    /// and [`Scheduler::grammar_compiled`] told of it.
    pub fn take_wanted_grammars(&mut self) -> Vec<Arc<StructuredOutput>> {
        let mut wanted = std::mem::take(&mut self.grammars.unasked);
        wanted.retain(|format| self.grammars.awaited.contains_key(format));
        wanted
    }

    /// All formats that requests wait for, those first that were asked for first: to ask again,
    /// should the question or the answer have been lost.
    #[must_use]
    pub fn awaited_grammars(&self) -> Vec<Arc<StructuredOutput>> {
        let mut awaited: Vec<_> = self.grammars.awaited.iter().collect();
        awaited.sort_by_key(|(_, waiting)| waiting.first().copied());
        awaited.into_iter().map(|(format, _)| Arc::clone(format)).collect()
    }

    /// A format was compiled, or cannot be: those that wait for it take their places in the queue,
    /// or end. An answer that nobody waits for is counted and dropped. Must not be called while a
    /// step is being planned.
    pub fn grammar_compiled(
        &mut self,
        format: &StructuredOutput,
        compiled: Result<(), Failure>,
    ) -> Vec<Commit> {
        let Some(requests) = self.grammars.awaited.remove(format) else {
            self.num_stale += 1;
            return Vec::new();
        };
        let mut ended = Vec::new();
        for id in requests {
            let Some(slot) = self.requests.find(id) else { continue };
            let state = &mut self.requests[slot];
            let Status::WaitingForStructuredOutputGrammar(key) = state.status else { continue };
            match &compiled {
                Ok(()) => {
                    state.status = Status::Waiting(key);
                    self.waiting.reinsert(key, state.request.arrival, slot);
                }
                Err(failure) => {
                    let position = state.output_token_ids.len();
                    self.end(slot, false);
                    ended.push(Commit {
                        request: id,
                        position,
                        tokens: SampledTokens::new(),
                        prompt_logprobs: None,
                        finish: Some(FinishReason::Error(failure.clone())),
                    });
                }
            }
        }
        ended
    }
}
