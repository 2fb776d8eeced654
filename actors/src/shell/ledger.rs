//! The ledger's shell: passes messages to the ledger, passes its decisions to the core and the
//! egress shards, and looks for lost messages.

mod conversation;
mod observers;
mod placement;
pub mod store;

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use self::{
    conversation::Conversations,
    placement::{Moved, Placed},
};
use crate::{
    error::RequestError,
    fault::{Bug, planted},
    logic::{
        admission::Tenant,
        ledger::BatchId,
        load_balancer::LoadBalancer,
        recovery::{
            message_numbers::{Arrival, Inbox, Stamp},
            sanity::ModelState,
        },
        request::{
            EngineRequest, FinishReason,
            failure::Failure,
            ids::{EngineIndex, Epoch, Micros, RequestId},
            outputs::StepReport,
        },
    },
    message::{DetokenizerMessage, LedgerMessage, SchedulerMessage, SchedulerOrder, StepFailure},
    ports::ExecuteError,
    system::context::Context,
};

/// The ledger actor. The ledger itself lives in the context's store.
#[derive(Debug)]
pub struct LedgerActor {
    context: Arc<Context>,
}

/// The state of one ledger actor, all of which is derived.
#[derive(Debug)]
pub struct State {
    conversations: Conversations,
    /// Chooses among several engines.
    balancer: LoadBalancer,
    /// The state of the model that the canary knows.
    model: Option<ModelState>,
}

impl LedgerActor {
    /// Returns a ledger actor over the context's store.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Begins a new epoch of an engine: its core starts from the committed tokens. KV cache manager
    /// and worker learn of it from the scheduler's first plan and step.
    fn begin_epoch(
        &self,
        engine: EngineIndex,
        why: impl Into<Cow<'static, str>>,
        state: &mut State,
    ) {
        let why = why.into();
        let Some(core) = self.context.directory.core_of(engine) else { return };
        let Some(conversation) = state.conversations.of(engine) else { return };
        // Before the epoch begins: an actor that starts from now on needs a later epoch.
        conversation.core_incarnations = core.incarnations();
        let mut ledger = self.context.ledger().lock();
        let (epoch, live) = ledger.begin_epoch(engine, why.clone());
        let newcomers = ledger.state().newcomers(engine);
        let restriction = ledger.state().restriction(engine);
        drop(ledger);
        conversation.orders.begin(epoch);
        conversation.reports.begin(epoch);
        tracing::debug!(%engine, epoch = epoch.0, live = live.len(), %why, "a new epoch begins");
        conversation.restriction = Some(restriction.clone());
        let recover = SchedulerMessage::Recover { epoch, live, newcomers, restriction };
        core.scheduler.cast(recover);
    }

    /// Begins a new epoch of each engine whose core has changed, or that goes on with requests of
    /// another one. Returns these engines.
    fn look_at_cores(&self, state: &mut State) -> BTreeSet<EngineIndex> {
        let mut begun = BTreeSet::new();
        let moved = match self.context.part.front().filter(|engines| engines.are_several()) {
            Some(engines) => {
                placement::move_requests(engines, &mut state.balancer, self.context.ledger())
            }
            None => Moved::default(),
        };
        for (engine, requests) in moved.from {
            self.order_to(engine, SchedulerOrder::Abort(requests), state);
        }
        for engine in state.conversations.engines() {
            let incarnations = self.context.directory.core_of(engine).map(|c| c.incarnations());
            let known = state.conversations.of(engine).map(|known| known.core_incarnations);
            if let Some(count) = moved.to.get(&engine) {
                tracing::info!(%engine, count, "requests of another engine go on in this one");
            }
            let why = match known == incarnations {
                false => "the core has changed",
                true if moved.to.contains_key(&engine) && !planted(Bug::MoveSilently) => {
                    "requests of another engine go on here"
                }
                true => continue,
            };
            self.begin_epoch(engine, why, state);
            begun.insert(engine);
        }
        begun
    }

