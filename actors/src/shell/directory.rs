//! Where each role is to be found now. Nobody keeps a sibling's address past a step: a restarted
//! actor is found here under its role, and no process-global name is involved.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::RwLock;
use ractor::{ActorRef, ActorStatus, Message, RpcReplyPort, rpc::CallResult};

use crate::{
    error::ActorError,
    message::{
        DetokenizerMessage, InputProcessorMessage, KvCacheManagerMessage, LedgerMessage,
        OutputStreamerMessage, SchedulerMessage, WorkerMessage,
    },
};

/// The roles of an actor system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The ground state.
    Ledger,
    /// Makes requests out of text.
    InputProcessor,
    /// Knows the blocks.
    KvCacheManager,
    /// Knows the policy.
    Scheduler,
    /// Owns the device thread.
    Worker,
    /// Makes text out of tokens.
    Detokenizer,
    /// Hands text to clients.
    OutputStreamer,
    /// Supervises the input processors.
    Ingress,
    /// Supervises KV cache manager, scheduler and worker.
    Core,
    /// Supervises detokenizers and streamers.
    Egress,
    /// Supervises the supervisors.
    Root,
}

impl Role {
    /// The name in logs, metrics and the chaos surface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::InputProcessor => "input",
            Self::KvCacheManager => "kv_cache",
            Self::Scheduler => "scheduler",
            Self::Worker => "worker",
            Self::Detokenizer => "detokenizer",
            Self::OutputStreamer => "streamer",
            Self::Ingress => "ingress",
            Self::Core => "core",
            Self::Egress => "egress",
            Self::Root => "root",
        }
    }
}

/// The current address of one actor.
pub struct Slot<M> {
    role: Role,
    address: RwLock<Option<ActorRef<M>>>,
    incarnations: AtomicU64,
}

impl<M: Message> Slot<M> {
    fn new(role: Role) -> Self {
        Self { role, address: RwLock::new(None), incarnations: AtomicU64::new(0) }
    }

    /// Registers a new incarnation.
    pub fn set(&self, address: ActorRef<M>) {
        *self.address.write() = Some(address);
        self.incarnations.fetch_add(1, Ordering::Relaxed);
    }

    /// The current address.
    #[must_use]
    pub fn get(&self) -> Option<ActorRef<M>> {
        self.address.read().clone()
    }

    /// Whether the current incarnation takes messages.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let address = self.address.read();
        address.as_ref().is_some_and(|address| address.get_status() == ActorStatus::Running)
    }

    /// How often the actor was replaced.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.incarnations.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Sends without waiting. Whatever is lost when the receiver is dead is rebuilt from the ledger
    /// when its successor joins, so the sender need not know.
    pub fn cast(&self, message: M) {
        let lost = match &*self.address.read() {
            Some(address) => address.cast(message).is_err(),
            None => true,
        };
        if lost {
            tracing::debug!(role = self.role.as_str(), "message to a dead actor dropped");
        }
    }

    /// Asks and waits for at most `limit`.
    ///
    /// # Errors
    /// [`ActorError::Gone`] when the receiver is dead or dies before it answers,
    /// [`ActorError::CallTimeout`] when it takes too long.
    pub async fn call<T: Send + 'static>(
        &self,
        call: &'static str,
        limit: Duration,
        message: impl FnOnce(RpcReplyPort<T>) -> M,
    ) -> Result<T, ActorError> {
        let callee = self.role.as_str();
        let address = self.get().ok_or(ActorError::Gone { callee })?;
        match address.call(message, Some(limit)).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            Ok(CallResult::Timeout) => Err(ActorError::CallTimeout { callee, call, limit }),
            Ok(CallResult::SenderError) | Err(_) => Err(ActorError::Gone { callee }),
        }
    }
}

impl<M> fmt::Debug for Slot<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("role", &self.role).finish_non_exhaustive()
    }
}

/// The addresses of one actor system.
#[derive(Debug)]
pub struct Directory {
    /// The ledger.
    pub ledger: Slot<LedgerMessage>,
    /// The input processors.
    pub input_processors: Vec<Slot<InputProcessorMessage>>,
    /// The KV cache manager.
    pub kv_cache_manager: Slot<KvCacheManagerMessage>,
    /// The scheduler.
    pub scheduler: Slot<SchedulerMessage>,
    /// The worker.
    pub worker: Slot<WorkerMessage>,
    /// The detokenizers, one an egress shard.
    pub detokenizers: Vec<Slot<DetokenizerMessage>>,
    /// The output streamers, one an egress shard.
    pub output_streamers: Vec<Slot<OutputStreamerMessage>>,
}

impl Directory {
    /// A directory without addresses.
    #[must_use]
    pub fn new(num_input_processors: usize, num_egress_shards: usize) -> Self {
        fn slots<M: Message>(count: usize, role: Role) -> Vec<Slot<M>> {
            (0..count).map(|_| Slot::new(role)).collect()
        }
        Self {
            ledger: Slot::new(Role::Ledger),
            input_processors: slots(num_input_processors, Role::InputProcessor),
            kv_cache_manager: Slot::new(Role::KvCacheManager),
            scheduler: Slot::new(Role::Scheduler),
            worker: Slot::new(Role::Worker),
            detokenizers: slots(num_egress_shards, Role::Detokenizer),
            output_streamers: slots(num_egress_shards, Role::OutputStreamer),
        }
    }
    /// Actors replaced so far.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        fn all<M: Message>(slots: &[Slot<M>]) -> u64 {
            slots.iter().map(Slot::restarts).sum()
        }
        self.ledger.restarts()
            + self.kv_cache_manager.restarts()
            + self.scheduler.restarts()
            + self.worker.restarts()
            + all(&self.input_processors)
            + all(&self.detokenizers)
            + all(&self.output_streamers)
    }
}
