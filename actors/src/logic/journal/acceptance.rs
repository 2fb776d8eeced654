//! An acceptance as it is recorded: the choices of one prompt, with the prompt written once.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::logic::{
    planted::{Bug, planted},
    request::{
        EngineRequest,
        ids::{Micros, RequestId},
    },
};

/// The choices of one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Acceptance {
    /// The time that the requests' times count from, in microseconds since 1970.
    zero: u64,
    first: Arc<EngineRequest>,
    others: Vec<Other>,
}

/// A further choice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Other {
    /// It differs from the first choice in these facts alone.
    Like {
        id: RequestId,
        choice: u32,
        seed: u64,
    },
    Unlike(Arc<EngineRequest>),
}

impl Acceptance {
    /// Returns the record of `requests`, whose times count from `zero`. Returns `None` if there are
    /// none.
    #[must_use]
    pub fn new(zero: u64, requests: &[Arc<EngineRequest>]) -> Option<Self> {
        let (first, others) = requests.split_first()?;
        let others = others.iter().map(|request| Other::of(request, first)).collect();
        Some(Self { zero, first: Arc::clone(first), others })
    }

    /// Returns the requests, with times that count from `zero`. A time before it becomes 0.
    #[must_use]
    pub fn requests(&self, zero: u64) -> Vec<Arc<EngineRequest>> {
        let others = self.others.iter().map(|other| {
            let request = other.expand(&self.first);
            let seed = if planted(Bug::ForgetChoiceSeeds) { self.first.seed } else { request.seed };
            match seed == request.seed {
                true => request,
                false => Arc::new(EngineRequest { seed, ..EngineRequest::clone(&request) }),
            }
        });
        let all = [Arc::clone(&self.first)].into_iter().chain(others);
        all.map(|request| self.moved(request, zero)).collect()
    }

    /// Returns the requests' ids, in order of acceptance.
    #[must_use]
    pub fn ids(&self) -> Vec<RequestId> {
        let others = self.others.iter().map(|other| match other {
            Other::Like { id, .. } => *id,
            Other::Unlike(request) => request.id,
        });
        [self.first.id].into_iter().chain(others).collect()
    }

    /// Returns the requests' id of their answer.
    #[must_use]
    pub fn answer_id(&self) -> Option<&Arc<str>> {
        self.first.answer_id.as_ref()
    }

    /// Adds `by` to the ids of its requests, and to the ids in them of other requests.
    pub(super) fn move_ids(&mut self, by: u64) {
        move_ids(&mut self.first, by);
        for other in &mut self.others {
            match other {
                Other::Like { id, .. } => *id = moved(*id, by),
                Other::Unlike(request) => move_ids(request, by),
            }
        }
    }

    /// Returns roughly how much memory it takes, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let request = |request: &EngineRequest| {
            size_of::<EngineRequest>() + size_of_val(&*request.prompt_token_ids)
        };
        let others = self.others.iter().map(|other| match other {
            Other::Like { .. } => 0,
            Other::Unlike(other) => request(other),
        });
        request(&self.first) + size_of_val(&*self.others) + others.sum::<usize>()
    }

    fn moved(&self, request: Arc<EngineRequest>, zero: u64) -> Arc<EngineRequest> {
        if zero == self.zero {
            return request;
        }
        let moved = |time: Micros| self.zero.saturating_add(time).saturating_sub(zero);
        Arc::new(EngineRequest {
            arrival: moved(request.arrival),
            deadline: request.deadline.map(moved),
            ..EngineRequest::clone(&request)
        })
    }
}

impl Other {
    fn of(request: &Arc<EngineRequest>, first: &Arc<EngineRequest>) -> Self {
        let EngineRequest { id, choice, seed, .. } = **request;
        let like = Self::Like { id, choice, seed };
        match *like.expand(first) == **request {
            true => like,
            false => Self::Unlike(Arc::clone(request)),
        }
    }

    fn expand(&self, first: &Arc<EngineRequest>) -> Arc<EngineRequest> {
        match self {
            Self::Unlike(request) => Arc::clone(request),
            &Self::Like { id, choice, seed } => {
                Arc::new(EngineRequest { id, choice, seed, ..EngineRequest::clone(first) })
            }
        }
    }
}

fn move_ids(request: &mut Arc<EngineRequest>, by: u64) {
    let request = Arc::make_mut(request);
    request.id = moved(request.id, by);
    request.group = moved(request.group, by);
}

/// Returns the id that is `by` higher.
pub(super) fn moved(id: RequestId, by: u64) -> RequestId {
    RequestId(id.0.saturating_add(by))
}
