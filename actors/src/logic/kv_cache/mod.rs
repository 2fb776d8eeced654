//! The KV cache manager: block tables of requests, prefix hits, and the content that survives a
//! crash. It knows blocks but no policy: a plan lists operations, and the manager reports whether
//! they fit.

pub mod allocation;
mod block_ids;
pub mod block_pool;
mod chunked;
mod coordinator;
mod demand;
mod directory;
mod full;
pub mod hashes;
mod kept;
mod operations;
mod seals;
mod sliding;
mod spec;
mod state;
mod tails;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::{
    allocation::{Allocation, AllocationPlan, AllocationResult, PlanError},
    block_pool::{BlockKey, BlockPool, NULL_BLOCK},
    coordinator::Coordinator,
    operations::{Found, Table},
    seals::Seals,
    tails::Tails,
};
pub use self::{
    block_ids::BlockIds,
    demand::{Demand, Growth, Held},
    directory::{BlockDirectory, DirectoryUpdate},
    kept::{Adoption, KeptBlocks, KeptLayout, KeptWriter, Store, Unusable},
    spec::{KvGroup, KvKind, KvSpec},
    tails::Tail,
};
use super::request::ids::{BlockId, Epoch, RequestId};

/// The size of a KV cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvCacheConfig {
    /// Number of blocks, including the null block.
    pub num_blocks: u32,
    /// Largest number of tokens that all planned steps together compute of one request.
    pub num_step_tokens: usize,
    /// The content.
    pub spec: KvSpec,
}

/// Owns all block tables of one engine.
#[derive(Debug, Clone)]
pub struct KvCacheManager {
    num_blocks: u32,
    block_size: usize,
    epoch: Epoch,
    pool: BlockPool,
    groups: Coordinator,
    tables: BTreeMap<RequestId, Table>,
    seals: Seals,
    tails: Tails,
    /// The result of the last `Lookup`. Only the `Allocate` right after it uses the result.
    looked_up: Option<(RequestId, Found)>,
}

impl KvCacheManager {
    /// Returns the manager of an empty cache.
    #[must_use]
    pub fn new(config: &KvCacheConfig) -> Self {
        Self {
            num_blocks: config.num_blocks,
            block_size: config.spec.block_size,
            epoch: Epoch::default(),
            pool: BlockPool::new(config.num_blocks),
            groups: Coordinator::new(config),
            tables: BTreeMap::new(),
            seals: Seals::new(config.num_blocks),
            tails: Tails::default(),
            looked_up: None,
        }
    }

    /// Returns the manager of `epoch` for a cache whose sealed blocks and tails survived. They are
    /// free. A sealed block is a hit for every request that shares its content, a tail only for its
    /// own request. The last of `sealed` is reused last, and tails are reused after all of
    /// `sealed`. Entries that name no usable block are left out.
    #[must_use]
    pub fn from_directory(
        config: &KvCacheConfig,
        epoch: Epoch,
        sealed: impl IntoIterator<Item = (BlockId, BlockKey)>,
        tails: impl IntoIterator<Item = (RequestId, Tail)>,
    ) -> Self {
        let mut manager = Self { epoch, ..Self::new(config) };
        for (block, key) in sealed {
            if manager.is_usable(block) && manager.pool.hash_of(block).is_none() {
                manager.pool.cache_block(block, key.hash(), key.group());
                manager.pool.reuse_last(block);
                manager.seals.restore(block);
            }
        }
        manager.keep_tails(tails);
        manager
    }

    /// Returns the epoch that the manager serves.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Continues in a new epoch. The manager must have lived on, and the block directory must have
    /// received all of its updates. Requests no longer hold blocks. Blocks that steps in flight may
    /// have left half written cannot be hit. The directory's `tails` wait for their requests. The
    /// cost depends on the blocks that requests held, not on the cached blocks.
    pub fn continue_in(
        &mut self,
        epoch: Epoch,
        tails: impl IntoIterator<Item = (RequestId, Tail)>,
    ) {
        // The directory decides which tails are worth keeping.
        self.tails = Tails::default();
        self.tables.values_mut().for_each(|table| table.tail = None);
        self.begin_epoch(epoch);
        self.keep_tails(tails);
    }

