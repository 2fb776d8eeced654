//! The parts of a system that its actors share. The root owns them, so no actor's death touches
//! them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::time::Instant;

use super::{
    clients::Clients, config::SystemConfig, ground_state::GroundState, observers::Observers,
    part::Part, vault::Vault,
};
use crate::{
    link::frames::ToEngine,
    logic::request::ids::{Epoch, Micros, RequestId},
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
    /// The part of the system that runs in this process.
    pub(crate) part: Part,
    is_stopped: AtomicBool,
    started: Instant,
    /// The time at the start. It is not 0 in an engine process, whose front started earlier.
    began_at: Micros,
}

impl Context {
    /// Returns the shared parts of a new system, all of which runs in this process.
    pub fn new(
        config: SystemConfig,
        executors: Arc<dyn ExecutorFactory>,
        codec: Arc<dyn TextCodec>,
        grammars: Arc<dyn GrammarCompiler>,
    ) -> Self {
        Self::of_part(Part::Whole, 0, config, executors, codec, grammars)
    }

    /// Returns the shared parts of a part of a system, whose time is `now`.
    pub(crate) fn of_part(
        part: Part,
        now: Micros,
        config: SystemConfig,
        executors: Arc<dyn ExecutorFactory>,
        codec: Arc<dyn TextCodec>,
        grammars: Arc<dyn GrammarCompiler>,
    ) -> Self {
        let observers = Observers::new(&config, part.engine().cloned());
        Self {
            ground: GroundState::new(&config, &observers),
            vault: Vault::new(&config, executors, codec, grammars),
            directory: Directory::new(&config, &observers.chaos),
            clients: Clients::new(&config),
            observers,
            part,
            is_stopped: AtomicBool::new(false),
            started: Instant::now(),
            began_at: now,
            config,
        }
    }

    /// Returns the place where the ledger lives.
    pub(crate) fn ledger(&self) -> &LedgerStore {
        &self.ground.ledger
    }

    /// Returns the last epoch that the core can know: an actor of the core that starts now has
    /// missed none of its messages if it is the next.
    pub(crate) fn core_epoch(&self) -> Epoch {
        self.part.engine().map_or_else(|| self.ledger().epoch(), |front| front.epoch())
    }

    /// Returns the number of prompt and output tokens of each request that has not ended, as the
    /// core's epoch began or later.
    pub(crate) fn live_lengths(&self) -> BTreeMap<RequestId, usize> {
        let of_ledger = || self.ledger().live_lengths();
        self.part.engine().map_or_else(of_ledger, |front| front.live_lengths())
    }

    /// Returns the predicted time of a step of one token.
    pub(crate) fn predicted_step(&self) -> Option<Micros> {
        match self.part.front() {
            None => self.vault.step_time.lock().predict(1),
            Some(engines) => engines.step_time(),
        }
    }

    /// Records that no request is left, so no step is expected.
    pub(crate) fn rest(&self) {
        self.observers.progress.rest();
        if let Some(engines) = self.part.front() {
            // A process that is gone expects no step.
            let _ = engines.send(&ToEngine::Rest);
        }
    }

    /// Lets no clients in until a canary was served, for a reason that is no text of a client.
    pub(crate) fn trip_breaker(&self, why: String) {
        self.clients.gate.trip(self.now(), why);
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
        let elapsed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.began_at.saturating_add(elapsed)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("config", &self.config).finish_non_exhaustive()
    }
}
