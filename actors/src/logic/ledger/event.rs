//! The events of the ledger: plain data, one for each change of the ground state. The state is
//! exactly the fold of its events. Metrics, views and checks read the same events.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};

use super::GroundState;
use crate::logic::{
    admission::Tenant,
    request::{
        EngineRequest, FinishReason,
        ids::{EngineIndex, Epoch, Micros, RequestId},
        outputs::Commit,
    },
    scheduler::FirstScheduled,
};

/// One change of the ground state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum LedgerEvent {
    /// A new core begins from the committed tokens.
    EpochBegan {
        /// The engine whose core is new.
        engine: EngineIndex,
        /// The new epoch.
        epoch: Epoch,
        /// The reason, for logs.
        why: Cow<'static, str>,
    },
    /// Requests were accepted: the choices of one prompt, without those that the ledger already
    /// had.
    Accepted {
        /// The new requests.
        requests: Vec<Arc<EngineRequest>>,
        /// The tenant that pays for them.
        tenant: Option<Tenant>,
        /// The time of the acceptance.
        at: Micros,
    },
    /// Requests were given to an engine. A new request has the first one until then.
    Assigned {
        /// The requests.
        requests: Vec<RequestId>,
        /// The engine.
        engine: EngineIndex,
    },
    /// A request left the queue for the first time.
    Scheduled(FirstScheduled),
    /// A step was computed.
    StepSucceeded,
    /// Tokens became permanent. With `commit.finish`, the request ended too.
    Committed {
        /// The epoch that computed the tokens.
        epoch: Epoch,
        /// The tokens.
        commit: Commit,
        /// The time of the commit.
        at: Micros,
    },
    /// A request ended, but not by a commit.
    Ended {
        /// The request.
        request: RequestId,
        /// Number of output tokens that count. Later tokens are dropped.
        position: usize,
        /// The reason.
        reason: FinishReason,
        /// The time of the end.
        at: Micros,
    },
    /// The end of an ended request moved to an earlier token, because its text contains a stop
    /// string.
    EndMoved {
        /// The request.
        request: RequestId,
        /// Number of output tokens that count. Later tokens are dropped.
        position: usize,
        /// The reason that replaces the earlier one.
        reason: FinishReason,
    },
    /// A step needed more memory than the device has.
    OutOfMemory,
    /// A step failed, perhaps because of one of its requests.
    StepFailed {
        /// The live requests of the step.
        requests: Vec<RequestId>,
        /// Whether the step used only committed tokens.
        is_committed: bool,
    },
    /// The logits of a probe were not finite, so the model is at fault and not a request.
    ModelConvicted,
    /// The end of a request was delivered, so its entry is dropped.
    Forgotten {
        /// The request.
        request: RequestId,
    },
}

/// An end of a request, by a commit or otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End<'a> {
    /// The request.
    pub request: RequestId,
    /// The reason.
    pub reason: &'a FinishReason,
    /// The time of the end.
    pub at: Micros,
}

impl LedgerEvent {
    /// Returns the end of a request, if the event ends one. A request ends exactly once.
    #[must_use]
    pub fn end(&self) -> Option<End<'_>> {
        match self {
            Self::Committed { commit, at, .. } => {
                let reason = commit.finish.as_ref()?;
                Some(End { request: commit.request, reason, at: *at })
            }
            Self::Ended { request, reason, at, .. } => {
                Some(End { request: *request, reason, at: *at })
            }
            _ => None,
        }
    }
}

/// Receives every event of one ledger, in order.
pub trait LedgerObserver {
    /// Receives an event and the state after it.
    fn observe(&mut self, event: &LedgerEvent, state: &GroundState);
}

impl LedgerObserver for () {
    fn observe(&mut self, _: &LedgerEvent, _: &GroundState) {}
}
