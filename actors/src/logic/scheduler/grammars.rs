//! Requests whose output is constrained wait outside the queue until their grammar is compiled.
//! Other requests pass them meanwhile. Afterwards they take the place in the queue that was kept
//! for them.
//!
//! Compiled grammars are kept elsewhere, where executors find them. The scheduler only knows which
//! request waits for which format. Each request therefore asks for its format. Asking again for a
//! compiled one is cheap.

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

/// The requests that wait, by format.
#[derive(Debug, Clone, Default)]
pub(super) struct Grammars {
    awaited: BTreeMap<Arc<StructuredOutput>, BTreeSet<RequestId>>,
    /// The formats that were not asked for yet.
    unasked: Vec<Arc<StructuredOutput>>,
}

impl Grammars {
    /// Records that the request waits for its format.
    pub(super) fn wait(&mut self, format: &Arc<StructuredOutput>, request: RequestId) {
        let waiting = self.awaited.entry(Arc::clone(format)).or_default();
        if waiting.is_empty() {
            self.unasked.push(Arc::clone(format));
        }
        waiting.insert(request);
    }

    /// Records that the request no longer waits.
    pub(super) fn leave(&mut self, format: &StructuredOutput, request: RequestId) {
        if let Some(waiting) = self.awaited.get_mut(format) {
            waiting.remove(&request);
            if waiting.is_empty() {
                self.awaited.remove(format);
            }
        }
    }

    /// Returns the requests that wait.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.awaited.values().flatten().copied()
    }
}

impl Scheduler {
    /// Returns the formats that became wanted since the last call and still are. The caller has
    /// each one compiled and passes the result to [`Scheduler::grammar_compiled`].
    pub fn take_wanted_grammars(&mut self) -> Vec<Arc<StructuredOutput>> {
        let mut wanted = std::mem::take(&mut self.grammars.unasked);
        wanted.retain(|format| self.grammars.awaited.contains_key(format));
        wanted
    }

    /// Returns all formats that requests wait for, in the order of the first question. The caller
    /// asks for them again, because a question or an answer may have been lost.
    #[must_use]
    pub fn awaited_grammars(&self) -> Vec<Arc<StructuredOutput>> {
        let mut awaited: Vec<_> = self.grammars.awaited.iter().collect();
        awaited.sort_by_key(|(_, waiting)| waiting.first().copied());
        awaited.into_iter().map(|(format, _)| Arc::clone(format)).collect()
    }

    /// Takes the result of compiling a format. Requests that wait for the format take their places
    /// in the queue, or they end if it cannot be compiled. A result that no request waits for is
    /// counted and dropped. Must not be called while a step is being planned.
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
