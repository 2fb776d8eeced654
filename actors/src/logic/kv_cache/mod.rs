//! The KV cache manager: block tables of requests, prefix hits, and the content that survives a
//! crash. It knows blocks but no policy: a plan lists operations, and the manager reports whether
//! they fit.

mod block_ids;
mod demand;
mod directory;
mod seals;
mod tails;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::{
    block_ids::BlockIds,
    demand::{Demand, Growth, Held},
    directory::{BlockDirectory, DirectoryUpdate},
    tails::Tail,
};
use self::{seals::Seals, tails::Tails};
use super::{
    allocation::{
        AllocateOp, Allocation, AllocationOp, AllocationPlan, AllocationResult, PlanError,
    },
    block_hash::BlockHash,
    block_pool::{BlockPool, NULL_BLOCK},
    ids::{BlockId, Epoch, RequestId, Step},
};
use crate::logic::planted::{Bug, planted};

/// The size of a KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvCacheConfig {
    /// Number of blocks, including the null block.
    pub num_blocks: u32,
    /// Number of tokens that a block holds, at least 1.
    pub block_size: usize,
}

/// One request's blocks.
#[derive(Debug, Clone, Default)]
struct Table {
    blocks: BlockIds,
    /// Number of blocks, from the first one, that were hit or registered.
    num_registered: usize,
    /// Set once the request has caught up. The directory knows the tail.
    tail: Option<Tail>,
}

/// The result of a `Lookup`.
#[derive(Debug, Clone, Default)]
struct Found {
    /// In the order of the table. The tail's block is the last one.
    blocks: BlockIds,
    /// Number of full blocks in each group.
    num_full: usize,
    /// Set only for a partial tail. A full one is a hit like other blocks.
    tail: Option<Tail>,
    num_tokens: usize,
}

/// Owns all block tables of one engine.
#[derive(Debug, Clone)]
pub struct KvCacheManager {
    config: KvCacheConfig,
    epoch: Epoch,
    pool: BlockPool,
    tables: BTreeMap<RequestId, Table>,
    seals: Seals,
    tails: Tails,
    /// The result of the last `Lookup`. Only the `Allocate` right after it uses the result.
    looked_up: Option<(RequestId, Found)>,
}

impl KvCacheManager {
    /// Returns the manager of an empty cache.
    #[must_use]
    pub fn new(config: KvCacheConfig) -> Self {
        Self {
            epoch: Epoch::default(),
            pool: BlockPool::new(config.num_blocks),
            tables: BTreeMap::new(),
            seals: Seals::new(config.num_blocks),
            tails: Tails::default(),
            looked_up: None,
            config,
        }
    }

