//! What all shells of one actor system share: addresses, the ledger's store, the vault, the sinks.
//! It is owned by the root, so no actor's death touches it.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{config::SystemConfig, directory::Directory, metrics::SystemMetrics, sink::SinkTable};
use crate::{
    logic::{
        block_hash::BlockHash,
        ids::{BlockId, Micros},
        kv_cache::DirectoryUpdate,
        ledger::Ledger,
    },
    ports::{ExecutorFactory, TextCodec},
};

/// Shared by all shells of one actor system.
pub struct Context {
    /// Settings.
    pub config: SystemConfig,
    /// Addresses.
    pub directory: Directory,
    /// The ledger's store.
    pub ledger: Mutex<Ledger>,
    /// Weights and KV cache.
    pub vault: Vault,
    /// The text side.
    pub codec: Arc<dyn TextCodec>,
    /// Where clients wait.
    pub sinks: SinkTable,
    /// What is counted.
    pub metrics: SystemMetrics,
    /// The last step planned: a new scheduler counts on.
    pub last_step: AtomicU64,
    started: Instant,
}

/// What outlives every worker and KV cache manager: the executors' factory, which holds weights and
/// KV arena, and the directory of blocks whose content is complete.
pub struct Vault {
    /// Makes executors over the weights and the arena.
    pub executors: Arc<dyn ExecutorFactory>,
    blocks: Mutex<BTreeMap<BlockId, BlockHash>>,
}

impl Vault {
    /// A vault whose KV cache is empty.
    #[must_use]
    pub fn new(executors: Arc<dyn ExecutorFactory>) -> Self {
        Self { executors, blocks: Mutex::new(BTreeMap::new()) }
    }

    /// Keeps the block directory true.
    pub fn update_blocks(&self, updates: impl IntoIterator<Item = DirectoryUpdate>) {
        let mut blocks = self.blocks.lock();
        for update in updates {
            match update {
                DirectoryUpdate::Sealed { block, hash } => {
                    blocks.insert(block, hash);
                }
                DirectoryUpdate::Evicted { block } => {
                    blocks.remove(&block);
                }
            }
        }
    }

    /// The blocks whose content is complete.
    #[must_use]
    pub fn sealed_blocks(&self) -> Vec<(BlockId, BlockHash)> {
        self.blocks.lock().iter().map(|(&block, &hash)| (block, hash)).collect()
    }
}

impl Context {
    /// The shared part of a new system.
    pub fn new(
        config: SystemConfig,
        executors: Arc<dyn ExecutorFactory>,
        codec: Arc<dyn TextCodec>,
    ) -> Self {
        let (inputs, shards) =
            (config.num_input_processors.max(1), config.num_egress_shards.max(1));
        Self {
            directory: Directory::new(inputs, shards),
            ledger: Mutex::new(Ledger::new(config.max_num_requests, shards)),
            vault: Vault::new(executors),
            codec,
            sinks: SinkTable::default(),
            metrics: SystemMetrics::new(&config.model_name, &config.engine),
            last_step: AtomicU64::new(0),
            started: Instant::now(),
            config,
        }
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
