//! To a worker: steps to compute, and news from its device thread.

use std::sync::Arc;

use crate::{
    logic::{
        ids::{Epoch, Step},
        outputs::StepOutput,
        scheduler_output::SchedulerOutput,
    },
    ports::ExecuteError,
};

/// Received by a worker.
#[derive(Debug)]
pub enum WorkerMessage {
    /// From the scheduler: compute this step.
    Execute(Arc<SchedulerOutput>),
    /// From the ledger: a new epoch begins; forget all requests.
    Recover(Epoch),
    /// From the device thread: a step is done.
    StepDone(Result<StepOutput, ExecuteError>),
    /// From the device thread: it has ended, and this is why.
    ThreadDied(String),
    /// From its own timer: the step should be done by now.
    Deadline {
        /// The epoch of the step.
        epoch: Epoch,
        /// The step.
        step: Step,
    },
}
