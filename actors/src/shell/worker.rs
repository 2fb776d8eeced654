//! The worker's shell: passes steps to its device thread, limits their time, and returns their
//! results to the scheduler. If a step panics or hangs, the worker starts a new thread and goes on.
//! It reports the step's requests to the ledger. A new epoch computes them again on the new thread.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::AbortHandle;

use super::{
    device_thread::{self, DeviceThread, Job},
    thread_ends::JobNumber,
};
use crate::{
    error::ActorError,
    fault::{Bug, planted},
    logic::{
        recovery::{
            hang::{StepDeadlines, step_time_left},
            message_numbers::{Arrival, Inbox, Stamp},
        },
        request::{
            ids::{Epoch, Micros, RequestId, Step},
            outputs::StepOutput,
        },
        scheduler::output::SchedulerOutput,
    },
    message::{LedgerMessage, SchedulerMessage, StepFailure, StepOutcome, WorkerMessage},
    ports::ExecuteError,
    supervision::watched::{Long, waiting_for},
    system::context::Context,
};

/// Largest number of failed steps in a row. After one more, the worker blames the device and not a
/// request.
const MAX_FAILURES: u32 = 32;

/// The worker actor.
#[derive(Debug)]
pub struct WorkerActor {
    context: Arc<Context>,
}

/// The device thread and the steps it has.
#[derive(Debug)]
pub struct State {
    thread: DeviceThread,
    /// Number of threads before this one.
    num_threads: u64,
    /// The inbox. It accepts only steps of epochs that began after the actor started, and after the
    /// last failure.
    inbox: Inbox,
    /// The step that is being computed, and the steps that wait for it. Steps of an earlier epoch
    /// come first. Their results are not used, but the clocks of later steps start after them.
    steps: VecDeque<Given>,
    /// The step of the last probe, if the thread had computed it and the worker had no report of
    /// it.
    missed: Option<Step>,
    /// Failed steps since the last success.
    failures: u32,
}

/// A step that the device thread has received, and whose end it has not reported.
#[derive(Debug)]
struct Given {
    step: Arc<SchedulerOutput>,
    job: JobNumber,
    /// The step's clock. `None` while earlier steps are computed.
    running: Option<Running>,
}

impl Given {
    fn is(&self, epoch: Epoch, step: Step) -> bool {
        (self.step.epoch, self.step.step) == (epoch, step)
    }
}

