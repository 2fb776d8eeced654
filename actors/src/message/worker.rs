//! To a worker: steps to compute, and news from its device thread.

use std::sync::Arc;

use super::{
    edge::{Edge, Letter, pings},
    ledger::StepFailure,
};
use crate::logic::{
    ids::{Epoch, RequestId, Step},
    outputs::StepOutput,
    scheduler_output::SchedulerOutput,
    sequence::Stamp,
};

/// Received by a worker.
#[derive(Debug)]
pub enum WorkerMessage {
    /// From the scheduler: compute this step. The first one of an epoch forgets all before.
    Execute(Stamp, Arc<SchedulerOutput>),
    /// From the scheduler, which waits for a step: is it being computed?
    Probe {
        /// Steps sent in this epoch.
        sent: Stamp,
        /// The step that it waits for.
        step: Step,
    },
    /// From a device thread: what became of a step.
    StepEnded {
        /// Which of the worker's threads says so.
        thread: u64,
        /// What became of it.
        outcome: StepOutcome,
    },
    /// From its own timer: the step should be done by now.
    Deadline {
        /// The epoch of the step.
        epoch: Epoch,
        /// The step.
        step: Step,
    },
    /// From the watchdog.
    Ping,
}

/// What became of a step on the device thread. After a failure the thread ends.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    /// It was computed.
    Done(StepOutput),
    /// It was not.
    Failed {
        /// Why.
        failure: StepFailure,
        /// The requests in it, and how many tokens of each it would have left computed.
        requests: Vec<(RequestId, usize)>,
    },
    /// It was not begun: the device gave no executor, and said why.
    NoExecutor(String),
}

impl Letter for WorkerMessage {
    fn edge(&self) -> Edge {
        match self {
            Self::Execute(..) | Self::Probe { .. } => Edge::SchedulerToWorker,
            Self::StepEnded { .. } => Edge::DeviceToWorker,
            Self::Deadline { .. } | Self::Ping => Edge::Timer,
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
