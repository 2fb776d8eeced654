//! The worker's shell: passes steps to its device thread, holds them to a deadline, and returns
//! their results to the scheduler.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::AbortHandle;

use super::{
    context::Context,
    device_thread::{DeviceThread, Job},
};
use crate::{
    error::ActorError,
    logic::{
        ids::{Epoch, Micros, Step},
        outputs::StepOutput,
        scheduler_output::SchedulerOutput,
    },
    message::{SchedulerMessage, WorkerMessage},
};

/// How much a new measurement weighs in the prediction of the next step.
const EWMA_WEIGHT: f64 = 0.2;

/// The worker actor.
#[derive(Debug)]
pub struct WorkerActor {
    context: Arc<Context>,
}

/// The device thread and the step it is on.
#[derive(Debug, Default)]
pub struct State {
    thread: Option<DeviceThread>,
    running: Option<Running>,
    /// Smoothed time a scheduled token takes, in microseconds.
    token_micros: Option<f64>,
}

#[derive(Debug)]
struct Running {
    epoch: Epoch,
    step: Step,
    since: Micros,
    tokens: usize,
    limit: Duration,
    /// Sends the [`WorkerMessage::Deadline`] unless the step is done before.
    timer: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl WorkerActor {
    /// A worker on the vault's device.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// `max(2 s, 10 × predicted)`.
    fn deadline(&self, tokens: usize, state: &State) -> Duration {
        let config = &self.context.config;
        match state.token_micros {
            None => config.first_step_deadline,
            Some(micros) => {
                let predicted = Duration::from_secs_f64(micros * tokens as f64 / 1e6);
                config.min_step_deadline.max(predicted * 10)
            }
        }
    }

    fn execute(
        &self,
        myself: &ActorRef<WorkerMessage>,
        step: Arc<SchedulerOutput>,
        state: &mut State,
    ) -> Result<(), ActorError> {
        let tokens = step.total_num_scheduled_tokens;
        let limit = self.deadline(tokens, state);
        let (epoch, number, since) = (step.epoch, step.step, self.context.now());
        submit(state, Job::Execute(step))?;
        // A step without tokens only tells the thread what to drop: nobody waits for it.
        if tokens == 0 {
            return Ok(());
        }
        let deadline = move || WorkerMessage::Deadline { epoch, step: number };
        let timer = myself.send_after(limit, deadline).abort_handle();
        state.running = Some(Running { epoch, step: number, since, tokens, limit, timer });
        Ok(())
    }

    /// Learns from a step how long tokens take. An old epoch's step says nothing of the current one.
    fn learn(&self, output: &StepOutput, state: &mut State) {
        let is_it =
            |running: &mut Running| (running.epoch, running.step) == (output.epoch, output.step);
        let Some(running) = state.running.take_if(is_it) else { return };
        let took = self.context.now().saturating_sub(running.since) as f64;
        let measured = took / running.tokens as f64;
        let smoothed = |old: f64| old + EWMA_WEIGHT * (measured - old);
        state.token_micros = Some(state.token_micros.map_or(measured, smoothed));
    }
}

fn submit(state: &State, job: Job) -> Result<(), ActorError> {
    let thread = state.thread.as_ref().ok_or("it was never started");
    thread
        .and_then(|thread| thread.submit(job))
        .map_err(|reason| ActorError::DeviceThread(reason.to_owned()))
}

impl Actor for WorkerActor {
    type Msg = WorkerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<WorkerMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        Ok(State::default())
    }

    async fn post_start(
        &self,
        myself: ActorRef<WorkerMessage>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let executors = Arc::clone(&self.context.vault.executors);
        state.thread = Some(DeviceThread::spawn(executors, myself)?);
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<WorkerMessage>,
        message: WorkerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WorkerMessage::Execute(step) => self.execute(&myself, step, state)?,
            WorkerMessage::Recover(_) => {
                state.running = None;
                submit(state, Job::Reset)?;
            }
            WorkerMessage::StepDone(Ok(output)) => {
                self.learn(&output, state);
                if !output.outputs.is_empty() {
                    self.context.directory.scheduler.cast(SchedulerMessage::StepDone(output));
                }
            }
            WorkerMessage::StepDone(Err(error)) => {
                return Err(ActorError::Device(error.to_string()).into());
            }
            WorkerMessage::ThreadDied(cause) => {
                return Err(ActorError::DeviceThread(cause).into());
            }
            WorkerMessage::Deadline { epoch, step } => {
                let late = state.running.as_ref().filter(|r| (r.epoch, r.step) == (epoch, step));
                if let Some(running) = late {
                    let (step, limit) = (step.0, running.limit);
                    return Err(ActorError::StepDeadline { step, limit }.into());
                }
            }
        }
        Ok(())
    }
}
