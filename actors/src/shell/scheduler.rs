//! The scheduler's shell. Steps are planned with the KV cache manager, computed by the worker and
//! reported to the ledger. At most one step is planned ahead.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::{
    error::ActorError,
    fault::{Bug, Observed, planted},
    logic::{
        encoder_cache::EncoderNeeds,
        ledger::Restriction,
        recovery::message_numbers::{Arrival, Inbox, Outbox, Stamp},
        request::{
            ids::Epoch,
            lora::LoraRequest,
            outputs::{StepOutput, StepReport},
        },
        scheduler::{RecoveredRequest, Resource, Scheduled},
    },
    message::{
        CompiledGrammar, EncoderCacheManagerMessage, KvCacheManagerMessage, LedgerMessage,
        SchedulerMessage, SchedulerOrder, StructuredOutputMessage, WorkerMessage,
    },
    shell::{
        adapter_threads::{AdapterState, ask_for_adapter},
        recorded_scheduler::RecordedScheduler,
    },
    supervision::watched::{Long, yield_now},
    system::context::Context,
};

/// The scheduler actor.
#[derive(Debug)]
pub struct SchedulerActor {
    context: Arc<Context>,
}

/// The scheduler's state, all of it derived from the ledger.
#[derive(Debug)]
pub struct State {
    scheduler: RecordedScheduler,
    /// Whether steps are planned: from the ledger's first word of the epoch until a message is
    /// lost.
    is_ready: bool,
    orders: Inbox,
    reports: Outbox,
    steps: Outbox,
    /// The callers that wait for a reset of the prefix cache.
    resets: Vec<RpcReplyPort<bool>>,
    /// Reports that the ledger has not got yet. They are sent only after the next step: the device
    /// waits for steps, nothing waits for reports.
    unreported: Vec<StepReport>,
}

impl SchedulerActor {
    /// Returns a scheduler with the context's settings.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Plans the next step and sends it, if the worker is free. Then plans one step ahead, if
    /// possible.
    async fn advance(&self, state: &mut State) -> Result<(), ActorError> {
        let is_free = state.scheduler.step_in_flight().is_none();
        if state.is_ready && is_free && state.scheduler.has_work() {
            self.plan(state).await?;
        }
        if state.is_ready && state.scheduler.can_plan_ahead() {
            self.plan(state).await?;
        }
        Ok(())
    }

    async fn plan(&self, state: &mut State) -> Result<(), ActorError> {
        let scheduler = &mut state.scheduler;
        scheduler.begin_step(self.context.now())?;
        loop {
            let plan = {
                // The first plan of an epoch has the hashes of all resumed requests.
                let _long = scheduler.begins_epoch().then(Long::begin);
                scheduler.next_plan()
            };
            let Some(plan) = plan else { break };
            let manager = &self.context.directory.core.kv_cache_manager;
            let limit = self.context.config.call_timeout;
            let execute = |reply| KvCacheManagerMessage::Execute(plan, reply);
            let Some(allocation) = manager.call("execute", limit, execute).await? else {
                // A new epoch has begun. The message about it is in the mailbox, or the tick asks
                // for it.
                state.is_ready = false;
                return Ok(());
            };
            scheduler.apply(allocation)?;
        }
        let scheduled = scheduler.finish_step()?;
        self.context.ground.planned(scheduler.step());
        self.tell(scheduled, state);
        Ok(())
    }

    /// Sends a planned step to the worker, and notes its effects for the ledger and the observers.
    fn tell(&self, scheduled: Scheduled, state: &mut State) {
        let Scheduled { output, ended, prefix_cache_reset, mut stats } = scheduled;
        self.context.observers.scheduled(&stats, &state.scheduler.stats());
        let first_scheduled = std::mem::take(&mut stats.first_scheduled);
        if !first_scheduled.is_empty() || !ended.is_empty() {
            let report = StepReport { first_scheduled, commits: ended, is_computed: false };
            state.unreported.push(report);
        }
        if let Some(done) = prefix_cache_reset {
            for reply in state.resets.drain(..) {
                let _ = reply.send(done);
            }
        }
        self.context.observers.chaos.observe(&Observed::Step { output: &output });
        if output.has_news() {
            let output = Arc::new(output);
            self.context.observers.steps.note(&output);
            let execute = WorkerMessage::Execute(state.steps.stamp(), output);
            self.context.directory.core.worker.cast(execute);
        }
    }

    fn report_all(&self, state: &mut State) {
        for report in std::mem::take(&mut state.unreported) {
            let stamp = state.reports.stamp();
            self.context.directory.ledger.cast(LedgerMessage::Report(stamp, report));
        }
    }

