//! To the ledger: what was accepted, computed, delivered or given up.

use std::sync::Arc;

use ractor::RpcReplyPort;

use super::edge::{Edge, Letter, pings};
use crate::{
    error::RequestError,
    logic::{
        admission::Tenant,
        ids::{Epoch, RequestId},
        ledger::BatchId,
        outputs::Commit,
        request::{EngineRequest, FinishReason},
        scheduler::FirstScheduled,
        sequence::Stamp,
    },
    ports::ExecuteError,
};

/// Received by the ledger.
#[derive(Debug)]
pub enum LedgerMessage {
    /// From the engine's door: take these on, all or none.
    Accept {
        /// The choices of one prompt.
        requests: Vec<Arc<EngineRequest>>,
        /// Who asks, where that matters.
        tenant: Option<Tenant>,
        /// The answer.
        reply: RpcReplyPort<Result<(), RequestError>>,
    },
    /// From a client or the door: stop working on these.
    Abort(Vec<RequestId>),
    /// From the scheduler: the next report of this epoch.
    Report(Stamp, StepReport),
    /// From the scheduler, now and then: so many reports were sent. One that got lost is noticed.
    Reported(Stamp),
    /// From the scheduler or the worker: something of this epoch got lost, so begin a new one.
    Lost {
        /// The epoch. A later one has begun already if it is not the current one.
        epoch: Epoch,
        /// For the log.
        what: &'static str,
    },
    /// From the worker: a step could not be computed, and must be done again.
    StepFailed {
        /// The epoch of the step.
        epoch: Epoch,
        /// The requests in it, and how many tokens of each it would have left computed.
        requests: Vec<(RequestId, usize)>,
        /// Why.
        failure: StepFailure,
    },
    /// From a detokenizer: the output is complete after `position` tokens, by a stop string.
    EndAt {
        /// The request.
        request: RequestId,
        /// Tokens that count.
        position: usize,
        /// Which stop string.
        reason: FinishReason,
    },
    /// From a detokenizer or a streamer: it is new, or misses something; its shard must be told
    /// everything.
    AttachEgress {
        /// Its shard.
        shard: usize,
    },
    /// From a streamer: the batch reached the clients' sinks.
    Delivered {
        /// The batch.
        batch: BatchId,
        /// Requests whose end was delivered.
        ended: Vec<RequestId>,
    },
    /// From the core's supervisor: some of its actors are new, so a new epoch begins.
    CoreStarted,
    /// From its own timer: look for what got lost.
    Tick,
    /// From the watchdog.
    Ping,
}

/// What a step changed.
#[derive(Debug, Clone, Default)]
pub struct StepReport {
    /// Requests that left the queue for the first time.
    pub first_scheduled: Vec<FirstScheduled>,
    /// What became final.
    pub commits: Vec<Commit>,
    /// Whether a step was computed.
    pub is_computed: bool,
}

/// Why a step could not be computed.
#[derive(Debug, Clone, PartialEq)]
pub enum StepFailure {
    /// The model panicked.
    Panic(String),
    /// The executor said why.
    Execute(ExecuteError),
    /// It took longer than its deadline, and its thread was abandoned.
    Deadline,
}

impl Letter for LedgerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Accept { .. } | Self::Abort(_) => Edge::DoorToLedger,
            Self::Report(..) | Self::Reported(_) | Self::Lost { .. } => Edge::SchedulerToLedger,
            Self::StepFailed { .. } => Edge::WorkerToLedger,
            Self::EndAt { .. } | Self::AttachEgress { .. } => Edge::DetokenizerToLedger,
            Self::Delivered { .. } => Edge::StreamerToLedger,
            Self::CoreStarted => Edge::SupervisorToLedger,
            Self::Tick | Self::Ping => Edge::Timer,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(match self {
            Self::Accept { .. } => return None,
            Self::Abort(requests) => Self::Abort(requests.clone()),
            Self::Report(stamp, report) => Self::Report(*stamp, report.clone()),
            Self::Reported(stamp) => Self::Reported(*stamp),
            &Self::Lost { epoch, what } => Self::Lost { epoch, what },
            Self::StepFailed { epoch, requests, failure } => Self::StepFailed {
                epoch: *epoch,
                requests: requests.clone(),
                failure: failure.clone(),
            },
            Self::EndAt { request, position, reason } => {
                Self::EndAt { request: *request, position: *position, reason: reason.clone() }
            }
            &Self::AttachEgress { shard } => Self::AttachEgress { shard },
            Self::Delivered { batch, ended } => {
                Self::Delivered { batch: *batch, ended: ended.clone() }
            }
            Self::CoreStarted => Self::CoreStarted,
            Self::Tick => Self::Tick,
            Self::Ping => Self::Ping,
        })
    }
}
