//! To the scheduler: requests, results, and orders from the operator.

use std::sync::Arc;

use ractor::RpcReplyPort;

use super::edge::{Edge, Letter, pings};
use crate::logic::{
    failure::Failure,
    ids::{Epoch, RequestId, Step},
    ledger::Restriction,
    outputs::StepOutput,
    request::EngineRequest,
    scheduler::{RecoveredRequest, SchedulerStats, SchedulerView},
    sequence::Stamp,
    structured_output::StructuredOutput,
};

/// Received by the scheduler.
#[derive(Debug)]
pub enum SchedulerMessage {
    /// From the ledger: the next order of this epoch.
    Order(Stamp, SchedulerOrder),
    /// From the ledger, now and then: so many orders were given. One that got lost is noticed.
    Given(Stamp),
    /// From the ledger: a new epoch begins; forget everything and take up these.
    Recover {
        /// The new epoch.
        epoch: Epoch,
        /// All live requests.
        live: Vec<RecoveredRequest>,
        /// What of them may be scheduled.
        restriction: Restriction,
    },
    /// From the worker: what the step gave.
    StepDone(StepOutput),
    /// From the worker, asked about a step: it is not at it, and has sent what it gave if it did.
    StepMissing {
        /// The epoch of the step.
        epoch: Epoch,
        /// The step.
        step: Step,
    },
    /// From the structured output actor: what became of grammars.
    GrammarsCompiled(Vec<CompiledGrammar>),
    /// From the operator: the pause state in the context has changed.
    PauseChanged,
    /// From the operator: forget all cached prefixes. Answers whether that was possible.
    ResetPrefixCache {
        /// Preempt what runs, so that it is.
        reset_running_requests: bool,
        /// The answer.
        reply: RpcReplyPort<bool>,
    },
    /// How things stand.
    Stats(RpcReplyPort<SchedulerStats>),
    /// From somebody who looks in from outside: how things stand, with the requests.
    View {
        /// Running requests told of at most; as many waiting ones.
        most: usize,
        /// The answer.
        reply: RpcReplyPort<SchedulerView>,
    },
    /// From its own timer.
    Tick,
    /// From the watchdog.
    Ping,
}

/// A format, and why it cannot be had if it cannot.
pub type CompiledGrammar = (Arc<StructuredOutput>, Result<(), Failure>);

/// What the ledger wants scheduled.
#[derive(Debug, Clone)]
pub enum SchedulerOrder {
    /// Newly accepted.
    Add(Vec<Arc<EngineRequest>>),
    /// No longer wanted.
    Abort(Vec<RequestId>),
    /// What may be scheduled has changed.
    Restrict(Restriction),
}

impl Letter for SchedulerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Order(..) | Self::Given(_) | Self::Recover { .. } => Edge::LedgerToScheduler,
            Self::StepDone(_) | Self::StepMissing { .. } => Edge::WorkerToScheduler,
            Self::GrammarsCompiled(_) => Edge::StructuredOutputToScheduler,
            Self::PauseChanged | Self::ResetPrefixCache { .. } | Self::Stats(_) => {
                Edge::DoorToScheduler
            }
            Self::View { .. } | Self::Tick | Self::Ping => Edge::Timer,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(match self {
            Self::Order(stamp, order) => Self::Order(*stamp, order.clone()),
            Self::Given(stamp) => Self::Given(*stamp),
            Self::Recover { epoch, live, restriction } => Self::Recover {
                epoch: *epoch,
                live: live.clone(),
                restriction: restriction.clone(),
            },
            Self::StepDone(output) => Self::StepDone(output.clone()),
            &Self::StepMissing { epoch, step } => Self::StepMissing { epoch, step },
            Self::GrammarsCompiled(compiled) => Self::GrammarsCompiled(compiled.clone()),
            Self::PauseChanged => Self::PauseChanged,
            Self::Tick => Self::Tick,
            Self::Ping => Self::Ping,
            Self::ResetPrefixCache { .. } | Self::Stats(_) | Self::View { .. } => return None,
        })
    }
}