    fn on_order(&self, stamp: Stamp, order: SchedulerOrder, state: &mut State) {
        match state.orders.receive(stamp) {
            Arrival::InOrder => match order {
                SchedulerOrder::Add(requests) => state.scheduler.add(requests),
                SchedulerOrder::Abort(requests) => state.scheduler.finish(&requests),
                SchedulerOrder::Restrict(restriction) => state.scheduler.restrict(restriction),
            },
            Arrival::Stale => self.context.observers.stale(1),
            Arrival::Gap => self.lost(stamp.epoch, "an order to the scheduler", state),
        }
    }

    fn on_step_done(&self, output: StepOutput, state: &mut State) {
        let (epoch, step) = (output.epoch, output.step);
        let is_of_now = epoch == state.scheduler.epoch();
        if is_of_now && state.scheduler.step_in_flight().is_some_and(|awaited| awaited < step) {
            self.lost(epoch, "the result of a step", state);
            return;
        }
        let is_awaited = is_of_now && state.scheduler.step_in_flight() == Some(step);
        if is_awaited {
            self.context.observers.drafted(&output);
        }
        let commits = state.scheduler.update_from_output(output, self.context.now());
        if is_awaited {
            let first_scheduled = Vec::new();
            state.unreported.push(StepReport { first_scheduled, commits, is_computed: true });
        }
    }

    /// Begins an epoch. A message about a past or known epoch changes nothing.
    fn recover(
        &self,
        epoch: Epoch,
        live: Vec<RecoveredRequest>,
        restriction: Restriction,
        state: &mut State,
    ) {
        if epoch <= state.orders.epoch() {
            self.context.observers.stale(1);
            return;
        }
        let last_step = self.context.ground.last_step();
        state.scheduler.recover(epoch, last_step, live);
        state.scheduler.set_pause(self.context.ground.hold.in_force());
        state.scheduler.restrict(restriction);
        state.orders.begin(epoch);
        state.reports.begin(epoch);
        state.steps.begin(epoch);
        state.is_ready = true;
        self.context.observers.progress.begin();
    }

    fn on_grammars(&self, compiled: Vec<CompiledGrammar>, state: &mut State) {
        let scheduler = &mut state.scheduler;
        let commits: Vec<_> = compiled
            .into_iter()
            .flat_map(|(format, compiled)| scheduler.resolve(&Resource::Grammar(format), compiled))
            .collect();
        if !commits.is_empty() {
            state.unreported.push(StepReport { commits, ..StepReport::default() });
        }
    }

    /// Asks the actors and threads that provide these resources.
    fn ask_for(&self, resources: Vec<Resource>, state: &mut State) {
        let mut grammars = Vec::new();
        for resource in resources {
            match resource {
                Resource::Grammar(format) => grammars.push(format),
                Resource::Adapter(adapter) => self.ask_for_adapter(&adapter, state),
                // Plans list the items: see `Scheduler::take_encoder_needs`.
                Resource::Encoder(_) => {}
            }
        }
        if !grammars.is_empty() {
            let compile = StructuredOutputMessage::Compile(grammars);
            self.context.directory.core.structured_output.cast(compile);
        }
    }

    fn need_encoded(&self, needs: EncoderNeeds) {
        let needs = EncoderCacheManagerMessage::Needs(needs);
        self.context.directory.core.encoder_cache_manager.cast(needs);
    }

    /// Lets the requests for an adapter begin if it is in memory and there is room for it.
    fn ask_for_adapter(&self, adapter: &Arc<LoraRequest>, state: &mut State) {
        let (scheduler, resource) = (&mut state.scheduler, Resource::Adapter(Arc::clone(adapter)));
        // It may have been asked for twice.
        if !scheduler.awaits(&resource) {
            return;
        }
        let in_use = scheduler.adapters_in_use();
        let room = scheduler.adapter_room(adapter, &in_use);
        let ready = match ask_for_adapter(&self.context, adapter, &in_use, room) {
            AdapterState::Ready => Ok(()),
            AdapterState::Failed(failure) => Err(failure),
            AdapterState::Waits => return,
        };
        let commits = scheduler.resolve(&resource, ready);
        if !commits.is_empty() {
            state.unreported.push(StepReport { commits, ..StepReport::default() });
        }
    }

    /// Reports a loss to the ledger. The lost content is unknown, so the ledger begins a new epoch.
    fn lost(&self, epoch: Epoch, what: &'static str, state: &mut State) {
        state.is_ready = false;
        self.context.directory.ledger.cast(LedgerMessage::Lost { epoch, what: what.into() });
    }

