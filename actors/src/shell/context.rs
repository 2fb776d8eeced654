//! What all shells of one actor system share: addresses, the ledger's store, the vault, the sinks.
//! It is owned by the root, so no actor's death touches it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use super::{
    config::SystemConfig, directory::Directory, grammar_threads::Grammars, house::House,
    ledger::LedgerStore, left_behind::LeftBehind, memory::MemoryBudget, metrics::SystemMetrics,
    progress::Progress, sink::SinkTable, text_jobs::TextJobs, watchdog::HangCounts,
};
use crate::{
    fault::Chaos,
    logic::{
        breaker::Breaker,
        ids::{Epoch, Micros, RequestId},
        kv_cache::{BlockDirectory, DirectoryUpdate, KvCacheManager},
        scheduler::PauseState,
        step_time::StepTime,
    },
    message::Role,
    ports::{ExecuteError, ExecutorFactory, GrammarCompiler, TextCodec},
};

/// A canary whose fate nobody tells has failed by then: ten minutes. Who sends it waits less.
const CANARY_LIMIT: Micros = 600_000_000;

/// Shared by all shells of one actor system.
pub struct Context {
    /// Settings.
    pub config: SystemConfig,
    /// Addresses.
    pub directory: Directory,
    /// The ledger. Only its actor changes it.
    pub ledger: LedgerStore,
    /// Weights and KV cache.
    pub vault: Vault,
    /// The text side.
    pub codec: Arc<dyn TextCodec>,
    /// Its work, in turns.
    pub text_jobs: Arc<TextJobs>,
    /// The grammars, and the threads that compile them.
    pub grammars: Arc<Grammars>,
    /// The memory for requests.
    pub memory: Arc<MemoryBudget>,
    /// Where clients wait.
    pub sinks: SinkTable,
    /// What is counted.
    pub metrics: Arc<SystemMetrics>,
    /// The last step planned: a new scheduler counts on.
    pub last_step: AtomicU64,
    /// What the operator holds back: a new scheduler does too.
    pub pause: Mutex<PauseState>,
    /// How often that was set: who finds another number was superseded. It is set under this lock,
    /// which may be held for long, and read without.
    pub num_pauses: Mutex<u64>,
    /// The memory of the KV cache was given back.
    pub is_asleep: AtomicBool,
    /// Faults on purpose.
    pub chaos: Arc<Chaos>,
    /// What is noted for those who look in from outside.
    pub house: House,
    /// Whether the engine gets anywhere.
    pub progress: Progress,
    /// Hangs so far.
    pub hangs: HangCounts,
    /// Whether clients are let in.
    pub breaker: Mutex<Breaker>,
    /// Wakes the canary: a tripped breaker may close, or the model is suspect.
    pub canary_wanted: Notify,
    /// The system was shut down: nobody needs to be watched.
    pub is_stopped: AtomicBool,
    started: Instant,
}

/// What outlives every worker and KV cache manager: the executors' factory, which holds weights and
/// KV arena, and the directory of what the blocks hold.
pub struct Vault {
    /// Makes executors over the weights and the arena.
    pub executors: Arc<dyn ExecutorFactory>,
    blocks: Mutex<BlockDirectory>,
    /// What is known of the device's speed.
    pub step_time: Mutex<StepTime>,
    /// Device threads that hang.
    pub left_behind: LeftBehind,
}

/// What a new epoch's KV cache manager is made of.
pub enum Inheritance {
    /// The manager of the epoch before, which lives on.
    Living(Box<KvCacheManager>),
    /// All that is left.
    Directory(BlockDirectory),
}

impl Vault {
    /// A vault whose KV cache is empty.
    #[must_use]
    pub fn new(executors: Arc<dyn ExecutorFactory>) -> Self {
        let (blocks, step_time) = Default::default();
        Self { executors, blocks, step_time, left_behind: LeftBehind::default() }
    }

    /// Keeps the block directory true. Whoever is not the KV cache manager of the current epoch
    /// changes nothing.
    pub fn update_blocks(&self, epoch: Epoch, updates: Vec<DirectoryUpdate>) {
        self.blocks.lock().update(epoch, updates);
    }

