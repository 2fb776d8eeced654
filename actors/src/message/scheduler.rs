//! To the scheduler: requests, results, and orders from the operator.

use std::sync::Arc;

use ractor::RpcReplyPort;

use crate::logic::{
    ids::{Epoch, RequestId},
    outputs::StepOutput,
    request::EngineRequest,
    scheduler::{PauseState, RecoveredRequest, SchedulerStats},
};

/// Received by the scheduler.
#[derive(Debug)]
pub enum SchedulerMessage {
    /// From the ledger: newly accepted.
    Add(Vec<Arc<EngineRequest>>),
    /// From the ledger: no longer wanted.
    Abort(Vec<RequestId>),
    /// From the worker: what the step gave.
    StepDone(StepOutput),
    /// From the ledger: a new epoch begins; forget everything and take up these.
    Recover {
        /// The new epoch.
        epoch: Epoch,
        /// All live requests.
        live: Vec<RecoveredRequest>,
    },
    /// From the operator: hold back new requests, or all.
    SetPause(PauseState),
    /// From the operator: forget all cached prefixes. Answers whether that was possible.
    ResetPrefixCache {
        /// Preempt what runs, so that it is.
        reset_running_requests: bool,
        /// The answer.
        reply: RpcReplyPort<bool>,
    },
    /// How things stand.
    Stats(RpcReplyPort<SchedulerStats>),
    /// From its own timer.
    Tick,
}
