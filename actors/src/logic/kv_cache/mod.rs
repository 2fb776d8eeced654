//! The KV cache manager: block tables of requests, prefix hits, and what survives a crash. It
//! knows blocks, never policy: a plan says what to do, and the manager says whether it fits.

mod seals;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::seals::DirectoryUpdate;
use self::seals::Seals;
use super::{
    allocation::{
        AllocateOp, Allocation, AllocationOp, AllocationPlan, AllocationResult, PlanError,
    },
    block_hash::BlockHash,
    block_pool::{BlockPool, KvCacheEvent, NULL_BLOCK},
    ids::{BlockId, Epoch, RequestId, Step},
};
use crate::fault::{Bug, planted};

/// The size of a KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvCacheConfig {
    /// Blocks, the null block among them.
    pub num_blocks: u32,
    /// Tokens a block holds, at least 1.
    pub block_size: usize,
    /// Whether [`KvCacheManager::take_events`] gives anything.
    pub enable_events: bool,
}

/// One request's blocks.
#[derive(Debug, Clone, Default)]
struct Table {
    blocks: Vec<BlockId>,
    /// So many blocks from the first on were hit or registered.
    num_registered: usize,
}

/// Owns all block tables of one engine.
#[derive(Debug, Clone)]
pub struct KvCacheManager {
    config: KvCacheConfig,
    epoch: Epoch,
    pool: BlockPool,
    tables: BTreeMap<RequestId, Table>,
    seals: Seals,
    /// What the last `Lookup` found; used by the `Allocate` right after it.
    looked_up: Option<(RequestId, Vec<BlockId>)>,
}

impl KvCacheManager {
    /// An empty cache.
    #[must_use]
    pub fn new(config: KvCacheConfig) -> Self {
        Self {
            epoch: Epoch::default(),
            pool: BlockPool::new(config.num_blocks, config.block_size, config.enable_events),
            tables: BTreeMap::new(),
            seals: Seals::new(config.num_blocks),
            looked_up: None,
            config,
        }
    }

    /// A cache whose sealed blocks survived: free, and hits for whoever shares their content, the
    /// last of `directory` being reused last. Entries that name no usable block are left out.
    #[must_use]
    pub fn from_directory(config: KvCacheConfig, directory: &[(BlockId, BlockHash)]) -> Self {
        let mut manager = Self::new(config);
        for &(block, hash) in directory {
            let is_usable = block != NULL_BLOCK && block < config.num_blocks;
            if is_usable && manager.pool.hash_of(block).is_none() {
                manager.pool.cache_block(block, hash);
                // Taking it and giving it back moves it to the end of the free queue.
                manager.pool.touch(&[block]);
                manager.pool.free_blocks(&[block]);
                manager.seals.restore(block);
            }
        }
        manager
    }

