//! The records of a journal.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Acceptance, Fingerprint, Trial};
use crate::logic::{
    ledger::LedgerEvent,
    request::{FinishReason, ids::RequestId},
};

/// One change of the journal's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// A process writes from here on. The first record of each segment.
    Began {
        /// The facts about the process.
        fingerprint: Fingerprint,
        /// No request has had this id or a higher one.
        next_request: RequestId,
    },
    /// Requests of an answer were accepted.
    Accepted(Acceptance),
    /// A request ended.
    Ended {
        /// The request.
        request: RequestId,
        /// Whether a second computation ends in the same way.
        is_reproducible: bool,
    },
    /// An answer begins, or its data have changed.
    Answer {
        /// Its name. Requests name it as their `answer_id`.
        name: Arc<str>,
        /// The server's data about it.
        data: Arc<[u8]>,
        /// Whether its requests are still needed to make it.
        needs_requests: bool,
    },
    /// No client can ask for an answer from here on.
    Dropped {
        /// The answer's name.
        name: Arc<str>,
    },
    /// The engine gets requests of earlier processes.
    Tried {
        /// The names of their answers.
        names: Vec<Arc<str>>,
    },
    /// The processes that died while an answer was computed. Only at the beginning of a segment.
    Tries {
        /// The answer's name.
        name: Arc<str>,
        /// Their number, and what follows from it.
        trial: Trial,
    },
    /// The process ends as its operator wants. The requests that it computes are not the cause.
    Closed,
}

impl Record {
    /// Returns roughly how much memory it takes, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let content = match self {
            Self::Accepted(acceptance) => acceptance.bytes(),
            Self::Answer { name, data, .. } => name.len() + data.len(),
            Self::Dropped { name } | Self::Tries { name, .. } => name.len(),
            Self::Tried { names } => names.iter().map(|name| size_of_val(name) + name.len()).sum(),
            Self::Began { .. } | Self::Ended { .. } | Self::Closed => 0,
        };
        size_of::<Self>() + content
    }

    /// Returns the record of a ledger's event about requests whose times count from `zero`. Returns
    /// `None` for an event that the journal does not need. `is_kept` says whether a request belongs
    /// to an answer.
    #[must_use]
    pub fn of(event: &LedgerEvent, zero: u64, is_kept: impl Fn(RequestId) -> bool) -> Option<Self> {
        if let LedgerEvent::Accepted { requests, .. } = event {
            let has_answer = requests.first().is_some_and(|request| request.answer_id.is_some());
            return has_answer.then(|| Acceptance::new(zero, requests).map(Self::Accepted))?;
        }
        let end = event.end().filter(|end| is_kept(end.request))?;
        let is_reproducible = match end.reason {
            FinishReason::Stop(_) | FinishReason::Length | FinishReason::Repetition => true,
            FinishReason::Abort | FinishReason::Error(_) => false,
        };
        Some(Self::Ended { request: end.request, is_reproducible })
    }
}
