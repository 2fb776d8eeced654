//! The KV cache manager's shell: executes the scheduler's plans and keeps the block directory true.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::context::Context;
use crate::{
    logic::{ids::Epoch, kv_cache_manager::KvCacheManager},
    message::KvCacheManagerMessage,
};

/// The KV cache manager actor.
#[derive(Debug)]
pub struct KvCacheManagerActor {
    context: Arc<Context>,
}

/// What it derives from the block directory.
#[derive(Debug)]
pub struct State {
    epoch: Epoch,
    manager: KvCacheManager,
}

impl KvCacheManagerActor {
    /// A manager of the vault's KV cache.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    fn rebuild(&self, epoch: Epoch) -> State {
        let config = self.context.config.scheduler.kv_cache();
        let sealed = self.context.vault.sealed_blocks();
        State { epoch, manager: KvCacheManager::from_directory(config, &sealed) }
    }
}

impl Actor for KvCacheManagerActor {
    type Msg = KvCacheManagerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<KvCacheManagerMessage>,
        (): (),
    ) -> Result<State, ActorProcessingErr> {
        Ok(self.rebuild(Epoch::default()))
    }

    async fn handle(
        &self,
        _myself: ActorRef<KvCacheManagerMessage>,
        message: KvCacheManagerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            KvCacheManagerMessage::Execute(plan, reply) => {
                if plan.epoch != state.epoch {
                    self.context.metrics.stale_messages.increment(1);
                    return Ok(());
                }
                let allocation = state.manager.execute(&plan);
                // Before the answer: an evicted block may be overwritten as soon as it is known.
                self.context.vault.update_blocks(state.manager.drain_directory_updates());
                let _ = reply.send(allocation);
            }
            KvCacheManagerMessage::ResetPrefixCache(reply) => {
                let done = state.manager.reset_prefix_cache();
                self.context.vault.update_blocks(state.manager.drain_directory_updates());
                let _ = reply.send(done);
            }
            KvCacheManagerMessage::Recover(epoch) => *state = self.rebuild(epoch),
        }
        Ok(())
    }
}
