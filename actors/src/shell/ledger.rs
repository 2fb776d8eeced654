//! The ledger's shell: keeps the store true, tells the core and the egress shards.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::context::Context;
use crate::{
    logic::{
        ids::{Epoch, RequestId},
        ledger::CommitVerdict,
        outputs::Commit,
        request::FinishReason,
        scheduler::FirstScheduled,
    },
    message::{
        DetokenizerMessage, KvCacheManagerMessage, LedgerMessage, SchedulerMessage, WorkerMessage,
    },
};

/// How often lost batches are looked for.
const TICK: Duration = Duration::from_secs(1);

/// The ledger actor. Its state lives in the context's store, so it has none of its own.
#[derive(Debug)]
pub struct LedgerActor {
    context: Arc<Context>,
}

impl LedgerActor {
    /// A ledger over the context's store.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// A new epoch, told to those whose state depends on it before the scheduler plans in it.
    fn begin_epoch(&self) {
        let (epoch, live) = self.context.ledger.lock().begin_epoch();
        let replayed: usize = live.iter().map(|request| request.output_token_ids.len()).sum();
        self.context.metrics.replayed_tokens.increment(replayed as u64);
        tracing::debug!(epoch = epoch.0, live = live.len(), "a new epoch begins");
        let directory = &self.context.directory;
        directory.kv_cache_manager.cast(KvCacheManagerMessage::Recover(epoch));
        directory.worker.cast(WorkerMessage::Recover(epoch));
        directory.scheduler.cast(SchedulerMessage::Recover { epoch, live });
    }

    fn commit(&self, epoch: Epoch, commits: &[Commit]) {
        let now = self.context.now();
        let mut ledger = self.context.ledger.lock();
        for commit in commits {
            match ledger.commit(epoch, commit, now) {
                CommitVerdict::Accepted(timing) => {
                    self.context.metrics.committed(commit, &timing);
                    if let (Some(reason), Some(entry)) =
                        (&commit.finish, ledger.get(commit.request))
                    {
                        self.context.metrics.finished(entry, reason, now);
                    }
                }
                CommitVerdict::StaleEpoch | CommitVerdict::WrongPosition => {
                    self.context.metrics.stale_messages.increment(1);
                }
                // The client left, or a stop string was complete, while the step ran.
                CommitVerdict::Ended | CommitVerdict::Unknown => {}
            }
        }
    }

    fn note_scheduled(&self, requests: &[FirstScheduled]) {
        let mut ledger = self.context.ledger.lock();
        for first in requests {
            ledger.note_scheduled(first);
        }
    }

    fn finish(&self, requests: &[RequestId], reason: &FinishReason) {
        let now = self.context.now();
        let mut ledger = self.context.ledger.lock();
        let mut running = Vec::new();
        for &request in requests {
            if ledger.finish(request, reason.clone()) {
                running.push(request);
                if let Some(entry) = ledger.get(request) {
                    self.context.metrics.finished(entry, reason, now);
                }
            }
        }
        drop(ledger);
        self.stop_scheduling(running);
    }

    fn end_at(&self, request: RequestId, position: usize, reason: FinishReason) {
        let now = self.context.now();
        let mut ledger = self.context.ledger.lock();
        let was_running = ledger.end_at(request, position, reason.clone());
        if was_running && let Some(entry) = ledger.get(request) {
            self.context.metrics.finished(entry, &reason, now);
        }
        drop(ledger);
        if was_running {
            self.stop_scheduling(vec![request]);
        }
    }

    fn stop_scheduling(&self, requests: Vec<RequestId>) {
        if !requests.is_empty() {
            self.context.directory.scheduler.cast(SchedulerMessage::Abort(requests));
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

    /// A batch that nobody confirmed is lost: the shard is told everything again.
    fn repair_shards(&self) {
        let timeout = self.context.config.egress_timeout.as_micros() as u64;
        let Some(before) = self.context.now().checked_sub(timeout) else { return };
        let mut ledger = self.context.ledger.lock();
        let overdue: Vec<_> = ledger.overdue(before).collect();
        for shard in overdue {
            tracing::warn!(shard, "an egress batch got lost and is sent again");
            ledger.attach(shard);
        }
    }
}

impl Actor for LedgerActor {
    type Msg = LedgerMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<LedgerMessage>,
        (): (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn post_start(
        &self,
        myself: ActorRef<LedgerMessage>,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        myself.send_interval(TICK, || LedgerMessage::Tick);
        // Messages to a dead predecessor are lost: everybody is brought up to date.
        {
            let mut ledger = self.context.ledger.lock();
            for shard in 0..ledger.num_shards() {
                ledger.attach(shard);
            }
        }
        self.begin_epoch();
        self.feed_shards();
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<LedgerMessage>,
        message: LedgerMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            LedgerMessage::Accept(requests, reply) => {
                let accepted = self.context.ledger.lock().accept(requests);
                // A caller that gave up has dropped its streams, which aborts the requests.
                let _ = reply.send(accepted.map(|new| {
                    self.context.directory.scheduler.cast(SchedulerMessage::Add(new));
                }));
            }
            LedgerMessage::Commit { epoch, commits } => self.commit(epoch, &commits),
            LedgerMessage::FirstScheduled(requests) => self.note_scheduled(&requests),
            LedgerMessage::EndAt { request, position, reason } => {
                self.end_at(request, position, reason);
            }
            LedgerMessage::Abort(requests) => self.finish(&requests, &FinishReason::Abort),
            LedgerMessage::AttachEgress { shard } => {
                self.context.ledger.lock().attach(shard);
            }
            LedgerMessage::Delivered { shard, generation, ended } => {
                if !self.context.ledger.lock().delivered(shard, generation, &ended) {
                    self.context.metrics.stale_messages.increment(1);
                }
            }
            LedgerMessage::CoreRestarted => self.begin_epoch(),
            LedgerMessage::Tick => self.repair_shards(),
            LedgerMessage::Count(reply) => {
                let _ = reply.send(self.context.ledger.lock().len());
            }
        }
        self.feed_shards();
        Ok(())
    }
}
