//! The ledger's shell: keeps the store true, tells the core and the egress shards, and looks for
//! what got lost.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use super::context::Context;
use crate::{
    error::RequestError,
    fault::Observed,
    logic::{
        admission::Tenant,
        failure::Failure,
        ids::{Epoch, Micros, RequestId},
        ledger::{BatchId, CommitVerdict, Restriction},
        outputs::Commit,
        request::{EngineRequest, FinishReason},
        sanity::ModelState,
        sequence::{Arrival, Inbox, Outbox, Stamp},
    },
    message::{
        DetokenizerMessage, LedgerMessage, SchedulerMessage, SchedulerOrder, StepFailure,
        StepReport,
    },
    ports::ExecuteError,
};

/// The ledger actor. What it must not lose lives in the context's store.
#[derive(Debug)]
pub struct LedgerActor {
    context: Arc<Context>,
}

/// Its talk with the scheduler. A new ledger begins a new epoch, and with it this anew.
#[derive(Debug, Default)]
pub struct State {
    orders: Outbox,
    reports: Inbox,
    /// Of the core when the epoch began.
    core_incarnations: u64,
    /// What the scheduler was last held to.
    restriction: Option<Restriction>,
    /// What was last said of the model.
    model: Option<ModelState>,
}

impl LedgerActor {
    /// A ledger over the context's store.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// A new epoch: the core starts from what is committed. KV cache manager and worker learn of it
    /// from the scheduler's first plan and step.
    fn begin_epoch(&self, why: &str, state: &mut State) {
        // Before the epoch begins: who takes a seat from now on needs a later one.
        state.core_incarnations = self.context.directory.core_incarnations();
        let mut ledger = self.context.ledger.lock();
        let (epoch, live) = ledger.begin_epoch();
        let restriction = ledger.restriction();
        drop(ledger);
        state.orders.begin(epoch);
        state.reports.begin(epoch);
        let replayed: usize = live.iter().map(|request| request.output_token_ids.len()).sum();
        self.context.metrics.replayed_tokens.increment(replayed as u64);
        tracing::debug!(epoch = epoch.0, live = live.len(), why, "a new epoch begins");
        self.context.chaos.observe(&Observed::Epoch { epoch, num_live: live.len(), why });
        state.restriction = Some(restriction.clone());
        let recover = SchedulerMessage::Recover { epoch, live, restriction };
        self.context.directory.scheduler.cast(recover);
    }

