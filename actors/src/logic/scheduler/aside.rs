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

use serde::{Deserialize, Serialize};

use super::{Scheduler, WaitingReason, cohort::Cohort, request_state::Status};
use crate::logic::{
    planted::{Bug, planted},
    request::{
        EngineRequest, FinishReason, failure::Failure, ids::RequestId, lora::LoraRequest,
        outputs::Commit, structured_output::StructuredOutput,
    },
};

/// A resource that a request needs before it can be admitted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Resource {
    /// The compiled grammar of this format, from the structured output actor.
    Grammar(Arc<StructuredOutput>),
    /// The weights of this adapter, and room for it among the adapters in use.
    Adapter(Arc<LoraRequest>),
    /// The first image or sound that this request cannot begin without, from the encoder cache.
    Encoder(RequestId),
}

impl Resource {
    /// Returns the resource that a new request has to wait for first.
    pub(super) fn of(request: &EngineRequest) -> Option<Self> {
        let format = request.sampling().and_then(|params| params.structured_output.as_ref());
        let format = format.filter(|_| !planted(Bug::SkipGrammar));
        let grammar = format.map(|format| Self::Grammar(format.clone()));
        grammar.or_else(|| Self::adapter_of(request))
    }

    /// Returns the resource that a request has to wait for after this one.
    fn next(&self, request: &EngineRequest) -> Option<Self> {
        match self {
            Self::Grammar(_) => Self::adapter_of(request),
            Self::Adapter(_) | Self::Encoder(_) => None,
        }
    }

    /// An adapter comes last, because a request that waits for nothing more keeps it in use.
    fn adapter_of(request: &EngineRequest) -> Option<Self> {
        let adapter = request.lora.clone().filter(|_| !planted(Bug::SkipAdapter));
        adapter.map(Self::Adapter)
    }

    /// Returns the reason that observers see while a request waits for the resource.
    #[must_use]
    pub fn waiting_reason(&self) -> WaitingReason {
        match self {
            Self::Grammar(_) => WaitingReason::StructuredOutputGrammar,
            Self::Adapter(_) => WaitingReason::LoraAdapter,
            Self::Encoder(_) => WaitingReason::EncoderCache,
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

    /// Returns the requests that wait for the resource, the oldest first.
    pub(super) fn waiting_for(&self, resource: &Resource) -> impl Iterator<Item = RequestId> + '_ {
        self.awaited.get(resource).into_iter().flatten().copied()
    }

    /// Returns whether a member of the cohort waits for the resource. All requests are members
    /// without one.
    fn is_for(&self, resource: &Resource, cohort: Option<&Cohort>) -> bool {
        cohort.is_none_or(|cohort| self.waiting_for(resource).any(|id| cohort.contains(&id)))
    }

    /// Returns the awaited adapters, each with the oldest request that waits for it.
    pub(super) fn adapters(
        &self,
    ) -> impl Iterator<Item = (&Arc<LoraRequest>, Option<RequestId>)> + '_ {
        self.awaited.iter().filter_map(|(resource, waiting)| match resource {
            Resource::Adapter(adapter) => Some((adapter, waiting.first().copied())),
            Resource::Grammar(_) | Resource::Encoder(_) => None,
        })
    }

    /// Asks for all awaited adapters again, because one in use may have left room.
    pub(super) fn ask_for_adapters(&mut self) {
        let mut adapters: Vec<_> = self.adapters().collect();
        adapters.sort_by_key(|(_, first)| *first);
        let adapters: Vec<_> =
            adapters.into_iter().map(|(adapter, _)| Arc::clone(adapter)).collect();
        self.unasked.extend(adapters.into_iter().map(Resource::Adapter));
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
    /// [`Scheduler::resolve`]. With a cohort, those of other requests stay for a later call. The
    /// work on them may be the cause of the failure.
    pub fn take_wanted(&mut self) -> Vec<Resource> {
        let cohort = self.active_cohort().cloned();
        let aside = &mut self.queues.aside;
        let mut unasked = std::mem::take(&mut aside.unasked);
        unasked.retain(|resource| aside.awaited.contains_key(resource));
        let is_wanted = |resource: &Resource| aside.is_for(resource, cohort.as_ref());
        let (wanted, mut later): (Vec<_>, Vec<_>) = unasked.into_iter().partition(is_wanted);
        let mut known = BTreeSet::new();
        later.retain(|resource| known.insert(resource.clone()));
        aside.unasked = later;
        wanted
    }

    /// Returns whether a request waits for the resource.
    #[must_use]
    pub fn awaits(&self, resource: &Resource) -> bool {
        self.queues.aside.awaited.contains_key(resource)
    }

    /// Returns all resources that requests wait for, in the order of the oldest request that waits
    /// for each. With a cohort, these are those of its members. The caller asks for them again,
    /// because a question or an answer may have been lost.
    #[must_use]
    pub fn awaited(&self) -> Vec<Resource> {
        let (aside, cohort) = (&self.queues.aside, self.active_cohort());
        let mut awaited: Vec<_> = aside.awaited.iter().collect();
        awaited.sort_by_key(|(_, waiting)| waiting.first().copied());
        let resources = awaited.into_iter().map(|(resource, _)| resource);
        resources.filter(|resource| aside.is_for(resource, cohort)).cloned().collect()
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
            match (&ready, resource.next(&state.request)) {
                (Ok(()), Some(next)) => {
                    self.queues.aside.wait(&next, id);
                    state.status = Status::WaitingFor(next, key);
                }
                (Ok(()), None) => {
                    state.status = Status::Waiting(key);
                    self.queues.waiting.reinsert(key, state.request.arrival, slot);
                }
                (Err(failure), _) => {
                    ended.push(self.end_with(slot, false, FinishReason::Error(failure.clone())));
                }
            }
        }
        ended
    }
}
