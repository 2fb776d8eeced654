//! The current address of each role. No actor keeps a sibling's address past a step: a restarted
//! actor is found here under its role, and no process-global name is involved.

use std::sync::Arc;

pub use super::slot::{ActorStats, AnySlot, Slot};
use crate::{
    fault::Chaos,
    message::{
        DetokenizerMessage, EncoderCacheManagerMessage, EncoderWorkerMessage,
        InputProcessorMessage, KvCacheManagerMessage, LedgerMessage, Letter, OutputStreamerMessage,
        Role, SchedulerMessage, StructuredOutputMessage, SupervisorMessage, WorkerMessage,
    },
    system::config::SystemConfig,
};

/// The addresses of one actor system.
#[derive(Debug)]
pub struct Directory {
    /// The ledger.
    pub ledger: Slot<LedgerMessage>,
    /// The input processors.
    pub input_processors: Vec<Slot<InputProcessorMessage>>,
    /// The KV cache manager.
    pub kv_cache_manager: Slot<KvCacheManagerMessage>,
    /// The structured output actor.
    pub structured_output: Slot<StructuredOutputMessage>,
    /// The encoder cache manager.
    pub encoder_cache_manager: Slot<EncoderCacheManagerMessage>,
    /// The scheduler.
    pub scheduler: Slot<SchedulerMessage>,
    /// The worker.
    pub worker: Slot<WorkerMessage>,
    /// The encoder worker.
    pub encoder_worker: Slot<EncoderWorkerMessage>,
    /// The detokenizers, one an egress shard.
    pub detokenizers: Vec<Slot<DetokenizerMessage>>,
    /// The output streamers, one an egress shard.
    pub output_streamers: Vec<Slot<OutputStreamerMessage>>,
    /// The root supervisor.
    pub root: Slot<SupervisorMessage>,
    /// The supervisor of the actors from KV cache manager to encoder worker.
    pub core: Slot<SupervisorMessage>,
    /// The supervisor of detokenizers and streamers.
    pub egress: Slot<SupervisorMessage>,
    /// The supervisor of the input processors.
    pub ingress: Slot<SupervisorMessage>,
}

impl Directory {
    /// Returns a directory without addresses.
    #[must_use]
    pub fn new(config: &SystemConfig, chaos: &Arc<Chaos>) -> Self {
        let (inputs, shards) =
            (config.num_input_processors.max(1), config.num_egress_shards.max(1));
        fn slot<M: Letter>(role: Role, chaos: &Arc<Chaos>) -> Slot<M> {
            Slot::new(role, 0, Arc::clone(chaos))
        }
        fn slots<M: Letter>(count: usize, role: Role, chaos: &Arc<Chaos>) -> Vec<Slot<M>> {
            (0..count).map(|index| Slot::new(role, index, Arc::clone(chaos))).collect()
        }
        Self {
            ledger: slot(Role::Ledger, chaos),
            input_processors: slots(inputs, Role::InputProcessor, chaos),
            kv_cache_manager: slot(Role::KvCacheManager, chaos),
            structured_output: slot(Role::StructuredOutput, chaos),
            encoder_cache_manager: slot(Role::EncoderCacheManager, chaos),
            scheduler: slot(Role::Scheduler, chaos),
            worker: slot(Role::Worker, chaos),
            encoder_worker: slot(Role::EncoderWorker, chaos),
            detokenizers: slots(shards, Role::Detokenizer, chaos),
            output_streamers: slots(shards, Role::OutputStreamer, chaos),
            root: slot(Role::Root, chaos),
            core: slot(Role::Core, chaos),
            egress: slot(Role::Egress, chaos),
            ingress: slot(Role::Ingress, chaos),
        }
    }

    /// Returns all slots, supervisors before their children.
    pub fn slots(&self) -> impl Iterator<Item = &dyn AnySlot> {
        fn any<M: Letter>(slot: &Slot<M>) -> &dyn AnySlot {
            slot
        }
        let supervisors = [any(&self.root), any(&self.core), any(&self.egress), any(&self.ingress)];
        let core = [
            any(&self.ledger),
            any(&self.kv_cache_manager),
            any(&self.structured_output),
            any(&self.encoder_cache_manager),
            any(&self.scheduler),
            any(&self.worker),
            any(&self.encoder_worker),
        ];
        supervisors
            .into_iter()
            .chain(core)
            .chain(self.detokenizers.iter().map(any))
            .chain(self.output_streamers.iter().map(any))
            .chain(self.input_processors.iter().map(any))
    }

    /// Returns the slot of a role. `index` tells actors of the same role apart.
    #[must_use]
    pub fn find(&self, role: Role, index: usize) -> Option<&dyn AnySlot> {
        self.slots().find(|slot| (slot.role(), slot.index()) == (role, index))
    }

    /// Returns the supervisor of a role.
    #[must_use]
    pub fn supervisor_of(&self, role: Role) -> Option<&Slot<SupervisorMessage>> {
        match role.supervisor()? {
            Role::Core => Some(&self.core),
            Role::Egress => Some(&self.egress),
            Role::Ingress => Some(&self.ingress),
            _ => Some(&self.root),
        }
    }

    /// Returns how often a slot of the core got a new actor. An epoch belongs to one such number.
    #[must_use]
    pub fn core_incarnations(&self) -> u64 {
        self.kv_cache_manager.incarnations()
            + self.structured_output.incarnations()
            + self.encoder_cache_manager.incarnations()
            + self.scheduler.incarnations()
            + self.worker.incarnations()
            + self.encoder_worker.incarnations()
    }

    /// Returns the number of actors replaced so far, without supervisors.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        let is_supervisor =
            |role| matches!(role, Role::Root | Role::Core | Role::Egress | Role::Ingress);
        let actors = self.slots().filter(|slot| !is_supervisor(slot.role()));
        actors.map(|slot| slot.actor_stats(0).restarts).sum()
    }
}
