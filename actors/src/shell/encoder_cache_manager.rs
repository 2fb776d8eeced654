//! The encoder cache manager's shell: passes items to the encoder worker, drops evicted embeddings,
//! and answers the scheduler.

use std::sync::{Arc, atomic::Ordering};

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::{
    fault::Observed,
    logic::{
        encoder_cache::{EncoderCache, EncoderCacheView, EncoderNeeds},
        request::ids::Epoch,
    },
    message::{EncoderCacheManagerMessage, EncoderWorkerMessage, SchedulerMessage},
    ports::EncoderFactory,
    system::context::Context,
};

/// The encoder cache manager actor.
#[derive(Debug)]
pub struct EncoderCacheManagerActor {
    context: Arc<Context>,
}

/// The plan of the cache. A manager that dies leaves the embeddings in the store, where the next
/// one finds them.
#[derive(Debug)]
pub struct State {
    cache: EncoderCache,
    epoch: Epoch,
}

impl EncoderCacheManagerActor {
    /// Returns a manager of the executors' store.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    fn store(&self) -> Option<Arc<dyn EncoderFactory>> {
        self.context.vault.executors.encoder()
    }

    fn on_needs(&self, needs: &EncoderNeeds, state: &mut State) {
        if !state.cache.set_needs(needs) {
            self.context.observers.stale(1);
            return;
        }
        if needs.epoch > state.epoch {
            state.epoch = needs.epoch;
            self.drop_unknown(state);
        }
        self.advance(state);
    }

    /// Sends the current batch again, because the batch or its result may have been lost.
    fn repeat(&self, state: &State) {
        if let Some(batch) = state.cache.batch() {
            self.context
                .directory
                .core
                .encoder_worker
                .cast(EncoderWorkerMessage::Encode(batch.clone()));
        }
    }

    /// Drops embeddings that a worker stored for an earlier manager.
    fn drop_unknown(&self, state: &State) {
        let Some(store) = self.store() else { return };
        let stored = store.stored().into_iter().map(|(identifier, _)| identifier);
        let unknown: Vec<Arc<str>> = stored.filter(|item| !state.cache.knows(item)).collect();
        if !unknown.is_empty() {
            store.remove(&unknown);
        }
    }

    /// Drops evicted embeddings, passes the next items on, and answers the scheduler.
    fn advance(&self, state: &mut State) {
        let evicted = state.cache.take_evicted();
        if let Some(store) = self.store().filter(|_| !evicted.is_empty()) {
            store.remove(&evicted);
        }
        if let Some(batch) = state.cache.next_batch() {
            self.context.directory.core.encoder_worker.cast(EncoderWorkerMessage::Encode(batch));
        }
        self.context.observers.chaos.observe(&Observed::EncoderCache { cache: &state.cache });
        let answer = SchedulerMessage::Encoded(state.cache.answer());
        self.context.directory.core.scheduler.cast(answer);
    }
}

impl Actor for EncoderCacheManagerActor {
    type Msg = EncoderCacheManagerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<EncoderCacheManagerMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        let config = &self.context.config.scheduler;
        let number = self.context.vault.num_encoder_caches.fetch_add(1, Ordering::Relaxed);
        let mut cache = EncoderCache::new(number, config.encoder_cache_size, config.encoder_budget);
        if let Some(store) = self.store() {
            let dropped = cache.adopt(store.stored());
            store.remove(&dropped);
        }
        Ok(State { cache, epoch: Epoch::default() })
    }

    async fn post_start(
        &self,
        myself: ActorRef<EncoderCacheManagerMessage>,
        _state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        if self.context.config.scheduler.encoder_cache_size > 0 {
            let tick = self.context.config.tick;
            myself.send_interval(tick, || EncoderCacheManagerMessage::Tick);
        }
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<EncoderCacheManagerMessage>,
        message: EncoderCacheManagerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            EncoderCacheManagerMessage::Needs(needs) => self.on_needs(&needs, state),
            EncoderCacheManagerMessage::Encoded { manager, number, encoded } => {
                if state.cache.finish(manager, number, encoded) {
                    self.advance(state);
                } else {
                    self.context.observers.stale(1);
                    self.drop_unknown(state);
                }
            }
            EncoderCacheManagerMessage::Reset(reply) => {
                let unused = state.cache.reset();
                if let Some(store) = self.store() {
                    store.remove(&unused);
                }
                let _ = reply.send(());
            }
            EncoderCacheManagerMessage::View(reply) => {
                let num_received = self.store().map_or(0, |store| store.num_received());
                let _ = reply.send(EncoderCacheView { num_received, ..state.cache.view() });
            }
            EncoderCacheManagerMessage::Tick => self.repeat(state),
            EncoderCacheManagerMessage::Ping => {}
        }
        Ok(())
    }
}