    /// Returns the manager of `epoch` for a cache whose sealed blocks and tails survived. They are
    /// free. A sealed block is a hit for every request that shares its content, a tail only for its
    /// own request. The last of `sealed` is reused last, and tails are reused after all of
    /// `sealed`. Entries that name no usable block are left out.
    #[must_use]
    pub fn from_directory(
        config: KvCacheConfig,
        epoch: Epoch,
        sealed: impl IntoIterator<Item = (BlockId, BlockHash)>,
        tails: impl IntoIterator<Item = (RequestId, Tail)>,
    ) -> Self {
        let mut manager = Self { epoch, ..Self::new(config) };
        for (block, hash) in sealed {
            if manager.is_usable(block) && manager.pool.hash_of(block).is_none() {
                manager.pool.cache_block(block, hash);
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
            let is_open = self.is_usable(tail.block) && self.pool.hash_of(tail.block).is_none();
            if is_open && self.tails.keep(request, tail) {
                self.pool.reuse_last(tail.block);
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
        block != NULL_BLOCK && block < self.config.num_blocks
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
    pub fn held_tails(&self) -> impl Iterator<Item = (RequestId, Tail)> {
        self.tables.iter().filter_map(|(&request, table)| Some((request, table.tail?)))
    }

    /// Returns the tails of the last epoch that wait for their requests, in order of requests.
    pub fn kept_tails(&self) -> impl Iterator<Item = (RequestId, Tail)> {
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

    fn execute_op(&mut self, op: &AllocationOp, step: Step) -> Result<AllocationResult, PlanError> {
        // The result of a lookup is valid only for the next operation, because any other operation
        // may evict the blocks.
        let looked_up = self.looked_up.take();
        match op {
            AllocationOp::Free { request, discard } => {
                self.free(*request, *discard, step);
                Ok(AllocationResult::Freed)
            }
            AllocationOp::Lookup { request, block_hashes, max_tokens, with_tail } => {
                let tail = self.tails.kept(*request).filter(|_| *with_tail);
                let found = self.look_up(*request, block_hashes, *max_tokens, tail);
                let num_tokens = found.num_tokens;
                self.looked_up = Some((*request, found));
                Ok(AllocationResult::Hit { num_tokens })
            }
            AllocationOp::Allocate(op) => {
                let found = looked_up.filter(|(request, _)| *request == op.request);
                let found = found.filter(|_| op.num_hit_tokens > 0);
                let found = found.map(|(_, found)| found).unwrap_or_default();
                self.validate(op, &found)?;
                Ok(self.allocate(op, &found, step))
            }
            AllocationOp::ResetPrefixCache => {
                let is_done = self.pool.reset_prefix_cache();
                if is_done {
                    self.tails.clear();
                }
                Ok(AllocationResult::Reset(is_done))
            }
        }
    }

    /// Returns the cached blocks of the first `max_tokens` tokens, and the request's tail if it
    /// continues them. A lookup asks for all tokens except the last. If the request had caught up,
    /// all of these were computed.
    fn look_up(
        &mut self,
        request: RequestId,
        hashes: &[BlockHash],
        max_tokens: usize,
        tail: Option<Tail>,
    ) -> Found {
        let block_size = self.config.block_size;
        let full = hashes.iter().take(max_tokens / block_size);
        let mut blocks: Vec<BlockId> =
            full.map_while(|hash| self.pool.get_cached_block(hash)).collect();
        let num_hits = blocks.len();
        let num_tokens = num_hits * block_size;
        let of_tail = tail.and_then(|tail| tail.num_tokens(num_hits, max_tokens, block_size));
        let Some((tail, of_tail)) = tail.zip(of_tail) else {
            return Found { blocks: blocks.into(), num_full: num_hits, tail: None, num_tokens };
        };
        blocks.push(tail.block);
        let (blocks, num_tokens) = (blocks.into(), num_tokens + of_tail);
        let Some(&hash) = hashes.get(num_hits).filter(|_| of_tail == block_size) else {
            return Found { blocks, num_full: num_hits, tail: Some(tail), num_tokens };
        };
        // The tail became full, and the crash came before it was sealed.
        self.tails.drop_kept(request);
        self.pool.cache_block(tail.block, hash);
        self.seals.seal(tail.block, hash);
        Found { blocks, num_full: num_hits + 1, tail: None, num_tokens }
    }

    fn free(&mut self, request: RequestId, discard: bool, step: Step) {
        self.tails.drop_kept(request);
        let Some(table) = self.tables.remove(&request) else { return };
        if table.tail.is_some() {
            self.tails.gone(request);
        }
        for block in table.blocks.iter() {
            // The blocks that the current plan's step should fill for this request will not be
            // computed.
            if discard || self.seals.is_filled_by(block, step) {
                self.pool.evict(block);
            }
        }
        self.free_table(&table);
        if planted(Bug::DoubleFree) {
            let shared = table.blocks.iter().filter(|&block| self.pool.ref_cnt(block) > 0);
            let shared: Vec<_> = shared.collect();
            self.pool.free_blocks(&shared);
        }
    }

    fn free_table(&mut self, table: &Table) {
        table.blocks.lists().iter().for_each(|blocks| self.pool.free_blocks(blocks));
    }

    fn validate(&self, op: &AllocateOp, found: &Found) -> Result<(), PlanError> {
        let block_size = self.config.block_size;
        let table = self.tables.get(&op.request);
        let registered = table.map_or(found.num_full, |table| table.num_registered);
        let what = if found.num_tokens != op.num_hit_tokens {
            "its hits do not follow from the operation before"
        } else if table.is_some() && found.num_tokens > 0 {
            "hits for a request that holds blocks"
        } else if (registered + op.full_blocks.len()) * block_size > op.num_tokens {
            "more full blocks than tokens"
        } else {
            return Ok(());
        };
        Err(PlanError::Invalid { request: op.request, what })
    }

    fn allocate(&mut self, op: &AllocateOp, found: &Found, step: Step) -> AllocationResult {
        let hits = &found.blocks;
        let held = self.tables.get(&op.request).map_or(hits, |table| &table.blocks);
        let num_held = held.group(0).len();
        let new_blocks =
            |tokens: usize| tokens.div_ceil(self.config.block_size).saturating_sub(num_held);
        let num_new = new_blocks(op.num_tokens);
        let num_to_fit = num_new.max(new_blocks(op.num_tokens_to_fit));
        let num_free_hits = hits.iter().filter(|&block| self.pool.ref_cnt(block) == 0).count();
        let num_wanted = num_to_fit + num_free_hits + op.spare_blocks;
        // A table that need not grow is never refused, however full the cache is.
        if num_to_fit + num_free_hits > 0 && num_wanted > self.pool.num_free() {
            return AllocationResult::Refused;
        }
        match found.tail {
            Some(_) => self.tails.adopt(op.request),
            None => self.tails.drop_kept(op.request),
        }
        let table = self.tables.entry(op.request).or_default();
        self.pool.touch(hits.group(0));
        table.num_registered += found.num_full;
        table.tail = table.tail.or(found.tail);
        let mut block_ids = hits.clone();
        self.pool.get_new_blocks(num_new, block_ids.list(0));
        let new_blocks = &block_ids.group(0)[hits.group(0).len()..];
        new_blocks.iter().for_each(|&block| self.tails.handed_out(block));
        table.blocks.append(&block_ids);
        // This comes before the new blocks are registered, because one of them may just have lost
        // older content.
        for block in self.pool.drain_evicted() {
            self.seals.evicted(block);
        }
        register(&mut self.pool, &mut self.seals, table, op, step);
        if let Some(tail) = table.new_tail(op) {
            table.tail = Some(tail);
            self.tails.moved(op.request, tail);
        }
        AllocationResult::Allocated { block_ids }
    }

    fn note_evictions(&mut self) {
        for block in self.pool.drain_evicted() {
            self.seals.evicted(block);
        }
    }
}

impl Table {
    /// Returns the tail after `op`, if it has changed.
    fn new_tail(&self, op: &AllocateOp) -> Option<Tail> {
        let begins = op.catches_up.then_some(op.num_tokens);
        let caught_up_at = self.tail.map(|tail| tail.caught_up_at).or(begins)?;
        let blocks = self.blocks.group(0);
        let (index, &block) = blocks.iter().enumerate().next_back()?;
        let tail = Tail { block, index, caught_up_at };
        (self.tail != Some(tail)).then_some(tail)
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
    for (&block, &hash) in table.blocks.group(0)[first..].iter().zip(&op.full_blocks) {
        pool.cache_block(block, hash);
        seals.fill(block, step);
    }
    if planted(Bug::SealTooEarly) {
        seals.complete(step, |block| pool.hash_of(block));
    }
    table.num_registered += op.full_blocks.len();
}
