//! The OS thread that encodes images and sounds, beside the worker's: decoding goes on meanwhile.
//! A panic ends the thread and is reported. A thread that hangs is left behind.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use flume::Receiver;

use super::{
    device_thread::panic_message,
    thread_ends::{JobQueue, Reports, thread_ends},
};
use crate::{
    logic::request::media::MultimodalFeature,
    message::{EncoderOutcome, EncoderWorkerMessage},
    ports::{EncoderExecutor, EncoderFactory, ExecuteError},
    supervision::address::Address,
    system::{config::DeviceMode, context::Context},
};

/// The worker has one job at a time. A report may be lost, and its job then begins again.
const WINDOW: usize = 2;

/// The worker's end of the thread. A job is the items to encode together.
pub(crate) type EncoderThread = JobQueue<Vec<MultimodalFeature>>;

/// Starts a thread that reports to `worker` under this number. Waits for a while if too many
/// threads were left behind.
///
/// # Errors
/// When the system provides no thread, or too many are still left behind after the wait.
pub(crate) async fn spawn(
    context: &Arc<Context>,
    worker: Address<EncoderWorkerMessage>,
    number: u64,
) -> std::io::Result<EncoderThread> {
    let (jobs, inbox, reports) = thread_ends(context, worker, WINDOW).await?;
    let device = Device { context: Arc::clone(context), number, executor: None, reports };
    match context.config.device {
        DeviceMode::Thread => {
            let thread = std::thread::Builder::new().name("playhouse-encoder".to_owned());
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
    executor: Option<Box<dyn EncoderExecutor>>,
    reports: Reports<EncoderWorkerMessage>,
}

impl Device {
    fn run(mut self, inbox: &Receiver<Vec<MultimodalFeature>>) {
        while let Ok(items) = inbox.recv() {
            if !self.encode(&items) {
                return;
            }
        }
    }

    async fn run_in_simulated_time(
        mut self,
        inbox: Receiver<Vec<MultimodalFeature>>,
        step_time: Duration,
    ) {
        while let Ok(items) = inbox.recv_async().await {
            tokio::time::sleep(step_time + self.context.observers.chaos.encode_delay()).await;
            if !self.encode(&items) {
                return;
            }
        }
    }

    /// Encodes items and reports the end. Returns whether the thread goes on.
    fn encode(&mut self, items: &[MultimodalFeature]) -> bool {
        let encoder = self.context.vault.executors.encoder();
        let executor = &mut self.executor;
        let encoded = catch_unwind(AssertUnwindSafe(|| {
            executor_of(encoder.as_deref(), executor)?.encode(items)
        }));
        let outcome = match encoded {
            Ok(Ok(ends)) if ends.len() == items.len() => EncoderOutcome::Done(ends),
            Ok(Ok(ends)) => {
                let why = format!("{} results for {} items", ends.len(), items.len());
                EncoderOutcome::Failed(ExecuteError::Device(why))
            }
            Ok(Err(error)) => EncoderOutcome::Failed(error),
            Err(panic) => EncoderOutcome::Failed(ExecuteError::Device(panic_message(&*panic))),
        };
        let goes_on = matches!(outcome, EncoderOutcome::Done(_));
        let (thread, job) = (self.number, self.reports.job());
        self.reports.report(EncoderWorkerMessage::JobEnded { thread, job, outcome }) && goes_on
    }
}

/// Returns the thread's executor, which the first job makes.
fn executor_of<'a>(
    encoder: Option<&dyn EncoderFactory>,
    executor: &'a mut Option<Box<dyn EncoderExecutor>>,
) -> Result<&'a mut Box<dyn EncoderExecutor>, ExecuteError> {
    match executor {
        Some(executor) => Ok(executor),
        none => {
            let why = || ExecuteError::Device("the model has no encoder".to_owned());
            Ok(none.insert(encoder.ok_or_else(why)?.create()?))
        }
    }
}
