//! The OS thread that owns a device. It computes one job after another and reports to its worker
//! actor; a panic ends it and is reported too. A thread that hangs is abandoned: whatever it says
//! later carries an old epoch.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use flume::{Receiver, Sender};
use ractor::ActorRef;

use crate::{
    logic::scheduler_output::SchedulerOutput,
    message::WorkerMessage,
    ports::{ExecuteError, ExecutorFactory, ModelExecutor},
};

/// Jobs that may wait for the thread: one step that computes, resets, and steps that only name
/// requests to drop, of which a burst of aborts makes several.
const WINDOW: usize = 64;

/// What the thread does next.
#[derive(Debug)]
pub(super) enum Job {
    /// Compute a step.
    Execute(Arc<SchedulerOutput>),
    /// Forget all requests.
    Reset,
}

/// The worker's end of a device thread. Dropping it ends the thread after its current job.
#[derive(Debug)]
pub(super) struct DeviceThread {
    jobs: Sender<Job>,
}

impl DeviceThread {
    /// Starts a thread that reports to `worker`.
    pub(super) fn spawn(
        executors: Arc<dyn ExecutorFactory>,
        worker: ActorRef<WorkerMessage>,
    ) -> std::io::Result<Self> {
        let (jobs, inbox) = flume::bounded(WINDOW);
        let run = move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&*executors, &inbox, &worker)));
            let cause = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic_message(&*panic),
            };
            // The worker may be gone already: then nobody misses the thread.
            let _ = worker.cast(WorkerMessage::ThreadDied(cause));
        };
        std::thread::Builder::new().name("playhouse-device".to_owned()).spawn(run)?;
        Ok(Self { jobs })
    }

    /// Queues a job. Refused when the window is full or the thread has ended.
    pub(super) fn submit(&self, job: Job) -> Result<(), &'static str> {
        self.jobs.try_send(job).map_err(|error| match error {
            flume::TrySendError::Full(_) => "its window is full",
            flume::TrySendError::Disconnected(_) => "it has ended",
        })
    }
}

fn work(
    executors: &dyn ExecutorFactory,
    inbox: &Receiver<Job>,
    worker: &ActorRef<WorkerMessage>,
) -> Result<(), ExecuteError> {
    let mut executor: Box<dyn ModelExecutor> = executors.create()?;
    while let Ok(job) = inbox.recv() {
        match job {
            Job::Execute(step) => {
                let result = executor.execute(&step);
                if worker.cast(WorkerMessage::StepDone(result)).is_err() {
                    return Ok(());
                }
            }
            Job::Reset => executor = executors.create()?,
        }
    }
    Ok(())
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
