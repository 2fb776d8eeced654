//! The scheduler's shell: one step at a time, planned with the KV cache manager, computed by the
//! worker, committed to the ledger.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::context::Context;
use crate::{
    error::ActorError,
    logic::{
        ids::{Epoch, Step},
        outputs::Commit,
        scheduler::{RecoveredRequest, Scheduled, Scheduler},
    },
    message::{KvCacheManagerMessage, LedgerMessage, SchedulerMessage, WorkerMessage},
};

/// How often it looks for deadlines that passed while nothing else happened.
const TICK: Duration = Duration::from_millis(500);

/// The scheduler actor.
#[derive(Debug)]
pub struct SchedulerActor {
    context: Arc<Context>,
}

/// What it derives from the ledger.
#[derive(Debug)]
pub struct State {
    scheduler: Scheduler,
    /// Until the ledger has told the epoch, nothing is planned.
    is_ready: bool,
    /// Who waits for the prefix cache to be reset.
    resets: Vec<RpcReplyPort<bool>>,
}

impl SchedulerActor {
    /// A scheduler with the context's settings.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Plans the next step if the worker is free, and sends it.
    async fn advance(&self, state: &mut State) -> Result<(), ActorError> {
        let scheduler = &mut state.scheduler;
        if !state.is_ready || scheduler.step_in_flight().is_some() || !scheduler.has_work() {
            return Ok(());
        }
        scheduler.begin_step(self.context.now())?;
        while let Some(plan) = scheduler.next_plan() {
            let manager = &self.context.directory.kv_cache_manager;
            let limit = self.context.config.call_timeout;
            let execute = |reply| KvCacheManagerMessage::Execute(plan, reply);
            let Some(allocation) = manager.call("execute", limit, execute).await? else {
                // A new epoch has begun, and word of it is in the mailbox.
                state.is_ready = false;
                return Ok(());
            };
            scheduler.apply(allocation)?;
        }
        let scheduled = scheduler.finish_step()?;
        self.context.last_step.store(scheduler.step().0, Ordering::Relaxed);
        self.tell(scheduled, state);
        Ok(())
    }

    /// Hands a planned step to those concerned.
    fn tell(&self, scheduled: Scheduled, state: &mut State) {
        let Scheduled { output, ended, prefix_cache_reset, mut stats } = scheduled;
        self.context.metrics.scheduled(&stats, &state.scheduler.stats());
        let directory = &self.context.directory;
        if !stats.first_scheduled.is_empty() {
            let first_scheduled = std::mem::take(&mut stats.first_scheduled);
            directory.ledger.cast(LedgerMessage::FirstScheduled(first_scheduled));
        }
        self.commit(ended, state);
        if let Some(done) = prefix_cache_reset {
            for reply in state.resets.drain(..) {
                let _ = reply.send(done);
            }
        }
        if output.has_news() {
            directory.worker.cast(WorkerMessage::Execute(Arc::new(output)));
        }
    }

    /// Hands what became final to the ledger.
    fn commit(&self, commits: Vec<Commit>, state: &State) {
        if !commits.is_empty() {
            let epoch = state.scheduler.epoch();
            self.context.directory.ledger.cast(LedgerMessage::Commit { epoch, commits });
        }
    }

    fn recover(&self, epoch: Epoch, live: Vec<RecoveredRequest>, state: &mut State) {
        let last_step = Step(self.context.last_step.load(Ordering::Relaxed));
        state.scheduler.recover(epoch, last_step, live);
        state.is_ready = true;
    }
}

impl Actor for SchedulerActor {
    type Msg = SchedulerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<SchedulerMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        let scheduler = Scheduler::new(self.context.config.scheduler.clone());
        Ok(State { scheduler, is_ready: false, resets: Vec::new() })
    }

    async fn post_start(
        &self,
        myself: ActorRef<SchedulerMessage>,
        _state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        myself.send_interval(TICK, || SchedulerMessage::Tick);
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<SchedulerMessage>,
        message: SchedulerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SchedulerMessage::Add(requests) => {
                for request in requests {
                    state.scheduler.add(request);
                }
            }
            SchedulerMessage::Abort(requests) => {
                state.scheduler.finish(&requests);
            }
            SchedulerMessage::StepDone(output) => {
                let commits = state.scheduler.update_from_output(output, self.context.now());
                self.commit(commits, state);
            }
            SchedulerMessage::Recover { epoch, live } => self.recover(epoch, live, state),
            SchedulerMessage::SetPause(pause) => state.scheduler.set_pause(pause),
            SchedulerMessage::ResetPrefixCache { reset_running_requests, reply } => {
                state.scheduler.reset_prefix_cache(reset_running_requests);
                state.resets.push(reply);
            }
            SchedulerMessage::Stats(reply) => {
                let _ = reply.send(state.scheduler.stats());
            }
            SchedulerMessage::Tick => {}
        }
        self.advance(state).await?;
        Ok(())
    }
}