    /// Lets ledger and worker check whether they got all messages.
    fn compare_notes(&self, state: &State) {
        if state.orders.epoch() == Epoch::default() {
            return;
        }
        let directory = &self.context.directory;
        directory.ledger.cast(LedgerMessage::Reported(state.reports.position()));
        if let Some(step) = state.scheduler.step_in_flight() {
            directory.core.worker.cast(WorkerMessage::Probe { sent: state.steps.position(), step });
        }
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
        let config = &self.context.config;
        Ok(State {
            scheduler: RecordedScheduler::new(config.scheduler.clone(), config.recorder.clone()),
            is_ready: false,
            orders: Inbox::default(),
            reports: Outbox::default(),
            steps: Outbox::default(),
            resets: Vec::new(),
            unreported: Vec::new(),
        })
    }

    async fn post_start(
        &self,
        myself: ActorRef<SchedulerMessage>,
        _state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        myself.send_interval(self.context.config.tick, || SchedulerMessage::Tick);
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<SchedulerMessage>,
        message: SchedulerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SchedulerMessage::Order(stamp, order) => {
                self.on_order(stamp, order, state);
                if planted(Bug::LostWakeup) {
                    return Ok(());
                }
            }
            SchedulerMessage::Given(position) => {
                if state.orders.check(position) == Arrival::Gap {
                    self.lost(position.epoch, "an order to the scheduler", state);
                }
            }
            SchedulerMessage::Recover { epoch, live, restriction, .. } => {
                self.recover(epoch, live, restriction, state);
            }
            SchedulerMessage::StepDone(output) => self.on_step_done(output, state),
            SchedulerMessage::StepMissing { epoch, step } => {
                // All earlier messages of the worker have arrived, unless one was lost.
                let is_awaited = state.scheduler.step_in_flight() == Some(step);
                if epoch == state.scheduler.epoch() && is_awaited {
                    self.lost(epoch, "a step or its results", state);
                }
            }
            SchedulerMessage::GrammarsCompiled(compiled) => self.on_grammars(compiled, state),
            SchedulerMessage::Encoded(answer) => {
                let commits = state.scheduler.encoded(answer);
                if !commits.is_empty() {
                    state.unreported.push(StepReport { commits, ..StepReport::default() });
                }
            }
            SchedulerMessage::AdapterLoaded => {
                self.ask_for(state.scheduler.awaited(), state);
            }
            SchedulerMessage::PauseChanged => {
                state.scheduler.set_pause(self.context.ground.hold.in_force());
            }
            SchedulerMessage::ResetPrefixCache { reset_running_requests, reply } => {
                state.scheduler.reset_prefix_cache(reset_running_requests);
                state.resets.push(reply);
            }
            SchedulerMessage::Stats(reply) => {
                let _ = reply.send(state.scheduler.stats());
            }
            SchedulerMessage::View { most, reply } => {
                // The caller may have given up while a step was planned.
                if !reply.is_closed() {
                    let _ = reply.send(state.scheduler.view(most, most));
                }
            }
            SchedulerMessage::Tick => {
                // The message about a change may have been lost.
                state.scheduler.set_pause(self.context.ground.hold.in_force());
                self.compare_notes(state);
                if state.scheduler.take_truncation() {
                    self.context.observers.recording_truncated();
                }
                self.context.vault.adapter_loads.sweep(self.context.now());
                if !planted(Bug::AskForGrammarOnce) {
                    self.ask_for(state.scheduler.awaited(), state);
                }
                if let Some(needs) = state.scheduler.unanswered_encoder_needs() {
                    self.need_encoded(needs);
                }
                // The message about a loss may have been lost, too. The late message itself may
                // have arrived since, but the scheduler has stopped waiting for it.
                let epoch = state.orders.epoch();
                if !state.is_ready && epoch != Epoch::default() {
                    self.lost(epoch, "word of a loss", state);
                }
            }
            SchedulerMessage::Ping => {}
        }
        let wanted = state.scheduler.take_wanted();
        self.ask_for(wanted, state);
        if state.scheduler.step_in_flight().is_some() {
            // The device has its next step already, and a failure of that step must not overtake
            // the reports.
            self.report_all(state);
        }
        let advanced = self.advance(state).await;
        if let Some(needs) = state.scheduler.take_encoder_needs() {
            self.need_encoded(needs);
        }
        if !state.unreported.is_empty() {
            // The worker runs first: on few cores, the device would otherwise wait for the ledger.
            yield_now().await;
        }
        self.report_all(state);
        Ok(advanced?)
    }
}
