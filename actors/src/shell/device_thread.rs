//! The OS thread that owns a device. It computes one step after another and reports to its worker
//! actor. A panic ends the thread and is reported, too. A thread that hangs is abandoned: its later
//! reports carry an old number, and the KV cache is closed to its executor.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use flume::Receiver;

use super::thread_ends::{JobQueue, Reports, thread_ends};
use crate::{
    logic::{request::ids::Epoch, scheduler::output::SchedulerOutput},
    message::{StepFailure, StepOutcome, WorkerMessage},
    ports::{ExecutorFactory, ModelExecutor},
    supervision::address::Address,
    system::{config::DeviceMode, context::Context},
};

/// Largest number of jobs that wait for the thread: two steps that compute, and steps that only
/// name requests to drop. A burst of aborts makes several of those.
const WINDOW: usize = 64;

/// A job for the thread.
#[derive(Debug)]
pub(crate) enum Job {
    /// Compute a step. The first step of an epoch drops the state of the epoch before.
    Execute(Arc<SchedulerOutput>),
}

/// The worker's end of a device thread.
pub(crate) type DeviceThread = JobQueue<Job>;

/// Starts a thread that reports to `worker` under this number. Waits for a while if too many
/// threads were left behind.
///
/// # Errors
/// When the system provides no thread, or too many are still left behind after the wait.
pub(crate) async fn spawn(
    context: &Arc<Context>,
    worker: Address<WorkerMessage>,
    number: u64,
) -> std::io::Result<DeviceThread> {
    let (jobs, inbox, reports) = thread_ends(context, worker, WINDOW).await?;
    let device = Device { context: Arc::clone(context), number, current: None, reports };
    match context.config.device {
        DeviceMode::Thread => {
            let thread = std::thread::Builder::new().name("playhouse-device".to_owned());
            thread.spawn(move || device.run(&inbox))?;
        }
        DeviceMode::Task { step_time } => {
            drop(tokio::spawn(device.run_in_simulated_time(inbox, step_time)));
        }
    }
    Ok(jobs)
}

/// The thread's end.
struct Device {
    context: Arc<Context>,
    number: u64,
    current: Option<(Epoch, Box<dyn ModelExecutor>)>,
    reports: Reports<WorkerMessage>,
}

impl Device {
    fn run(mut self, inbox: &Receiver<Job>) {
        while let Ok(Job::Execute(step)) = inbox.recv() {
            if !self.execute(&step) {
                return;
            }
        }
    }

    async fn run_in_simulated_time(mut self, inbox: Receiver<Job>, step_time: Duration) {
        while let Ok(Job::Execute(step)) = inbox.recv_async().await {
            tokio::time::sleep(step_time + self.context.observers.chaos.step_delay()).await;
            if !self.execute(&step) {
                return;
            }
        }
    }

    /// Computes a step and reports it. Returns whether the thread goes on.
    fn execute(&mut self, step: &SchedulerOutput) -> bool {
        let executors = Arc::clone(&self.context.vault.executors);
        let current = &mut self.current;
        self.context.observers.chaos.on_step(step);
        let computed = catch_unwind(AssertUnwindSafe(|| {
            let executor = executor_for(&*executors, step.epoch, current)?;
            Ok(executor.execute(step))
        }));
        let failed =
            |failure| StepOutcome::Failed { failure, requests: step.num_tokens_after().collect() };
        let outcome = match computed {
            Ok(Ok(Ok(output))) => StepOutcome::Done(output),
            Ok(Ok(Err(error))) => failed(StepFailure::Execute(error)),
            Ok(Err(refused)) => StepOutcome::NoExecutor(refused),
            Err(panic) => failed(StepFailure::Panic(panic_message(&*panic))),
        };
        let goes_on = matches!(outcome, StepOutcome::Done(_));
        let thread = self.number;
        self.reports.report(WorkerMessage::StepEnded { thread, outcome }) && goes_on
    }
}

/// Returns the executor of an epoch. Each epoch begins with a new one, without requests.
fn executor_for<'a>(
    executors: &dyn ExecutorFactory,
    epoch: Epoch,
    current: &'a mut Option<(Epoch, Box<dyn ModelExecutor>)>,
) -> Result<&'a mut Box<dyn ModelExecutor>, String> {
    if current.as_ref().is_none_or(|(served, _)| *served != epoch) {
        let executor = executors.create(epoch).map_err(|error| error.to_string())?;
        *current = Some((epoch, executor));
    }
    match current {
        Some((_, executor)) => Ok(executor),
        None => Err("it was not kept".to_owned()),
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
