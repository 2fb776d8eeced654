//! The scheduler's shell: one step at a time, planned with the KV cache manager, computed by the
//! worker, committed to the ledger.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::context::Context;
use crate::{
    error::ActorError,
    logic::{
        ids::{Epoch, Step},
        outputs::StepOutput,
        scheduler::Scheduler,
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
    /// `None` until the ledger has told the epoch.
    epoch: Option<Epoch>,
    in_flight: Option<Step>,
}

impl SchedulerActor {
    /// A scheduler with the context's settings.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Plans the next step if the worker is free, and sends it.
    async fn advance(&self, state: &mut State) -> Result<(), ActorError> {
        if state.epoch.is_none() || state.in_flight.is_some() || !state.scheduler.has_work() {
            return Ok(());
        }
        state.scheduler.begin_step(self.context.now());
        while let Some(plan) = state.scheduler.next_plan() {
            let manager = &self.context.directory.kv_cache_manager;
            let limit = self.context.config.call_timeout;
            let execute = |reply| KvCacheManagerMessage::Execute(plan, reply);
            let allocation = manager.call("execute", limit, execute).await?;
            state.scheduler.apply(allocation);
        }
        let output = state.scheduler.finish_step();
        self.context.metrics.scheduled(&state.scheduler.take_step_stats());
        self.commit(state);
        if output.has_news() {
            state.in_flight = Some(output.step);
            self.context.directory.worker.cast(WorkerMessage::Execute(Arc::new(output)));
        }
        Ok(())
    }

    fn step_done(&self, output: &StepOutput, state: &mut State) {
        if state.epoch != Some(output.epoch) || state.in_flight != Some(output.step) {
            self.context.metrics.stale_messages.increment(1);
            return;
        }
        state.in_flight = None;
        state.scheduler.update_from_output(output, self.context.now());
        self.commit(state);
    }

    /// Hands what became final to the ledger.
    fn commit(&self, state: &mut State) {
        let commits = state.scheduler.take_commits();
        if let Some(epoch) = state.epoch.filter(|_| !commits.is_empty()) {
            self.context.directory.ledger.cast(LedgerMessage::Commit { epoch, commits });
        }
    }

    async fn reset_prefix_cache(
        &self,
        reset_running_requests: bool,
        state: &mut State,
    ) -> Result<bool, ActorError> {
        if let Some(plan) = state.scheduler.begin_reset(reset_running_requests) {
            let manager = &self.context.directory.kv_cache_manager;
            let limit = self.context.config.call_timeout;
            let execute = |reply| KvCacheManagerMessage::Execute(plan, reply);
            manager.call("execute", limit, execute).await?;
        }
        let manager = &self.context.directory.kv_cache_manager;
        let limit = self.context.config.call_timeout;
        manager.call("reset_prefix_cache", limit, KvCacheManagerMessage::ResetPrefixCache).await
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
        Ok(State { scheduler, epoch: None, in_flight: None })
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
            SchedulerMessage::Abort(requests) => state.scheduler.abort(&requests),
            SchedulerMessage::StepDone(output) => self.step_done(&output, state),
            SchedulerMessage::Recover { epoch, live } => {
                state.epoch = Some(epoch);
                state.in_flight = None;
                state.scheduler.recover(epoch, live);
            }
            SchedulerMessage::SetPause(pause) => state.scheduler.set_pause(pause),
            SchedulerMessage::ResetPrefixCache { reset_running_requests, reply } => {
                let _ = reply.send(self.reset_prefix_cache(reset_running_requests, state).await?);
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