    /// The core was replaced: requests hold nothing any more, and what the step in flight may have
    /// left half written cannot be hit.
    pub fn begin_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.looked_up = None;
        for block in self.seals.abandon_pending() {
            self.pool.evict(block);
        }
        self.note_evictions();
        for table in std::mem::take(&mut self.tables).into_values() {
            self.pool.free_blocks(&table.blocks);
        }
    }

    /// Executes a plan up to the first refusal. A plan of a newer epoch begins that epoch.
    ///
    /// # Errors
    /// [`PlanError::Stale`]: nothing was done. [`PlanError::Invalid`]: the planner is out of step
    /// with this manager, and one of them must be replaced.
    pub fn execute(&mut self, plan: &AllocationPlan) -> Result<Allocation, PlanError> {
        if plan.epoch < self.epoch {
            return Err(PlanError::Stale { plan: plan.epoch, current: self.epoch });
        }
        if plan.epoch > self.epoch {
            self.begin_epoch(plan.epoch);
        }
        if let Some(step) = plan.completed_step {
            self.seals.complete(step, |block| self.pool.hash_of(block));
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

    /// A request's block table.
    #[must_use]
    pub fn block_ids(&self, request: RequestId) -> Option<&[BlockId]> {
        self.tables.get(&request).map(|table| table.blocks.as_slice())
    }

    /// Every block table, in order of requests.
    pub fn tables(&self) -> impl Iterator<Item = (RequestId, &[BlockId])> {
        self.tables.iter().map(|(&request, table)| (request, table.blocks.as_slice()))
    }

    /// The blocks.
    #[must_use]
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// What the block directory must be told before the answer to the last plan is sent.
    pub fn drain_directory_updates(&mut self) -> Vec<DirectoryUpdate> {
        self.seals.take_updates()
    }

    /// KV events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<KvCacheEvent> {
        self.pool.take_events()
    }

    fn execute_op(&mut self, op: &AllocationOp, step: Step) -> Result<AllocationResult, PlanError> {
        // A lookup is good for the very next operation only: any other may evict what it found.
        let looked_up = self.looked_up.take();
        match op {
            AllocationOp::Free { request, discard } => {
                self.free(*request, *discard, step);
                Ok(AllocationResult::Freed)
            }
            AllocationOp::Lookup { request, block_hashes, max_tokens } => {
                let most = max_tokens / self.config.block_size;
                let hashes = block_hashes.iter().take(most);
                let hits: Vec<BlockId> =
                    hashes.map_while(|hash| self.pool.get_cached_block(hash)).collect();
                let num_tokens = hits.len() * self.config.block_size;
                self.looked_up = Some((*request, hits));
                Ok(AllocationResult::Hit { num_tokens })
            }
            AllocationOp::Allocate(op) => {
                let found = looked_up.filter(|(request, _)| *request == op.request);
                let mut hits = found.map(|(_, hits)| hits).unwrap_or_default();
                hits.truncate(op.num_hit_tokens / self.config.block_size);
                self.validate(op, &hits)?;
                Ok(self.allocate(op, &hits, step))
            }
            AllocationOp::ResetPrefixCache => {
                Ok(AllocationResult::Reset(self.pool.reset_prefix_cache()))
            }
        }
    }

    fn free(&mut self, request: RequestId, discard: bool, step: Step) {
        let Some(table) = self.tables.remove(&request) else { return };
        for &block in &table.blocks {
            // What the step now being planned was to fill for this request will not be computed.
            if discard || self.seals.is_filled_by(block, step) {
                self.pool.evict(block);
            }
        }
        self.pool.free_blocks(&table.blocks);
        if planted(Bug::DoubleFree) {
            let shared = table.blocks.iter().copied().filter(|&block| self.pool.ref_cnt(block) > 0);
            let shared: Vec<_> = shared.collect();
            self.pool.free_blocks(&shared);
        }
    }

    fn validate(&self, op: &AllocateOp, hits: &[BlockId]) -> Result<(), PlanError> {
        let block_size = self.config.block_size;
        let table = self.tables.get(&op.request);
        let registered = table.map_or(hits.len(), |table| table.num_registered);
        let what = if hits.len() * block_size != op.num_hit_tokens {
            "its hits do not follow from the operation before"
        } else if table.is_some() && !hits.is_empty() {
            "hits for a request that holds blocks"
        } else if (registered + op.full_blocks.len()) * block_size > op.num_tokens {
            "more full blocks than tokens"
        } else {
            return Ok(());
        };
        Err(PlanError::Invalid { request: op.request, what })
    }

    fn allocate(&mut self, op: &AllocateOp, hits: &[BlockId], step: Step) -> AllocationResult {
        let held = self.tables.get(&op.request).map_or(hits.len(), |table| table.blocks.len());
        let new_blocks =
            |tokens: usize| tokens.div_ceil(self.config.block_size).saturating_sub(held);
        let num_new = new_blocks(op.num_tokens);
        let num_to_fit = num_new.max(new_blocks(op.num_tokens_to_fit));
        let num_free_hits = hits.iter().filter(|&&block| self.pool.ref_cnt(block) == 0).count();
        let num_wanted = num_to_fit + num_free_hits + op.spare_blocks;
        // A table that need not grow is never refused, however full the cache is.
        if num_to_fit + num_free_hits > 0 && num_wanted > self.pool.num_free() {
            return AllocationResult::Refused;
        }
        let table = self.tables.entry(op.request).or_default();
        let before = table.blocks.len();
        self.pool.touch(hits);
        table.blocks.extend_from_slice(hits);
        table.num_registered += hits.len();
        self.pool.get_new_blocks(num_new, &mut table.blocks);
        // Before the new ones are registered: one of them may just have lost an older content.
        for block in self.pool.drain_evicted() {
            self.seals.evicted(block);
        }
        register(&mut self.pool, &mut self.seals, table, op, step);
        AllocationResult::Allocated { block_ids: table.blocks[before..].to_vec() }
    }

    fn note_evictions(&mut self) {
        for block in self.pool.drain_evicted() {
            self.seals.evicted(block);
        }
    }
}

fn register(
    pool: &mut BlockPool,
    seals: &mut Seals,
    table: &mut Table,
    op: &AllocateOp,
    step: Step,
) {
    if op.full_blocks.is_empty() {
        return;
    }
    let first = table.num_registered;
    let parent = first.checked_sub(1).and_then(|last| pool.hash_of(table.blocks[last]));
    let blocks = &table.blocks[first..first + op.full_blocks.len()];
    pool.cache_full_blocks(blocks, &op.full_blocks, parent);
    blocks.iter().for_each(|&block| seals.fill(block, step));
    if planted(Bug::SealTooEarly) {
        seals.complete(step, |block| pool.hash_of(block));
    }
    table.num_registered += op.full_blocks.len();
}
