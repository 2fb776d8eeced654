//! The KV cache manager's shell: executes the scheduler's plans and updates the block directory.

use std::{collections::BTreeMap, sync::Arc};

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::{
    error::ActorError,
    fault::Observed,
    logic::{
        kv_cache::{
            KvCacheManager,
            allocation::{Allocation, AllocationOp, AllocationPlan, PlanError},
        },
        observe::BlockMap,
        recording::{Entry, KvCacheBegan, KvContentKept},
        request::ids::{Epoch, RequestId},
    },
    message::KvCacheManagerMessage,
    supervision::watched::Long,
    system::{context::Context, vault::Inheritance},
};

/// Largest number of cells in a block map.
const MAX_CELLS: u32 = 4_096;

/// The KV cache manager actor.
#[derive(Debug)]
pub struct KvCacheManagerActor {
    context: Arc<Context>,
}

/// The manager of the current epoch. Without a manager, `epoch` is the epoch at the actor's start,
/// and the actor serves later epochs only.
#[derive(Debug)]
pub struct State {
    epoch: Epoch,
    manager: Option<KvCacheManager>,
}

impl KvCacheManagerActor {
    /// Returns a manager of the vault's KV cache.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Returns the manager for a plan of `epoch`, or `None` if this epoch is past. In a new epoch,
    /// sealed blocks are hits, tails wait for their requests, and the other blocks are free.
    fn manager<'a>(&self, epoch: Epoch, state: &'a mut State) -> Option<&'a mut KvCacheManager> {
        if epoch > state.epoch {
            // Tables of many blocks take longer than other messages: a fifth of a second was seen.
            let _long = Long::begin();
            let config = self.context.config.scheduler.kv_cache();
            let before = state.manager.take();
            let lengths = self.context.live_lengths();
            let num_tokens = |request| lengths.get(&request).copied();
            let inheritance = self.context.vault.begin_epoch(epoch, num_tokens, before);
            self.record(epoch, &lengths, &inheritance);
            let manager = match inheritance {
                Inheritance::Living(manager) => *manager,
                Inheritance::Directory(directory) => {
                    let (sealed, tails) = (directory.sealed(), directory.tails());
                    KvCacheManager::from_directory(&config, epoch, sealed, tails)
                }
            };
            *state = State { epoch, manager: Some(manager) };
        }
        state.manager.as_mut().filter(|_| epoch == state.epoch)
    }

    /// Notes the begin of an epoch, if the engine is recorded.
    fn record(
        &self,
        epoch: Epoch,
        lengths: &BTreeMap<RequestId, usize>,
        inheritance: &Inheritance,
    ) {
        let Some(recorder) = &self.context.config.recorder else { return };
        let content = match inheritance {
            Inheritance::Living(_) => KvContentKept::Manager,
            Inheritance::Directory(directory) if directory.is_empty() => KvContentKept::Nothing,
            Inheritance::Directory(_) => KvContentKept::Directory,
        };
        recorder.note(|| {
            let live = lengths.iter().map(|(&request, &length)| (request, length)).collect();
            let executed = recorder.last_executed();
            Entry::KvCacheBegan(KvCacheBegan { epoch, content, live, executed })
        });
    }

    fn execute(
        &self,
        plan: &AllocationPlan,
        state: &mut State,
    ) -> Result<Option<Allocation>, ActorError> {
        let Some(manager) = self.manager(plan.epoch, state) else {
            self.context.observers.stale(1);
            return Ok(None);
        };
        // A reset reads all blocks, and the first plan of an epoch those of all running requests.
        let is_long = |op: &AllocationOp| {
            matches!(op, AllocationOp::ResetPrefixCache | AllocationOp::Touch { .. })
        };
        let _long = plan.ops.iter().any(is_long).then(Long::begin);
        let allocation = manager.execute(plan);
        if let Some(recorder) = self.context.config.recorder.as_ref().filter(|_| allocation.is_ok())
        {
            recorder.executed(plan);
        }
        // This comes before the answer, because after the answer a step may overwrite an evicted
        // block.
        let updates = manager.drain_directory_updates();
        let has_finished = plan.completed_step.is_some();
        self.context.vault.update_blocks(plan.epoch, updates, has_finished);
        self.context.observers.chaos.observe(&Observed::KvCache { plan, manager });
        match allocation {
            Ok(allocation) => Ok(Some(allocation)),
            Err(PlanError::Stale { .. }) => Ok(None),
            Err(error @ PlanError::Invalid { .. }) => Err(ActorError::Invariant(error.to_string())),
        }
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
        Ok(State { epoch: self.context.core_epoch(), manager: None })
    }

    async fn handle(
        &self,
        _myself: ActorRef<KvCacheManagerMessage>,
        message: KvCacheManagerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            KvCacheManagerMessage::Execute(plan, reply) => {
                let allocation = self.execute(&plan, state)?;
                // A scheduler that died meanwhile needs no answer.
                let _ = reply.send(allocation);
            }
            KvCacheManagerMessage::View(reply) => {
                if !reply.is_closed() {
                    let _long = Long::begin();
                    let map = |manager| BlockMap::of(manager, MAX_CELLS);
                    let _ = reply.send(state.manager.as_ref().map(map));
                }
            }
            KvCacheManagerMessage::Ping => {}
        }
        Ok(())
    }
}