    /// What the KV cache manager of a new epoch begins with: from now on it alone writes. See
    /// [`BlockDirectory::begin_epoch`]. One that lives on from the epoch `before` goes on with what it
    /// knows, unless the content was lost meanwhile.
    pub fn begin_epoch(
        &self,
        epoch: Epoch,
        num_tokens: impl Fn(RequestId) -> Option<usize>,
        before: Option<KvCacheManager>,
    ) -> Inheritance {
        let mut directory = self.blocks.lock();
        let living = before.filter(|manager| directory.is_written_by(manager.epoch()));
        directory.begin_epoch(epoch, num_tokens);
        match living {
            Some(mut manager) => {
                manager.continue_in(epoch, directory.tails());
                Inheritance::Living(Box::new(manager))
            }
            None => Inheritance::Directory(directory.clone()),
        }
    }

    /// Takes the KV cache away from a device thread that will not come back, and forgets what was
    /// in it if it has to be left behind.
    ///
    /// # Errors
    /// What [`ExecutorFactory::reclaim`] says.
    pub fn reclaim(&self, epoch: Epoch) -> Result<(), ExecuteError> {
        let forget = || {
            tracing::warn!("the KV cache was left behind with a thread that hangs");
            self.blocks.lock().lose_content()
        };
        self.executors.reclaim(epoch, &forget).map(drop)
    }
}

impl Context {
    /// The shared part of a new system.
    pub fn new(
        config: SystemConfig,
        executors: Arc<dyn ExecutorFactory>,
        codec: Arc<dyn TextCodec>,
        grammars: Arc<dyn GrammarCompiler>,
    ) -> Self {
        let chaos = Arc::new(Chaos::default());
        let limit = config.max_request_memory_bytes;
        let metrics = Arc::new(SystemMetrics::new(&config.model_name, &config.engine));
        let memory = MemoryBudget::new(limit, &config.model_name, &config.engine);
        let (inputs, shards) =
            (config.num_input_processors.max(1), config.num_egress_shards.max(1));
        Self {
            directory: Directory::new(inputs, shards, &chaos),
            ledger: LedgerStore::new(config.ledger(), Arc::clone(&metrics), Arc::clone(&chaos)),
            vault: Vault::new(executors),
            text_jobs: Arc::new(TextJobs::new(Arc::clone(&codec), config.device)),
            codec,
            grammars: Arc::new(Grammars::new(grammars)),
            sinks: SinkTable::new(Arc::clone(&memory)),
            memory,
            metrics,
            last_step: AtomicU64::new(0),
            pause: Mutex::default(),
            num_pauses: Mutex::default(),
            is_asleep: AtomicBool::new(false),
            chaos,
            house: House::default(),
            progress: Progress::default(),
            hangs: HangCounts::default(),
            breaker: Mutex::new(Breaker::new(CANARY_LIMIT)),
            canary_wanted: Notify::new(),
            is_stopped: AtomicBool::new(false),
            started: Instant::now(),
            config,
        }
    }

    /// Actors die more often than is tolerated: no clients until a canary was served.
    pub fn trip_breaker(&self) {
        self.breaker.lock().trip(self.now());
        self.canary_wanted.notify_one();
    }

    /// An actor was found to hang, by order of chaos or not.
    pub(super) fn hung(&self, role: Role, is_ordered: bool) {
        self.metrics.hung(role.as_str());
        self.hangs.actors.fetch_add(1, Ordering::Relaxed);
        self.hangs.unordered.fetch_add(u64::from(!is_ordered), Ordering::Relaxed);
    }

    /// A step was found to hang.
    pub(super) fn step_hung(&self) {
        self.metrics.hung("step");
        self.hangs.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Nobody is watched or tried any more.
    pub fn stop_watching(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.canary_wanted.notify_one();
    }

    /// Time since the system started. The one clock of all shells.
    pub fn now(&self) -> Micros {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("config", &self.config).finish_non_exhaustive()
    }
}