    fn accept(
        &self,
        requests: Vec<Arc<EngineRequest>>,
        tenant: Option<Tenant>,
        was_accepted: bool,
        reply: RpcReplyPort<Result<(), RequestError>>,
        state: &mut State,
    ) {
        // A caller that gave up has refused its client already.
        if reply.is_closed() {
            return;
        }
        let (now, mut ledger) = (self.context.now(), self.context.ledger().lock());
        let accepted = match was_accepted {
            true => Ok(ledger.restore(requests, tenant, now)),
            false => ledger.accept(requests, tenant, now),
        };
        let several = self.context.part.front().filter(|engines| engines.are_several());
        let placed = accepted.map(|new| match several {
            Some(engines) => placement::place(new, engines, &mut state.balancer, &mut ledger),
            None => Placed::from([(EngineIndex::default(), new)]),
        });
        drop(ledger);
        let _ = reply.send(placed.map(|placed| {
            for (engine, new) in placed {
                self.order_to(engine, SchedulerOrder::Add(new), state);
            }
        }));
    }

    /// Lets the schedulers stop requests. One that the ledger has forgotten may be in any engine.
    fn abort(&self, requests: Vec<RequestId>, state: &mut State) {
        if !state.conversations.are_several() {
            return self.order_to(EngineIndex::default(), SchedulerOrder::Abort(requests), state);
        }
        let engines = self.context.ledger().engines_of(&requests);
        for engine in state.conversations.engines() {
            let is_there =
                |request: &RequestId| engines.get(request).is_none_or(|has| *has == engine);
            let requests = requests.iter().copied().filter(is_there).collect();
            self.order_to(engine, SchedulerOrder::Abort(requests), state);
        }
    }

    fn order_to(&self, engine: EngineIndex, order: SchedulerOrder, state: &mut State) {
        let is_empty = match &order {
            SchedulerOrder::Add(requests) => requests.is_empty(),
            SchedulerOrder::Abort(requests) => requests.is_empty(),
            SchedulerOrder::Restrict(_) => false,
        };
        let core = self.context.directory.core_of(engine).filter(|_| !is_empty);
        if let (Some(core), Some(conversation)) = (core, state.conversations.of(engine)) {
            let stamp = conversation.orders.stamp();
            core.scheduler.cast(SchedulerMessage::Order(stamp, order));
        }
    }

    fn on_report(&self, stamp: Stamp, report: StepReport, state: &mut State) {
        let (engine, arrival) = self.arrival(stamp, state, Inbox::receive);
        match arrival {
            Arrival::InOrder => self.report(engine, stamp.epoch, report, state),
            Arrival::Stale => self.context.observers.stale(1),
            Arrival::Gap => self.begin_epoch(engine, "a report of the scheduler got lost", state),
        }
    }

    fn on_position(&self, position: Stamp, state: &mut State) {
        let (engine, arrival) = self.arrival(position, state, |inbox, stamp| inbox.check(stamp));
        if arrival == Arrival::Gap {
            self.begin_epoch(engine, "a report of the scheduler got lost", state);
        }
    }

    /// Returns the engine that has sent a stamp, and the judgement of it.
    fn arrival(
        &self,
        stamp: Stamp,
        state: &mut State,
        judge: impl FnOnce(&mut Inbox, Stamp) -> Arrival,
    ) -> (EngineIndex, Arrival) {
        let engine = state.conversations.engine_in(stamp.epoch);
        let conversation = engine.and_then(|engine| state.conversations.of(engine));
        // Without one, its epoch has passed.
        let arrival = conversation.map(|talk| judge(&mut talk.reports, stamp));
        (engine.unwrap_or_default(), arrival.unwrap_or(Arrival::Stale))
    }

    fn report(&self, engine: EngineIndex, epoch: Epoch, report: StepReport, state: &mut State) {
        let now = self.context.now();
        let reported = self.context.ledger().lock().report(epoch, report, now);
        self.context.observers.stale(reported.num_stale as u64);
        if reported.has_gap {
            self.begin_epoch(engine, "tokens before a commit are missing", state);
        } else {
            self.order_to(engine, SchedulerOrder::Abort(reported.unwanted), state);
        }
    }

