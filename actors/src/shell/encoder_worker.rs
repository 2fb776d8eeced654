//! The encoder worker's shell: passes items to its device thread and limits their time. If items
//! fail together or hang, it starts a new thread and encodes each alone.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::AbortHandle;

use super::encoder_thread::{self, EncoderThread};
use crate::{
    error::ActorError,
    logic::{
        encoder_cache::{Arrived, EncoderJobs, EndedBatch},
        recovery::in_flight::SideWork,
    },
    message::{EncoderCacheManagerMessage, EncoderOutcome, EncoderWorkerMessage},
    supervision::watched::waiting_for,
    system::context::Context,
};

/// The encoder worker actor.
#[derive(Debug)]
pub struct EncoderWorkerActor {
    context: Arc<Context>,
}

/// The batch and the thread. A manager sends the batch again to a worker that is new.
#[derive(Debug)]
pub struct State {
    jobs: EncoderJobs,
    /// `None` until there is something to encode.
    thread: Option<EncoderThread>,
    /// Number of threads so far.
    num_threads: u64,
    running: Option<Running>,
}

/// The job that the thread has.
#[derive(Debug)]
struct Running {
    job: u64,
    /// Whether the thread had done it at the last look, and no report had arrived.
    is_missed: bool,
    /// The timer of [`EncoderWorkerMessage::Deadline`].
    timer: AbortHandle,
    /// The number of the work at the front, if this is an engine process.
    work: Option<u64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

impl EncoderWorkerActor {
    /// Returns a worker over the encoder of the vault's model.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Returns the time limit of a job. An encoder has no history, so it is that of a first step.
    fn limit(&self) -> Duration {
        self.context.config.first_step_deadline
    }

    /// Gives the thread the next items, if it is free.
    async fn advance(
        &self,
        myself: &ActorRef<EncoderWorkerMessage>,
        state: &mut State,
    ) -> Result<(), ActorError> {
        if state.running.is_some() {
            return Ok(());
        }
        let Some(items) = state.jobs.items().map(<[_]>::to_vec) else { return Ok(()) };
        let thread = match &mut state.thread {
            Some(thread) => thread,
            none => {
                state.num_threads += 1;
                let (address, number) = (myself.clone().into(), state.num_threads);
                let thread = encoder_thread::spawn(&self.context, address, number).await;
                none.insert(thread.map_err(|error| ActorError::DeviceThread(error.to_string()))?)
            }
        };
        // After the start of the thread, which may wait: no item is at work meanwhile.
        let work = match self.context.part.engine() {
            None => None,
            Some(front) => {
                let identifiers = items.iter().map(|item| Arc::clone(&item.identifier));
                let work = SideWork::Encode(identifiers.collect());
                Some(waiting_for(front.work_given(work)).await)
            }
        };
        let job = thread.submit(items);
        let job = job.map_err(|why| ActorError::DeviceThread(why.to_owned()))?;
        let number = state.num_threads;
        let deadline = move || EncoderWorkerMessage::Deadline { thread: number, job };
        let timer = myself.send_after(self.limit(), deadline).abort_handle();
        state.running = Some(Running { job, is_missed: false, timer, work });
        Ok(())
    }

    /// Records that the thread has no job.
    fn ended(&self, state: &mut State) {
        let work = state.running.take().and_then(|running| running.work);
        if let (Some(work), Some(front)) = (work, self.context.part.engine()) {
            front.work_done(work);
        }
    }

    /// Looks for a report that was lost: the manager asks again for a batch.
    fn check_report(&self, state: &mut State) {
        let (Some(running), Some(thread)) = (&mut state.running, &state.thread) else { return };
        let is_done = thread.has_done(running.job);
        // The report may be the next message.
        if is_done && std::mem::replace(&mut running.is_missed, true) {
            self.ended(state);
        }
    }

    /// Leaves the thread, because its state is no longer valid, and records the failure.
    fn fail(&self, why: &str, state: &mut State) {
        tracing::warn!(why, "images or sounds could not be encoded");
        self.ended(state);
        state.thread = None;
        let ended = state.jobs.failed();
        self.tell(ended);
    }

    fn tell(&self, ended: Option<EndedBatch>) {
        if let Some(EndedBatch { manager, number, encoded }) = ended {
            let encoded = EncoderCacheManagerMessage::Encoded { manager, number, encoded };
            self.context.directory.core.encoder_cache_manager.cast(encoded);
        }
    }
}

impl Actor for EncoderWorkerActor {
    type Msg = EncoderWorkerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<EncoderWorkerMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        Ok(State { jobs: EncoderJobs::default(), thread: None, num_threads: 0, running: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<EncoderWorkerMessage>,
        message: EncoderWorkerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            EncoderWorkerMessage::Encode(batch) => match state.jobs.take(batch) {
                Arrived::New => {}
                Arrived::Current => self.check_report(state),
                Arrived::Ended(ended) => self.tell(Some(ended)),
            },
            EncoderWorkerMessage::JobEnded { thread, .. } if thread != state.num_threads => {
                self.context.observers.stale(1);
            }
            EncoderWorkerMessage::JobEnded { job, .. }
                if state.running.as_ref().is_none_or(|running| running.job != job) =>
            {
                self.context.observers.stale(1);
            }
            EncoderWorkerMessage::JobEnded { outcome, .. } => match outcome {
                EncoderOutcome::Done(ends) => {
                    self.ended(state);
                    let ended = state.jobs.done(ends);
                    self.tell(ended);
                }
                EncoderOutcome::Failed(error) => self.fail(&error.to_string(), state),
            },
            EncoderWorkerMessage::Deadline { thread, job } => {
                let is_running = state.running.as_ref().is_some_and(|running| running.job == job);
                if thread == state.num_threads && is_running {
                    match state.thread.as_ref().is_some_and(|thread| thread.has_done(job)) {
                        // Its report was lost. The results are in the store.
                        true => self.ended(state),
                        false => self.fail("it takes too long", state),
                    }
                }
            }
            EncoderWorkerMessage::Ping => {}
        }
        Ok(self.advance(&myself, state).await?)
    }
}