/// The clock of the step that is being computed.
#[derive(Debug)]
struct Running {
    since: Micros,
    limit: Duration,
    /// [`Progress::starved`](crate::supervision::progress::Progress::starved) at the beginning of
    /// the step.
    starved_before: Micros,
    /// The timer of [`WorkerMessage::Deadline`]. The end of the step cancels it.
    timer: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl WorkerActor {
    /// Returns a worker on the vault's device.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Returns the time limit of a step of `tokens` tokens after `failures` failures in a row.
    fn deadline(&self, tokens: usize, failures: u32) -> Duration {
        let config = &self.context.config;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let deadlines = StepDeadlines {
            least: micros(config.min_step_deadline),
            first: micros(config.first_step_deadline),
        };
        let predicted = self.context.vault.step_time.lock().predict(tokens);
        Duration::from_micros(deadlines.deadline(predicted, failures))
    }

    async fn on_deadline(
        &self,
        myself: &ActorRef<WorkerMessage>,
        epoch: Epoch,
        step: Step,
        state: &mut State,
    ) -> Result<(), ActorError> {
        let Some(late) = state.steps.front_mut().filter(|given| given.is(epoch, step)) else {
            return Ok(());
        };
        if state.thread.has_done(late.job) {
            // The step was computed in time and its result was lost, so no request is at fault.
            state.steps.retain(|given| given.step.epoch > epoch);
            self.lost(epoch, "the result of a step");
            self.start_clock(myself, state);
            return Ok(());
        }
        if let Some(left) = late.running.as_ref().and_then(|running| self.time_left(running)) {
            let now = self.context.now();
            self.context.observers.progress.put_off(now.saturating_add(left));
            let again = move || WorkerMessage::Deadline { epoch, step };
            let timer = myself.send_after(Duration::from_micros(left), again).abort_handle();
            if let Some(running) = &mut late.running {
                running.timer = timer;
            }
            return Ok(());
        }
        let limit = late.running.as_ref().map(|running| running.limit);
        let since = late.running.as_ref().map(|running| running.since);
        let elapsed =
            since.map(|since| Duration::from_micros(self.context.now().saturating_sub(since)));
        tracing::warn!(step = step.0, ?limit, ?elapsed, "a step hangs");
        self.context.observers.step_hangs();
        let requests = late.step.num_tokens_after().collect();
        self.fail(myself, StepFailure::Deadline, requests, state).await
    }

    /// Returns the time that is left for a step, in microseconds. Time in which its threads lacked
    /// a processor does not count. `None`: no time is left.
    fn time_left(&self, running: &Running) -> Option<Micros> {
        let now = self.context.now();
        let elapsed = now.saturating_sub(running.since);
        let excused =
            self.context.observers.progress.excused(now).saturating_sub(running.starved_before);
        step_time_left(running.limit.as_micros() as u64, elapsed, excused)
    }

    async fn on_execute(
        &self,
        myself: &ActorRef<WorkerMessage>,
        stamp: Stamp,
        step: Arc<SchedulerOutput>,
        state: &mut State,
    ) -> Result<(), ActorError> {
        match state.inbox.follow(stamp) {
            Arrival::InOrder => self.execute(myself, step, state).await,
            Arrival::Stale if planted(Bug::KeepStaleStep) => {
                self.execute(myself, step, state).await
            }
            Arrival::Stale => {
                self.context.observers.stale(1);
                Ok(())
            }
            Arrival::Gap => {
                self.lost(stamp.epoch, "a step on its way to the worker");
                Ok(())
            }
        }
    }

    async fn execute(
        &self,
        myself: &ActorRef<WorkerMessage>,
        step: Arc<SchedulerOutput>,
        state: &mut State,
    ) -> Result<(), ActorError> {
        if let Some(front) = self.context.part.engine().filter(|_| !step.is_empty()) {
            waiting_for(front.step_given(&step)).await;
        }
        let submitted = state.thread.submit(Job::Execute(Arc::clone(&step)));
        if submitted.is_err() && state.thread.has_ended() && !state.steps.is_empty() {
            // An earlier step failed, and the message about it is on its way.
            return Ok(());
        }
        let job = submitted.map_err(|reason| ActorError::DeviceThread(reason.to_owned()))?;
        // A step without tokens only names requests to drop, so it has no result.
        if !step.is_empty() {
            state.steps.push_back(Given { step, job, running: None });
            self.start_clock(myself, state);
        }
        Ok(())
    }

    /// Starts the clock of the first step, if it does not run yet.
    fn start_clock(&self, myself: &ActorRef<WorkerMessage>, state: &mut State) {
        let Some(Given { step, running: running @ None, .. }) = state.steps.front_mut() else {
            return;
        };
        let limit = self.deadline(step.total_num_scheduled_tokens, state.failures);
        let (epoch, number, since) = (step.epoch, step.step, self.context.now());
        self.context.observers.progress.begin_step(since, limit.as_micros() as u64);
        let starved_before = self.context.observers.progress.starved();
        let deadline = move || WorkerMessage::Deadline { epoch, step: number };
        let timer = myself.send_after(limit, deadline).abort_handle();
        *running = Some(Running { since, limit, starved_before, timer });
    }

    fn on_probe(&self, sent: Stamp, step: Step, state: &mut State) {
        let epoch = sent.epoch;
        let is_past = state.inbox.is_closed() && epoch == state.inbox.epoch();
        let given = state.steps.iter().find(|given| given.is(epoch, step));
        let is_at_it = given.is_some();
        // The report may be the next message, so it counts as lost only at the second probe.
        let is_missed = given.is_some_and(|given| state.thread.has_done(given.job));
        let was_missed = state.missed == Some(step);
        state.missed = is_missed.then_some(step);
        let is_at_it = is_at_it && !(is_missed && was_missed);
        match state.inbox.check(sent) {
            Arrival::Gap => self.lost(epoch, "a step on its way to the worker"),
            Arrival::InOrder if is_at_it => {}
            Arrival::Stale if !is_past => {}
            Arrival::InOrder | Arrival::Stale => {
                let missing = SchedulerMessage::StepMissing { epoch, step };
                self.context.directory.core.scheduler.cast(missing);
            }
        }
    }

    fn lost(&self, epoch: Epoch, what: &'static str) {
        self.context.directory.ledger.cast(LedgerMessage::Lost { epoch, what: what.into() });
    }

    async fn on_step(
        &self,
        myself: &ActorRef<WorkerMessage>,
        outcome: StepOutcome,
        state: &mut State,
    ) -> Result<(), ActorError> {
        match outcome {
            StepOutcome::Done(output) => self.on_step_done(myself, output, state),
            // The thread and the scheduler have different states, so no request is at fault.
            StepOutcome::Failed { failure: StepFailure::Execute(error), .. }
                if matches!(error, ExecuteError::InvalidStep(_)) =>
            {
                return Err(ActorError::Invariant(error.to_string()));
            }
            StepOutcome::Failed { failure, requests } => {
                self.fail(myself, failure, requests, state).await?;
            }
            StepOutcome::NoExecutor(cause) => return Err(ActorError::DeviceThread(cause)),
        }
        Ok(())
    }

    fn on_step_done(
        &self,
        myself: &ActorRef<WorkerMessage>,
        output: StepOutput,
        state: &mut State,
    ) {
        if let Some(front) = self.context.part.engine() {
            front.step_done(output.epoch, output.step);
        }
        let place = state.steps.iter().position(|given| given.is(output.epoch, output.step));
        if let Some(place) = place {
            let mut unheard = state.steps.drain(..place);
            if unheard.any(|given| given.step.epoch == output.epoch) {
                self.lost(output.epoch, "the result of a step");
            }
            drop(unheard);
            if let Some(Given { step, running: Some(running), .. }) = state.steps.pop_front() {
                let took = self.context.now().saturating_sub(running.since);
                let tokens = step.total_num_scheduled_tokens;
                self.context.vault.step_time.lock().learn(tokens, took);
            }
            state.failures = 0;
            self.context.observers.progress.step_done();
            self.start_clock(myself, state);
        }
        if !output.outputs.is_empty() {
            self.context.directory.core.scheduler.cast(SchedulerMessage::StepDone(output));
        }
    }

    /// Drops the failed step, its thread and the epoch, because the thread's state is no longer
    /// valid. Reports the failure to the ledger and starts a new thread.
    async fn fail(
        &self,
        myself: &ActorRef<WorkerMessage>,
        failure: StepFailure,
        requests: Vec<(RequestId, usize)>,
        state: &mut State,
    ) -> Result<(), ActorError> {
        tracing::warn!(?failure, failures = state.failures + 1, "a step failed");
        state.failures += 1;
        if state.failures > MAX_FAILURES {
            return Err(ActorError::Device(format!("{failure:?}, {MAX_FAILURES} times in a row")));
        }
        // All steps of this epoch that are on their way were planned for the old thread.
        let epoch = state.inbox.epoch().max(self.context.core_epoch());
        state.inbox.close(epoch);
        if failure == StepFailure::Deadline {
            // The vault may have to allocate another cache.
            let _long = Long::begin();
            let reclaimed = self.context.vault.reclaim(epoch);
            reclaimed.map_err(|error| ActorError::Device(error.to_string()))?;
        }
        state.steps.clear();
        state.num_threads += 1;
        // Before the start of the thread, which may wait or fail. The requests of the step are
        // suspects even if this worker dies then. Steps of the next epoch wait in the mailbox.
        let failed = LedgerMessage::StepFailed { epoch, requests, failure };
        self.context.directory.ledger.cast(failed);
        state.thread = self.spawn_thread(myself, state.num_threads).await?;
        Ok(())
    }

    async fn spawn_thread(
        &self,
        myself: &ActorRef<WorkerMessage>,
        number: u64,
    ) -> Result<DeviceThread, ActorError> {
        let thread = device_thread::spawn(&self.context, myself.clone().into(), number).await;
        thread.map_err(|error| ActorError::DeviceThread(error.to_string()))
    }
}

impl Actor for WorkerActor {
    type Msg = WorkerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<WorkerMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        // The thread itself creates its executor, so this is cheap.
        let thread = self.spawn_thread(&myself, 0).await?;
        let mut inbox = Inbox::default();
        inbox.close(self.context.core_epoch());
        let steps = VecDeque::new();
        Ok(State { thread, num_threads: 0, inbox, steps, missed: None, failures: 0 })
    }

    async fn handle(
        &self,
        myself: ActorRef<WorkerMessage>,
        message: WorkerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WorkerMessage::Execute(stamp, step) => {
                self.on_execute(&myself, stamp, step, state).await?;
            }
            WorkerMessage::Probe { sent, step } => self.on_probe(sent, step, state),
            WorkerMessage::StepEnded { thread, .. } if thread != state.num_threads => {
                self.context.observers.stale(1);
            }
            WorkerMessage::StepEnded { outcome, .. } => {
                self.on_step(&myself, outcome, state).await?;
            }
            WorkerMessage::Deadline { epoch, step } => {
                self.on_deadline(&myself, epoch, step, state).await?;
            }
            WorkerMessage::Ping => {}
        }
        Ok(())
    }
}
