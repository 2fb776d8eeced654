//! The KV cache manager's shell: executes the scheduler's plans and keeps the block directory true.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::context::Context;
use crate::{
    error::ActorError,
    logic::{
        allocation::{Allocation, AllocationPlan, PlanError},
        ids::Epoch,
        kv_cache::KvCacheManager,
    },
    message::KvCacheManagerMessage,
};

/// The KV cache manager actor.
#[derive(Debug)]
pub struct KvCacheManagerActor {
    context: Arc<Context>,
}

impl KvCacheManagerActor {
    /// A manager of the vault's KV cache.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Derived from the block directory: what was sealed is a hit, the rest is free.
    fn rebuild(&self, epoch: Epoch) -> KvCacheManager {
        let config = self.context.config.scheduler.kv_cache();
        let sealed = self.context.vault.sealed_blocks();
        let mut manager = KvCacheManager::from_directory(config, &sealed);
        manager.begin_epoch(epoch);
        manager
    }

    fn execute(
        &self,
        plan: &AllocationPlan,
        manager: &mut KvCacheManager,
    ) -> Result<Option<Allocation>, ActorError> {
        let allocation = manager.execute(plan);
        // Before the answer: an evicted block may be overwritten as soon as it is known.
        self.context.vault.update_blocks(manager.drain_directory_updates());
        match allocation {
            Ok(allocation) => Ok(Some(allocation)),
            Err(PlanError::Stale { .. }) => {
                self.context.metrics.stale_messages.increment(1);
                Ok(None)
            }
            Err(error @ PlanError::Invalid { .. }) => Err(ActorError::Invariant(error.to_string())),
        }
    }
}

impl Actor for KvCacheManagerActor {
    type Msg = KvCacheManagerMessage;
    type State = KvCacheManager;
    type Arguments = ();

    async fn pre_start(
        &self,
        _myself: ActorRef<KvCacheManagerMessage>,
        (): (),
    ) -> Result<KvCacheManager, ActorProcessingErr> {
        Ok(self.rebuild(Epoch::default()))
    }

    async fn handle(
        &self,
        _myself: ActorRef<KvCacheManagerMessage>,
        message: KvCacheManagerMessage,
        manager: &mut KvCacheManager,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            KvCacheManagerMessage::Execute(plan, reply) => {
                // A scheduler that died over its plan needs no answer.
                let _ = reply.send(self.execute(&plan, manager)?);
            }
            KvCacheManagerMessage::Recover(epoch) => *manager = self.rebuild(epoch),
        }
        Ok(())
    }
}