    fn finish(&self, requests: &[RequestId], reason: &FinishReason, state: &mut State) {
        let now = self.context.now();
        let running = self.context.ledger().lock().finish(requests, reason, now);
        self.abort(running, state);
    }

    fn end_at(&self, request: RequestId, position: usize, reason: FinishReason, state: &mut State) {
        let now = self.context.now();
        if self.context.ledger().lock().end_at(request, position, reason, now) {
            self.abort(vec![request], state);
        }
    }

    fn on_failed_step(
        &self,
        epoch: Epoch,
        requests: &[(RequestId, usize)],
        failure: &StepFailure,
        state: &mut State,
    ) {
        let (now, engine) = (self.context.now(), state.conversations.engine_in(epoch));
        let is_memory = matches!(failure, StepFailure::Execute(ExecuteError::OutOfMemory(_)));
        let convicted = self.context.ledger().lock().step_failed(epoch, requests, is_memory, now);
        let (Some(convicted), Some(engine)) = (convicted, engine) else {
            self.context.observers.stale(1);
            return;
        };
        for request in convicted {
            tracing::error!(request = request.0, ?failure, "a request fails every step it is in");
        }
        self.begin_epoch(engine, "a step failed", state);
    }

    /// Sends each scheduler its limits when they have changed.
    fn restrict(&self, state: &mut State) {
        for engine in state.conversations.engines() {
            let restriction = self.context.ledger().lock().state().restriction(engine);
            let Some(conversation) = state.conversations.of(engine) else { return };
            if conversation.restriction.as_ref() != Some(&restriction) {
                conversation.restriction = Some(restriction.clone());
                self.order_to(engine, SchedulerOrder::Restrict(restriction), state);
            }
        }
    }

    /// Wakes the canary when the model has become suspect.
    fn wake_canary(&self, state: &mut State) {
        let model = self.context.ledger().model_state();
        if state.model.replace(model) != Some(model) && model != ModelState::Sound {
            self.context.clients.gate.call_canary();
        }
    }

    /// Records a probe with non-finite logits. If that convicts the model, the breaker opens.
    fn on_failed_probe(&self, reply: RpcReplyPort<()>) {
        if self.context.ledger().lock().probe_failed() {
            tracing::error!("the model's logits are not finite, whatever is asked");
            self.context.trip_breaker("the model's logits are not finite".to_owned());
        }
        let _ = reply.send(());
    }

    fn on_delivery(&self, batch: BatchId, ended: &[RequestId], state: &mut State) {
        let now = self.context.now();
        let mut ledger = self.context.ledger().lock();
        let running = ledger.delivered(batch, ended, now);
        let is_empty = ledger.state().is_empty();
        drop(ledger);
        let Some(running) = running else {
            self.context.observers.stale(1);
            return;
        };
        self.abort(running, state);
        if is_empty {
            // A failed step is not repeated when no request is left.
            self.context.rest();
        }
    }

    /// Sends each idle shard its next batch.
    fn feed_shards(&self) {
        let now = self.context.now();
        let mut ledger = self.context.ledger().lock();
        for (shard, detokenizer) in self.context.directory.detokenizers.iter().enumerate() {
            if let Some(batch) = ledger.take_batch(shard, now) {
                detokenizer.cast(DetokenizerMessage::Batch(batch));
            }
        }
    }

    /// Looks for lost messages.
    fn look_around(&self, state: &mut State) {
        let now = self.context.now();
        self.repair_shards(now);
        let departed = self.departed(now);
        self.finish(&departed, &FinishReason::Abort, state);
        let begun = self.look_at_cores(state);
        for engine in state.conversations.engines().filter(|engine| !begun.contains(engine)) {
            let core = self.context.directory.core_of(engine);
            if let (Some(core), Some(talk)) = (core, state.conversations.of(engine)) {
                core.scheduler.cast(SchedulerMessage::Given(talk.orders.position()));
            }
        }
    }