    fn accept(
        &self,
        requests: Vec<Arc<EngineRequest>>,
        tenant: Option<Tenant>,
        reply: RpcReplyPort<Result<(), RequestError>>,
        state: &mut State,
    ) {
        // A caller that gave up has told its client so.
        if reply.is_closed() {
            return;
        }
        let accepted = self.context.ledger.lock().accept(requests, tenant, self.context.now());
        for request in accepted.iter().flatten() {
            self.context.chaos.observe(&Observed::Accepted { request: request.id, tenant });
        }
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
            Arrival::InOrder => {
                let mut ledger = self.context.ledger.lock();
                for first in &report.first_scheduled {
                    ledger.note_scheduled(first);
                }
                if report.is_computed {
                    ledger.step_succeeded();
                }
                drop(ledger);
                self.commit(stamp.epoch, &report.commits, state);
            }
            Arrival::Stale => self.context.metrics.stale_messages.increment(1),
            Arrival::Gap => self.begin_epoch("a report of the scheduler got lost", state),
        }
    }

    fn commit(&self, epoch: Epoch, commits: &[Commit], state: &mut State) {
        let now = self.context.now();
        let mut ledger = self.context.ledger.lock();
        let mut unwanted = Vec::new();
        let mut has_gap = false;
        for commit in commits {
            let verdict = ledger.commit(epoch, commit, now);
            self.context.chaos.observe(&Observed::Commit { epoch, commit, verdict: &verdict });
            match verdict {
                CommitVerdict::Accepted(timing) => {
                    self.context.metrics.committed(commit, &timing);
                    if let (Some(reason), Some(entry)) =
                        (&commit.finish, ledger.get(commit.request))
                    {
                        self.context.metrics.finished(entry, reason, now);
                    }
                }
                CommitVerdict::StaleEpoch | CommitVerdict::Repeated => {
                    self.context.metrics.stale_messages.increment(1);
                }
                CommitVerdict::Gap => has_gap = true,
                // The client left, or a stop string was complete, while the step ran. If the
                // scheduler was told so, it hears it again without effect.
                CommitVerdict::Ended | CommitVerdict::Unknown => {
                    if commit.finish.is_none() {
                        unwanted.push(commit.request);
                    }
                }
            }
        }
        drop(ledger);
        if has_gap {
            self.begin_epoch("tokens before a commit are missing", state);
        } else {
            self.order(SchedulerOrder::Abort(unwanted), state);
        }
    }

    fn finish(&self, requests: &[RequestId], reason: &FinishReason, state: &mut State) {
        let now = self.context.now();
        let mut ledger = self.context.ledger.lock();
        let mut running = Vec::new();
        for &request in requests {
            if ledger.finish(request, reason.clone(), now) {
                running.push(request);
                if let Some(entry) = ledger.get(request) {
                    let position = entry.output().len();
                    self.context.chaos.observe(&Observed::Ended { request, position, reason });
                    self.context.metrics.finished(entry, reason, now);
                }
            }
        }
        drop(ledger);
        self.order(SchedulerOrder::Abort(running), state);
    }

    fn end_at(&self, request: RequestId, position: usize, reason: FinishReason, state: &mut State) {
        let now = self.context.now();
        let mut ledger = self.context.ledger.lock();
        let was_running = ledger.end_at(request, position, reason.clone(), now);
        if was_running && let Some(entry) = ledger.get(request) {
            self.context.chaos.observe(&Observed::Ended { request, position, reason: &reason });
            self.context.metrics.finished(entry, &reason, now);
        }
        drop(ledger);
        if was_running {
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
        let mut ledger = self.context.ledger.lock();
        if epoch != ledger.epoch() {
            self.context.metrics.stale_messages.increment(1);
            return;
        }
        let is_memory = matches!(failure, StepFailure::Execute(ExecuteError::OutOfMemory(_)));
        if !(is_memory && ledger.out_of_memory()) {
            for request in ledger.step_failed(requests, now) {
                tracing::error!(
                    request = request.0,
                    ?failure,
                    "a request fails every step it is in"
                );
                if let Some(entry) = ledger.get(request) {
                    let reason = FinishReason::Error(Failure::Quarantined);
                    let position = entry.output().len();
                    let ended = Observed::Ended { request, position, reason: &reason };
                    self.context.chaos.observe(&ended);
                    self.context.metrics.finished(entry, &reason, now);
                }
            }
        }
        drop(ledger);
        self.begin_epoch("a step failed", state);
    }

    /// Tells the scheduler what it is held to, when that has changed.
    fn restrict(&self, state: &mut State) {
        let restriction = self.context.ledger.lock().restriction();
        if state.restriction.as_ref() != Some(&restriction) {
            state.restriction = Some(restriction.clone());
            self.order(SchedulerOrder::Restrict(restriction), state);
        }
    }

    /// Says what is known of the model, when that has changed.
    fn judge_model(&self, state: &mut State) {
        let model = self.context.ledger.lock().model_state();
        if state.model.replace(model) != Some(model) {
            self.context.metrics.judged_model(model);
            if model != ModelState::Sound {
                self.context.canary_wanted.notify_one();
            }
        }
    }

    fn on_delivery(&self, batch: BatchId, ended: &[RequestId], state: &mut State) {
        let ledger = self.context.ledger.lock();
        if !ledger.awaits(batch) {
            self.context.metrics.stale_messages.increment(1);
            return;
        }
        let is_live = |id: &RequestId| ledger.get(*id).is_some_and(|e| e.end().is_none());
        let unheard: Vec<_> = ended.iter().copied().filter(is_live).collect();
        drop(ledger);
        // Word of a stop string may be lost or late; that it was delivered says the same.
        self.finish(&unheard, &FinishReason::Stop(None), state);
        let mut ledger = self.context.ledger.lock();
        ledger.delivered(batch, ended);
        for &request in ended.iter().filter(|request| ledger.get(**request).is_none()) {
            self.context.chaos.observe(&Observed::Forgotten { request });
        }
        if ledger.is_empty() {
            // A step that failed is not done again when nobody is left to want it.
            self.context.progress.rest();
        }
    }

    /// Hands every idle shard its news.
    fn feed_shards(&self) {
        let now = self.context.now();
        let mut ledger = self.context.ledger.lock();
        for (shard, detokenizer) in self.context.directory.detokenizers.iter().enumerate() {
            if let Some(batch) = ledger.take_batch(shard, now) {
                detokenizer.cast(DetokenizerMessage::Batch(batch));
            }
        }
    }

    /// Looks for what got lost.
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

    /// A batch that nobody confirmed is lost: the shard is told everything again.
    fn repair_shards(&self, now: Micros) {
        let timeout = self.context.config.egress_timeout.as_micros() as u64;
        let Some(before) = now.checked_sub(timeout) else { return };
        let mut ledger = self.context.ledger.lock();
        let overdue: Vec<_> = ledger.overdue(before).collect();
        for shard in overdue {
            tracing::warn!(shard, "an egress batch got lost and is sent again");
            ledger.attach(shard);
        }
    }

    /// Running requests whose client left without word, or has taken nothing for too long.
    fn departed(&self, now: Micros) -> Vec<RequestId> {
        let patience = self.context.config.reader_timeout.as_micros() as u64;
        for request in self.context.sinks.cut_stalled(now, patience) {
            tracing::warn!(request = request.0, "a client that does not read is cut off");
        }
        let ledger = self.context.ledger.lock();
        let live =
            ledger.requests().filter(|id| ledger.get(*id).is_some_and(|e| e.end().is_none()));
        live.filter(|&request| !self.context.sinks.is_open(request)).collect()
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
        // Messages to a dead predecessor are lost: everybody is brought up to date.
        {
            let mut ledger = self.context.ledger.lock();
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
            LedgerMessage::Accept { requests, tenant, reply } => {
                self.accept(requests, tenant, reply, state);
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
                    tracing::warn!(what, "a message got lost");
                    self.begin_epoch(what, state);
                }
            }
            LedgerMessage::StepFailed { epoch, requests, failure } => {
                self.on_failed_step(epoch, &requests, &failure, state);
            }
            LedgerMessage::EndAt { request, position, reason } => {
                self.end_at(request, position, reason, state);
            }
            LedgerMessage::AttachEgress { shard } => {
                self.context.ledger.lock().attach(shard);
            }
            LedgerMessage::Delivered { batch, ended } => self.on_delivery(batch, &ended, state),
            LedgerMessage::CoreStarted => {
                if state.core_incarnations != self.context.directory.core_incarnations() {
                    self.begin_epoch("the core has changed", state);
                }
            }
            LedgerMessage::Tick => self.look_around(state),
            LedgerMessage::Ping => {}
        }
        self.restrict(state);
        self.judge_model(state);
        self.feed_shards();
        Ok(())
    }
}
