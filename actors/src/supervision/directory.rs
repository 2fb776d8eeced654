//! The current address of each role. No actor keeps a sibling's address past a step: a restarted
//! actor is found here under its role, and no process-global name is involved.

use std::sync::Arc;

pub use super::slot::{ActorStats, AnySlot, Slot};
use crate::{
    fault::Chaos,
    logic::request::ids::EngineIndex,
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
    /// The core of the first engine, and mostly the only one.
    pub core: CoreSlots,
    /// The cores of the other engines.
    pub other_cores: Vec<CoreSlots>,
    /// The detokenizers, one an egress shard.
    pub detokenizers: Vec<Slot<DetokenizerMessage>>,
    /// The output streamers, one an egress shard.
    pub output_streamers: Vec<Slot<OutputStreamerMessage>>,
    /// The root supervisor.
    pub root: Slot<SupervisorMessage>,
    /// The supervisor of detokenizers and streamers.
    pub egress: Slot<SupervisorMessage>,
    /// The supervisor of the input processors.
    pub ingress: Slot<SupervisorMessage>,
}

/// The addresses of one engine's core.
#[derive(Debug)]
pub struct CoreSlots {
    /// The supervisor of the other actors, or the actor that watches their process.
    pub supervisor: Slot<SupervisorMessage>,
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
}

impl CoreSlots {
    /// Returns slots without addresses. Their index is that of the engine.
    fn new(engine: usize, chaos: &Arc<Chaos>) -> Self {
        fn slot<M: Letter>(role: Role, engine: usize, chaos: &Arc<Chaos>) -> Slot<M> {
            Slot::new(role, engine, Arc::clone(chaos))
        }
        Self {
            supervisor: slot(Role::Core, engine, chaos),
            kv_cache_manager: slot(Role::KvCacheManager, engine, chaos),
            structured_output: slot(Role::StructuredOutput, engine, chaos),
            encoder_cache_manager: slot(Role::EncoderCacheManager, engine, chaos),
            scheduler: slot(Role::Scheduler, engine, chaos),
            worker: slot(Role::Worker, engine, chaos),
            encoder_worker: slot(Role::EncoderWorker, engine, chaos),
        }
    }

    /// Returns how often a slot of the core got a new actor. An epoch belongs to one such number.
    #[must_use]
    pub fn incarnations(&self) -> u64 {
        self.kv_cache_manager.incarnations()
            + self.structured_output.incarnations()
            + self.encoder_cache_manager.incarnations()
            + self.scheduler.incarnations()
            + self.worker.incarnations()
            + self.encoder_worker.incarnations()
    }

    /// Returns whether all actors take messages.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.kv_cache_manager.is_alive()
            && self.structured_output.is_alive()
            && self.encoder_cache_manager.is_alive()
            && self.scheduler.is_alive()
            && self.worker.is_alive()
            && self.encoder_worker.is_alive()
    }

    /// Returns the slots of all actors but the supervisor.
    fn actors(&self) -> [&dyn AnySlot; 6] {
        [
            &self.kv_cache_manager,
            &self.structured_output,
            &self.encoder_cache_manager,
            &self.scheduler,
            &self.worker,
            &self.encoder_worker,
        ]
    }
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
            core: CoreSlots::new(0, chaos),
            other_cores: (1..config.num_engines).map(|i| CoreSlots::new(i, chaos)).collect(),
            detokenizers: slots(shards, Role::Detokenizer, chaos),
            output_streamers: slots(shards, Role::OutputStreamer, chaos),
            root: slot(Role::Root, chaos),
            egress: slot(Role::Egress, chaos),
            ingress: slot(Role::Ingress, chaos),
        }
    }

    /// Returns all slots, supervisors before their children.
    pub fn slots(&self) -> impl Iterator<Item = &dyn AnySlot> {
        fn any<M: Letter>(slot: &Slot<M>) -> &dyn AnySlot {
            slot
        }
        let core_supervisors = self.cores().map(|core| any(&core.supervisor));
        let supervisors = [any(&self.root)].into_iter().chain(core_supervisors);
        let supervisors = supervisors.chain([any(&self.egress), any(&self.ingress)]);
        let cores = [any(&self.ledger)].into_iter().chain(self.cores().flat_map(CoreSlots::actors));
        supervisors
            .chain(cores)
            .chain(self.detokenizers.iter().map(any))
            .chain(self.output_streamers.iter().map(any))
            .chain(self.input_processors.iter().map(any))
    }

    /// Returns the core of each engine, by its index.
    pub fn cores(&self) -> impl Iterator<Item = &CoreSlots> {
        std::iter::once(&self.core).chain(&self.other_cores)
    }

    /// Returns the core of an engine.
    #[must_use]
    pub fn core_of(&self, engine: EngineIndex) -> Option<&CoreSlots> {
        self.cores().nth(engine.0)
    }

    /// Returns the slot of a role. `index` tells actors of the same role apart.
    #[must_use]
    pub fn find(&self, role: Role, index: usize) -> Option<&dyn AnySlot> {
        self.slots().find(|slot| (slot.role(), slot.index()) == (role, index))
    }

    /// Returns the supervisor of the actor with this role and index.
    #[must_use]
    pub fn supervisor_of(&self, role: Role, index: usize) -> Option<&Slot<SupervisorMessage>> {
        match role.supervisor()? {
            Role::Core => self.core_of(EngineIndex(index)).map(|core| &core.supervisor),
            Role::Egress => Some(&self.egress),
            Role::Ingress => Some(&self.ingress),
            _ => Some(&self.root),
        }
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
