//! The ledger's shell: passes messages to the ledger, passes its decisions to the core and the
//! egress shards, and looks for lost messages.

mod observers;
pub mod store;

use std::{borrow::Cow, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::{
    error::RequestError,
    logic::{
        admission::Tenant,
        ledger::{BatchId, Restriction},
        recovery::{
            message_numbers::{Arrival, Inbox, Outbox, Stamp},
            sanity::ModelState,
        },
        request::{
            EngineRequest, FinishReason,
            failure::Failure,
            ids::{Epoch, Micros, RequestId},
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

/// The conversation with the scheduler. A new ledger actor begins a new epoch, and so a new
/// conversation.
#[derive(Debug, Default)]
pub struct State {
    orders: Outbox,
    reports: Inbox,
    /// Incarnations of the core when the epoch began.
    core_incarnations: u64,
    /// The limits that the scheduler knows.
    restriction: Option<Restriction>,
    /// The state of the model that the canary knows.
    model: Option<ModelState>,
}

impl LedgerActor {
    /// Returns a ledger actor over the context's store.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Begins a new epoch: the core starts from the committed tokens. KV cache manager and worker
    /// learn of it from the scheduler's first plan and step.
    fn begin_epoch(&self, why: impl Into<Cow<'static, str>>, state: &mut State) {
        let why = why.into();
        // Before the epoch begins: an actor that starts from now on needs a later epoch.
        state.core_incarnations = self.context.directory.core_incarnations();
        let mut ledger = self.context.ledger().lock();
        let (epoch, live) = ledger.begin_epoch(why.clone());
        let restriction = ledger.state().restriction();
        drop(ledger);
        state.orders.begin(epoch);
        state.reports.begin(epoch);
        tracing::debug!(epoch = epoch.0, live = live.len(), %why, "a new epoch begins");
        state.restriction = Some(restriction.clone());
        let recover = SchedulerMessage::Recover { epoch, live, restriction };
        self.context.directory.scheduler.cast(recover);
    }

    fn accept(
        &self,
        requests: Vec<Arc<EngineRequest>>,
        tenant: Option<Tenant>,
        is_restored: bool,
        reply: RpcReplyPort<Result<(), RequestError>>,
        state: &mut State,
    ) {
        // A caller that gave up has refused its client already.
        if reply.is_closed() {
            return;
        }
        let (now, mut ledger) = (self.context.now(), self.context.ledger().lock());
        let accepted = match is_restored {
            true => Ok(ledger.restore(requests, tenant, now)),
            false => ledger.accept(requests, tenant, now),
        };
        drop(ledger);
        let _ = reply.send(accepted.map(|new| self.order(SchedulerOrder::Add(new), state)));
    }

    fn order(&self, order: SchedulerOrder, state: &mut State) {
        let is_empty = match &order {
            SchedulerOrder::Add(requests) => requests.is_empty(),
            SchedulerOrder::Abort(requests) => requests.is_empty(),
            SchedulerOrder::Restrict(_) => false,
        };
        if !is_empty {
            let stamp = state.orders.stamp();
            self.context.directory.scheduler.cast(SchedulerMessage::Order(stamp, order));
        }
    }

    fn on_report(&self, stamp: Stamp, report: StepReport, state: &mut State) {
        match state.reports.receive(stamp) {
            Arrival::InOrder => self.report(stamp.epoch, report, state),
            Arrival::Stale => self.context.observers.stale(1),
            Arrival::Gap => self.begin_epoch("a report of the scheduler got lost", state),
        }
    }

    fn report(&self, epoch: Epoch, report: StepReport, state: &mut State) {
        let now = self.context.now();
        let reported = self.context.ledger().lock().report(epoch, report, now);
        self.context.observers.stale(reported.num_stale as u64);
        if reported.has_gap {
            self.begin_epoch("tokens before a commit are missing", state);
        } else {
            self.order(SchedulerOrder::Abort(reported.unwanted), state);
        }
    }

    fn finish(&self, requests: &[RequestId], reason: &FinishReason, state: &mut State) {
        let now = self.context.now();
        let running = self.context.ledger().lock().finish(requests, reason, now);
        self.order(SchedulerOrder::Abort(running), state);
    }

    fn end_at(&self, request: RequestId, position: usize, reason: FinishReason, state: &mut State) {
        let now = self.context.now();
        if self.context.ledger().lock().end_at(request, position, reason, now) {
            self.order(SchedulerOrder::Abort(vec![request]), state);
        }
    }

    fn on_failed_step(
        &self,
        epoch: Epoch,
        requests: &[(RequestId, usize)],
        failure: &StepFailure,
        state: &mut State,
    ) {
        let now = self.context.now();
        let is_memory = matches!(failure, StepFailure::Execute(ExecuteError::OutOfMemory(_)));
        let convicted = self.context.ledger().lock().step_failed(epoch, requests, is_memory, now);
        let Some(convicted) = convicted else {
            self.context.observers.stale(1);
            return;
        };
        for request in convicted {
            tracing::error!(request = request.0, ?failure, "a request fails every step it is in");
        }
        self.begin_epoch("a step failed", state);
    }

    /// Sends the scheduler its limits when they have changed.
    fn restrict(&self, state: &mut State) {
        let restriction = self.context.ledger().lock().state().restriction();
        if state.restriction.as_ref() != Some(&restriction) {
            state.restriction = Some(restriction.clone());
            self.order(SchedulerOrder::Restrict(restriction), state);
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
        self.order(SchedulerOrder::Abort(running), state);
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
        if state.core_incarnations != self.context.directory.core_incarnations() {
            self.begin_epoch("the core has changed", state);
        } else {
            let given = SchedulerMessage::Given(state.orders.position());
            self.context.directory.scheduler.cast(given);
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
        Ok(State::default())
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
        self.begin_epoch("the ledger is new", state);
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
            LedgerMessage::Accept { requests, tenant, is_restored, reply } => {
                self.accept(requests, tenant, is_restored, reply, state);
            }
            LedgerMessage::Abort(requests) => self.finish(&requests, &FinishReason::Abort, state),
            LedgerMessage::Report(stamp, report) => self.on_report(stamp, report, state),
            LedgerMessage::Reported(position) => {
                if state.reports.check(position) == Arrival::Gap {
                    self.begin_epoch("a report of the scheduler got lost", state);
                }
            }
            LedgerMessage::Lost { epoch, what } => {
                if epoch == state.orders.position().epoch {
                    tracing::warn!(%what, "a message got lost");
                    self.begin_epoch(what, state);
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
            LedgerMessage::CoreStarted => {
                if state.core_incarnations != self.context.directory.core_incarnations() {
                    self.begin_epoch("the core has changed", state);
                }
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
