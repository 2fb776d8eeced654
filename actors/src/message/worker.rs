//! Messages to a worker: steps to compute, and news from its device thread.

use std::sync::Arc;

use super::{
    edge::{Edge, Letter, edge, pings},
    ledger::StepFailure,
};
use crate::logic::{
    recovery::message_numbers::Stamp,
    request::{
        ids::{Epoch, RequestId, Step},
        outputs::StepOutput,
    },
    scheduler::output::SchedulerOutput,
};

/// A message that a worker receives.
#[derive(Debug)]
pub enum WorkerMessage {
    /// From the scheduler: compute this step. With the first step of an epoch, the worker forgets
    /// all earlier steps.
    Execute(Stamp, Arc<SchedulerOutput>),
    /// From the scheduler, which waits for a step: is the step running?
    Probe {
        /// Number of steps sent in this epoch.
        sent: Stamp,
        /// The step that the scheduler waits for.
        step: Step,
    },
    /// From a device thread: the result of a step.
    StepEnded {
        /// The number of the worker's thread that sends this.
        thread: u64,
        /// The result.
        outcome: StepOutcome,
    },
    /// From the worker's own timer: the deadline of the step has passed.
    Deadline {
        /// The epoch of the step.
        epoch: Epoch,
        /// The step.
        step: Step,
    },
    /// From the watchdog: a question whether the actor still takes messages.
    Ping,
}

/// The result of a step on the device thread. After a failure the thread ends.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    /// The step was computed.
    Done(StepOutput),
    /// The step failed.
    Failed {
        /// The reason.
        failure: StepFailure,
        /// The requests in the step, each with its number of computed tokens after the step.
        requests: Vec<(RequestId, usize)>,
    },
    /// The step did not begin, because the device created no executor. The text is the device's
    /// reason.
    NoExecutor(String),
}

impl Letter for WorkerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Execute(..) | Self::Probe { .. } => edge!(Scheduler -> Worker),
            Self::StepEnded { .. } => edge!(Device -> Worker),
            Self::Deadline { .. } | Self::Ping => Edge::TIMER,
        }
    }

    pings!();

    fn duplicate(&self) -> Option<Self> {
        Some(match self {
            Self::Execute(stamp, step) => Self::Execute(*stamp, Arc::clone(step)),
            &Self::Probe { sent, step } => Self::Probe { sent, step },
            Self::StepEnded { thread, outcome } => {
                Self::StepEnded { thread: *thread, outcome: outcome.clone() }
            }
            &Self::Deadline { epoch, step } => Self::Deadline { epoch, step },
            Self::Ping => Self::Ping,
        })
    }
}
