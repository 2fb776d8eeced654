//! Messages to the ledger: requests to accept or abort, results, and deliveries.

use std::{borrow::Cow, sync::Arc};

use ractor::RpcReplyPort;
use serde::{Deserialize, Serialize};

use super::edge::{Edge, Letter, edge, pings};
use crate::{
    error::RequestError,
    logic::{
        admission::Tenant,
        ledger::BatchId,
        recovery::message_numbers::Stamp,
        request::{
            EngineRequest, FinishReason,
            ids::{Epoch, RequestId},
            outputs::StepReport,
        },
    },
    ports::ExecuteError,
};

/// A message that the ledger receives.
#[derive(Debug)]
pub enum LedgerMessage {
    /// From the engine's door: accept these requests, all or none.
    Accept {
        /// The requests: the choices of one prompt.
        requests: Vec<Arc<EngineRequest>>,
        /// The tenant that asks, where that matters.
        tenant: Option<Tenant>,
        /// Whether an earlier process has accepted them, or they are a part of an accepted request.
        /// No limit applies to them then.
        was_accepted: bool,
        /// The port for the reply.
        reply: RpcReplyPort<Result<(), RequestError>>,
    },
    /// From a client or the door: abort these requests.
    Abort(Vec<RequestId>),
    /// From the scheduler: the next report of this epoch.
    Report(Stamp, StepReport),
    /// From the scheduler, from time to time: the number of reports sent. It shows the ledger that
    /// a report was lost.
    Reported(Stamp),
    /// From the scheduler or the worker: a message of this epoch was lost, so begin a new epoch.
    Lost {
        /// The epoch of the lost message. If it is not the current one, a later epoch has begun
        /// already.
        epoch: Epoch,
        /// A name of the lost message, for the log.
        what: Cow<'static, str>,
    },
    /// From the worker: a step could not be computed and must be repeated.
    StepFailed {
        /// The epoch of the step.
        epoch: Epoch,
        /// The requests in the step, each with its number of computed tokens after the step.
        requests: Vec<(RequestId, usize)>,
        /// The reason.
        failure: StepFailure,
    },
    /// From the way to the scheduler: these requests do not fit a message to the engine process.
    TooLarge(Vec<RequestId>),
    /// From a detokenizer: the output is complete after `position` tokens, by a stop string.
    EndAt {
        /// The request.
        request: RequestId,
        /// Number of output tokens that count.
        position: usize,
        /// The reason, with the stop string.
        reason: FinishReason,
    },
    /// From a detokenizer or a streamer that is new or misses a message: send its shard everything
    /// again.
    AttachEgress {
        /// The shard of the sender.
        shard: usize,
    },
    /// From a streamer: the batch has reached the clients' sinks.
    Delivered {
        /// The batch.
        batch: BatchId,
        /// Requests whose end was delivered.
        ended: Vec<RequestId>,
    },
    /// From the canary: the logits of its probe were not finite.
    ProbeFailed(RpcReplyPort<()>),
    /// From the core's supervisor: some of its actors are new, so begin a new epoch.
    CoreStarted,
    /// From the actor that watches an engine process: the process ended, so its requests go on in
    /// another engine.
    CoreEnded,
    /// From the door: an operator has changed which engines get requests.
    EnginesChanged,
    /// From the ledger's own timer: look for lost messages.
    Tick,
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

/// The reason why a step could not be computed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StepFailure {
    /// The model panicked.
    Panic(String),
    /// The executor returned an error.
    Execute(ExecuteError),
    /// The step took longer than its deadline, and its thread was abandoned.
    Deadline,
    /// The engine process ended, in words that follow "the engine process".
    ProcessEnded(String),
}

impl Letter for LedgerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Accept { .. } | Self::Abort(_) | Self::ProbeFailed(_) | Self::EnginesChanged => {
                edge!(Door -> Ledger)
            }
            Self::Report(..) | Self::Reported(_) | Self::Lost { .. } | Self::TooLarge(_) => {
                edge!(Scheduler -> Ledger)
            }
            Self::StepFailed { .. } => edge!(Worker -> Ledger),
            Self::EndAt { .. } | Self::AttachEgress { .. } => edge!(Detokenizer -> Ledger),
            Self::Delivered { .. } => edge!(OutputStreamer -> Ledger),
            Self::CoreStarted | Self::CoreEnded => edge!(Core -> Ledger),
            Self::Tick | Self::Ping => Edge::TIMER,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(match self {
            Self::Accept { .. } | Self::ProbeFailed(_) => return None,
            Self::Abort(requests) => Self::Abort(requests.clone()),
            Self::Report(stamp, report) => Self::Report(*stamp, report.clone()),
            Self::Reported(stamp) => Self::Reported(*stamp),
            Self::Lost { epoch, what } => Self::Lost { epoch: *epoch, what: what.clone() },
            Self::StepFailed { epoch, requests, failure } => Self::StepFailed {
                epoch: *epoch,
                requests: requests.clone(),
                failure: failure.clone(),
            },
            Self::TooLarge(requests) => Self::TooLarge(requests.clone()),
            Self::EndAt { request, position, reason } => {
                Self::EndAt { request: *request, position: *position, reason: reason.clone() }
            }
            &Self::AttachEgress { shard } => Self::AttachEgress { shard },
            Self::Delivered { batch, ended } => {
                Self::Delivered { batch: *batch, ended: ended.clone() }
            }
            Self::CoreStarted => Self::CoreStarted,
            Self::CoreEnded => Self::CoreEnded,
            Self::EnginesChanged => Self::EnginesChanged,
            Self::Tick => Self::Tick,
            Self::Ping => Self::Ping,
        })
    }
}
