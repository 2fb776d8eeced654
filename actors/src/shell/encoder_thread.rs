//! The OS thread that encodes images and sounds, beside the worker's: decoding goes on meanwhile.
//! A panic ends the thread and is reported. A thread that hangs is left behind.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use flume::{Receiver, Sender};

use super::device_thread::panic_message;
use crate::{
    logic::request::media::MultimodalFeature,
    message::{EncoderOutcome, EncoderWorkerMessage, Letter},
    ports::{EncoderExecutor, EncoderFactory, ExecuteError},
    supervision::{
        address::Address,
        left_behind::{Held, Holder},
    },
    system::{config::DeviceMode, context::Context},
};

/// The worker has one job at a time. A report may be lost, and its job then begins again.
const WINDOW: usize = 2;

/// The worker's end of the thread. Dropping it ends the thread after the job that it has.
#[derive(Debug)]
pub(crate) struct EncoderThread {
    jobs: Sender<Vec<MultimodalFeature>>,
    num_submitted: u64,
    num_done: Arc<AtomicU64>,
    _tie: Holder,
}

impl EncoderThread {
    /// Starts a thread that reports to `worker` under this number.
    ///
    /// # Errors
    /// When the system provides no thread, or too many were left behind.
    pub(crate) fn spawn(
        context: &Arc<Context>,
        worker: Address<EncoderWorkerMessage>,
        number: u64,
    ) -> std::io::Result<Self> {
        let (jobs, inbox) = flume::bounded(WINDOW);
        let num_done = Arc::new(AtomicU64::new(0));
        let (tie, held) = context.vault.left_behind.tie()?;
        let device = Device {
            context: Arc::clone(context),
            worker,
            number,
            executor: None,
            num_done: Arc::clone(&num_done),
            _held: held,
        };
        match context.config.device {
            DeviceMode::Thread => {
                let thread = std::thread::Builder::new().name("playhouse-encoder".to_owned());
                thread.spawn(move || device.run(&inbox))?;
            }
            DeviceMode::Task { step_time } => {
                drop(tokio::spawn(device.run_in_simulated_time(inbox, step_time)));
            }
        }
        Ok(Self { jobs, num_submitted: 0, num_done, _tie: tie })
    }

    /// Queues items to encode together, and returns the number of the job. Fails when the window is
    /// full or the thread has ended.
    pub(crate) fn submit(&mut self, items: Vec<MultimodalFeature>) -> Result<u64, &'static str> {
        self.jobs.try_send(items).map_err(|error| match error {
            flume::TrySendError::Full(_) => "its window is full",
            flume::TrySendError::Disconnected(_) => "it has ended",
        })?;
        self.num_submitted += 1;
        Ok(self.num_submitted)
    }

    /// Returns whether the thread has reported a job.
    pub(crate) fn has_done(&self, job: u64) -> bool {
        self.num_done.load(Ordering::Acquire) >= job
    }
}

/// The thread's end.
struct Device {
    context: Arc<Context>,
    worker: Address<EncoderWorkerMessage>,
    number: u64,
    executor: Option<Box<dyn EncoderExecutor>>,
    num_done: Arc<AtomicU64>,
    _held: Held,
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
        let thread = self.number;
        let job = self.num_done.load(Ordering::Acquire) + 1;
        let is_heard = self.send(EncoderWorkerMessage::JobEnded { thread, job, outcome });
        self.num_done.fetch_add(1, Ordering::Release);
        is_heard && goes_on
    }

    /// Sends a report. Returns whether the worker is still alive.
    fn send(&self, report: EncoderWorkerMessage) -> bool {
        let delivery = self.context.observers.chaos.on_send(report.edge());
        if delivery.copies == 2
            && let Some(copy) = report.duplicate()
        {
            drop(self.worker.send(copy));
        }
        match delivery.delay {
            _ if delivery.copies == 0 => true,
            None => self.worker.send(report).is_ok(),
            Some(delay) => {
                let worker = self.worker.clone();
                self.context.observers.chaos.later(delay, move || drop(worker.send(report)));
                true
            }
        }
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