    fn keep_tails(&mut self, tails: impl IntoIterator<Item = (RequestId, Tail)>) {
        for (request, tail) in tails {
            // A block that was sealed since need not be kept, because every request can hit it.
            let blocks = tail.blocks.clone();
            let is_open =
                |&block: &BlockId| self.is_usable(block) && self.pool.hash_of(block).is_none();
            if blocks.iter().all(is_open) && self.tails.keep(request, tail) {
                blocks.iter().for_each(|&block| self.pool.reuse_last(block));
            } else {
                self.tails.gone(request);
            }
        }
    }

    /// Begins an epoch, because the core was replaced. Requests no longer hold blocks. Blocks that
    /// steps in flight may have left half written cannot be hit. No tail is kept: only callers that
    /// know the live requests may keep tails.
    fn begin_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.looked_up = None;
        for block in self.seals.abandon_pending() {
            self.pool.evict(block);
        }
        self.note_evictions();
        self.tails.clear();
        for (request, table) in std::mem::take(&mut self.tables) {
            self.free_table(&table);
            if table.tail.is_some() {
                self.tails.gone(request);
            }
        }
    }

    fn is_usable(&self, block: BlockId) -> bool {
        block != NULL_BLOCK && block < self.num_blocks
    }

    /// Executes a plan up to the first operation that does not fit, and returns the results. A plan
    /// of a newer epoch begins that epoch.
    ///
    /// # Errors
    /// [`PlanError::Stale`] if the plan is of a past epoch. It changes nothing.
    /// [`PlanError::Invalid`] if the planner and this manager disagree. One of them must be
    /// replaced.
    pub fn execute(&mut self, plan: &AllocationPlan) -> Result<Allocation, PlanError> {
        if plan.epoch < self.epoch {
            return Err(PlanError::Stale { plan: plan.epoch, current: self.epoch });
        }
        if plan.epoch > self.epoch {
            self.begin_epoch(plan.epoch);
        }
        if let Some(step) = plan.completed_step {
            self.seals.complete(step, |block| self.pool.key_of(block));
        }
        let mut results = Vec::with_capacity(plan.ops.len());
        for op in &plan.ops {
            let result = self.execute_op(op, plan.step)?;
            self.note_evictions();
            let refused = result == AllocationResult::Refused;
            results.push(result);
            if refused {
                break;
            }
        }
        Ok(Allocation {
            epoch: plan.epoch,
            step: plan.step,
            round: plan.round,
            results,
            num_free_blocks: self.pool.num_free(),
            usage: self.pool.usage(),
        })
    }

    /// Returns a request's block table.
    #[must_use]
    pub fn block_ids(&self, request: RequestId) -> Option<&BlockIds> {
        self.tables.get(&request).map(|table| &table.blocks)
    }

    /// Returns every block table, in order of requests.
    pub fn tables(&self) -> impl Iterator<Item = (RequestId, &BlockIds)> {
        self.tables.iter().map(|(&request, table)| (request, &table.blocks))
    }

    /// Returns the tails at the ends of tables, in order of requests.
    pub fn held_tails(&self) -> impl Iterator<Item = (RequestId, &Tail)> {
        self.tables.iter().filter_map(|(&request, table)| Some((request, table.tail.as_ref()?)))
    }

    /// Returns the tails of the last epoch that wait for their requests, in order of requests.
    pub fn kept_tails(&self) -> impl Iterator<Item = (RequestId, &Tail)> {
        self.tails.iter()
    }

    /// Returns the block pool.
    #[must_use]
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Returns the updates that the block directory must receive before the answer to the last plan
    /// is sent.
    pub fn drain_directory_updates(&mut self) -> Vec<DirectoryUpdate> {
        let mut updates = self.seals.take_updates();
        self.tails.append_updates(&mut updates);
        updates
    }

    fn note_evictions(&mut self) {
        for block in self.pool.drain_evicted() {
            self.seals.evicted(block);
        }
    }
}
