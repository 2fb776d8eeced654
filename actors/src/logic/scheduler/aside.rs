//! Requests that wait aside, which is outside the queue, for a resource of another actor. Other
//! requests overtake them meanwhile. Afterwards they take the place in the queue that was kept for
//! them.
//!
//! The resources are kept elsewhere, where executors find them. The scheduler only knows which
//! request waits for which resource. It therefore asks for the resource of each request. If the
//! resource is ready already, the question is cheap.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Scheduler, WaitingReason, request_state::Status};
use crate::logic::{
    planted::{Bug, planted},
    request::{
        EngineRequest, FinishReason, failure::Failure, ids::RequestId, outputs::Commit,
        structured_output::StructuredOutput,
    },
};

/// A resource that a request needs before it can be admitted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The compiled grammar of this format, from the structured output actor.
    Grammar(Arc<StructuredOutput>),
}

impl Resource {
    /// Returns the resource that a new request has to wait for.
    pub(super) fn of(request: &EngineRequest) -> Option<Self> {
        let format = request.sampling()?.structured_output.as_ref();
        format.filter(|_| !planted(Bug::SkipGrammar)).map(|format| Self::Grammar(format.clone()))
    }

    /// Returns the reason that observers see while a request waits for the resource.
    #[must_use]
    pub fn waiting_reason(&self) -> WaitingReason {
        match self {
            Self::Grammar(_) => WaitingReason::StructuredOutputGrammar,
        }
    }
}

/// The requests that wait, by resource.
#[derive(Debug, Clone, Default)]
pub(super) struct Aside {
    awaited: BTreeMap<Resource, BTreeSet<RequestId>>,
    /// The resources that were not asked for yet.
    unasked: Vec<Resource>,
}

impl Aside {
    /// Records that the request waits for the resource.
    pub(super) fn wait(&mut self, resource: &Resource, request: RequestId) {
        let waiting = self.awaited.entry(resource.clone()).or_default();
        if waiting.is_empty() {
            self.unasked.push(resource.clone());
        }
        waiting.insert(request);
    }

    /// Records that the request no longer waits.
    pub(super) fn leave(&mut self, resource: &Resource, request: RequestId) {
        if let Some(waiting) = self.awaited.get_mut(resource) {
            waiting.remove(&request);
            if waiting.is_empty() {
                self.awaited.remove(resource);
            }
        }
    }

    /// Returns the number of requests that wait.
    pub(super) fn len(&self) -> usize {
        self.awaited.values().map(BTreeSet::len).sum()
    }

    /// Returns the requests that wait, each with the reason.
    pub(super) fn reasons(&self) -> impl Iterator<Item = (RequestId, WaitingReason)> + '_ {
        self.awaited.iter().flat_map(|(resource, waiting)| {
            waiting.iter().map(|&request| (request, resource.waiting_reason()))
        })
    }
}

impl Scheduler {
    /// Returns the resources that requests began to wait for since the last call, if they still
    /// wait. The caller asks the other actor for each and passes the result to
    /// [`Scheduler::resolve`].
    pub fn take_wanted(&mut self) -> Vec<Resource> {
        let mut wanted = std::mem::take(&mut self.queues.aside.unasked);
        wanted.retain(|resource| self.queues.aside.awaited.contains_key(resource));
        wanted
    }

    /// Returns all resources that requests wait for, in the order of the oldest request that waits
    /// for each. The caller asks for them again, because a question or an answer may have been
    /// lost.
    #[must_use]
    pub fn awaited(&self) -> Vec<Resource> {
        let mut awaited: Vec<_> = self.queues.aside.awaited.iter().collect();
        awaited.sort_by_key(|(_, waiting)| waiting.first().copied());
        awaited.into_iter().map(|(resource, _)| resource.clone()).collect()
    }

    /// Receives the report that a resource is ready or has failed. Requests that wait for it take
    /// their places in the queue, or they end. A report on a resource that no request waits for is
    /// counted and dropped. Returns the ends. Must not be called while a step is being planned.
    pub fn resolve(&mut self, resource: &Resource, ready: Result<(), Failure>) -> Vec<Commit> {
        let Some(requests) = self.queues.aside.awaited.remove(resource) else {
            self.num_stale += 1;
            return Vec::new();
        };
        let mut ended = Vec::new();
        for id in requests {
            let Some(slot) = self.requests.find(id) else { continue };
            let state = &mut self.requests[slot];
            let Status::WaitingFor(_, key) = state.status else { continue };
            match &ready {
                Ok(()) => {
                    state.status = Status::Waiting(key);
                    self.queues.waiting.reinsert(key, state.request.arrival, slot);
                }
                Err(failure) => {
                    ended.push(self.end_with(slot, false, FinishReason::Error(failure.clone())));
                }
            }
        }
        ended
    }
}
