//! The parts of a system that its actors share. The root owns them, so no actor's death touches
//! them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::time::Instant;

use super::{
    clients::Clients, config::SystemConfig, ground_state::GroundState, observers::Observers,
    vault::Vault,
};
use crate::{
    logic::request::ids::Micros,
    ports::{ExecutorFactory, GrammarCompiler, TextCodec},
    shell::ledger::store::LedgerStore,
    supervision::directory::Directory,
};

/// The shared parts of one system.
pub struct Context {
    /// The settings.
    pub(crate) config: SystemConfig,
    /// The state that cannot be derived.
    pub(crate) ground: GroundState,
    /// The loaded model and its memory.
    pub(crate) vault: Vault,
    /// The addresses.
    pub(crate) directory: Directory,
    /// The part that clients meet.
    pub(crate) clients: Clients,
    /// The observers.
    pub(crate) observers: Observers,
    is_stopped: AtomicBool,
    started: Instant,
}

impl Context {
    /// Returns the shared parts of a new system.
    pub fn new(
        config: SystemConfig,
        executors: Arc<dyn ExecutorFactory>,
        codec: Arc<dyn TextCodec>,
        grammars: Arc<dyn GrammarCompiler>,
    ) -> Self {
        let observers = Observers::new(&config);
        Self {
            ground: GroundState::new(&config, &observers),
            vault: Vault::new(&config, executors, codec, grammars),
            directory: Directory::new(&config, &observers.chaos),
            clients: Clients::new(&config),
            observers,
            is_stopped: AtomicBool::new(false),
            started: Instant::now(),
            config,
        }
    }

    /// Returns the place where the ledger lives.
    pub(crate) fn ledger(&self) -> &LedgerStore {
        &self.ground.ledger
    }

    /// Lets no clients in until a canary was served, because actors die too often.
    pub(crate) fn trip_breaker(&self) {
        self.clients.gate.trip(self.now());
    }

    /// Ends the watchdog and the canary, because the system shuts down.
    pub(crate) fn stop_watching(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.clients.gate.call_canary();
    }

    /// Returns whether the system was shut down.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Returns the time since the system started. It is the one clock of all actors.
    pub(crate) fn now(&self) -> Micros {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("config", &self.config).finish_non_exhaustive()
    }
}