    /// Sends all tokens again to a shard that did not confirm its batch in time.
    fn repair_shards(&self, now: Micros) {
        let timeout = self.context.config.egress_timeout.as_micros() as u64;
        let Some(before) = now.checked_sub(timeout) else { return };
        for shard in self.context.ledger().lock().repair(before) {
            tracing::warn!(shard, "an egress batch got lost and is sent again");
        }
    }

    /// Returns running requests whose client left without a message, or has read nothing for too
    /// long.
    fn departed(&self, now: Micros) -> Vec<RequestId> {
        let patience = self.context.config.reader_timeout.as_micros() as u64;
        for request in self.context.clients.sinks.cut_stalled(now, patience) {
            tracing::warn!(request = request.0, "a client that does not read is cut off");
        }
        let ledger = self.context.ledger().lock();
        let live = ledger.state().live().map(|entry| entry.request().id);
        live.filter(|&request| !self.context.clients.sinks.is_open(request)).collect()
    }
}

impl Actor for LedgerActor {
    type Msg = LedgerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<LedgerMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        let num_engines = self.context.directory.cores().count();
        Ok(State {
            conversations: Conversations::new(num_engines),
            balancer: LoadBalancer::new(num_engines),
            model: None,
        })
    }

    async fn post_start(
        &self,
        myself: ActorRef<LedgerMessage>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        myself.send_interval(self.context.config.tick, || LedgerMessage::Tick);
        // Messages to a dead predecessor were lost, so the shards and the core start over.
        {
            let mut ledger = self.context.ledger().lock();
            for shard in 0..ledger.num_shards() {
                ledger.attach(shard);
            }
        }
        for engine in state.conversations.engines() {
            self.begin_epoch(engine, "the ledger is new", state);
        }
        self.feed_shards();
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<LedgerMessage>,
        message: LedgerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            LedgerMessage::Accept { requests, tenant, was_accepted, reply } => {
                self.accept(requests, tenant, was_accepted, reply, state);
            }
            LedgerMessage::Abort(requests) => self.finish(&requests, &FinishReason::Abort, state),
            LedgerMessage::Report(stamp, report) => self.on_report(stamp, report, state),
            LedgerMessage::Reported(position) => self.on_position(position, state),
            LedgerMessage::Lost { epoch, what } => {
                let engine = state.conversations.engine_in(epoch);
                let current = engine.and_then(|engine| state.conversations.of(engine));
                let is_current = current.is_some_and(|now| now.orders.position().epoch == epoch);
                if let Some(engine) = engine.filter(|_| is_current) {
                    tracing::warn!(%what, "a message got lost");
                    self.begin_epoch(engine, what, state);
                }
            }
            LedgerMessage::StepFailed { epoch, requests, failure } => {
                self.on_failed_step(epoch, &requests, &failure, state);
            }
            LedgerMessage::TooLarge(requests) => {
                tracing::error!(?requests, "requests do not fit a message to the engine process");
                self.finish(&requests, &FinishReason::Error(Failure::MessageTooLarge), state);
            }
            LedgerMessage::EndAt { request, position, reason } => {
                self.end_at(request, position, reason, state);
            }
            LedgerMessage::AttachEgress { shard } => {
                self.context.ledger().lock().attach(shard);
            }
            LedgerMessage::Delivered { batch, ended } => self.on_delivery(batch, &ended, state),
            LedgerMessage::ProbeFailed(reply) => self.on_failed_probe(reply),
            LedgerMessage::CoreStarted
            | LedgerMessage::CoreEnded
            | LedgerMessage::EnginesChanged => {
                self.look_at_cores(state);
            }
            LedgerMessage::Tick => self.look_around(state),
            LedgerMessage::Ping => {}
        }
        self.restrict(state);
        self.wake_canary(state);
        self.feed_shards();
        Ok(())
    }
}
