//! The operations of a plan.

use super::{BlockIds, KvCacheManager, ONLY_GROUP, coordinator::last_block, tails::Tail};
use crate::logic::{
    kv_cache::{
        allocation::{AllocateOp, AllocationOp, AllocationResult, PlanError},
        hashes::BlockHash,
    },
    planted::{Bug, planted},
    request::ids::{RequestId, Step},
};

/// One request's blocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    pub(super) blocks: BlockIds,
    /// Number of blocks of each group, from the first one, that were hit or registered.
    num_registered: usize,
    /// Set once the request has caught up. The directory knows the tail.
    pub(super) tail: Option<Tail>,
}

/// The result of a `Lookup`.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// In the order of the table. The tail's block is the last one.
    blocks: BlockIds,
    /// Number of full blocks of each group.
    num_full: usize,
    /// Set only for a partial tail. A full one is a hit like other blocks.
    tail: Option<Tail>,
    num_tokens: usize,
}

impl KvCacheManager {
    pub(super) fn execute_op(
        &mut self,
        op: &AllocationOp,
        step: Step,
    ) -> Result<AllocationResult, PlanError> {
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
        let block_size = self.block_size;
        let (mut blocks, num_hits) = self.groups.longest_hit(&self.pool, hashes, max_tokens);
        let num_tokens = num_hits * block_size;
        let of_tail = tail.and_then(|tail| tail.num_tokens(num_hits, max_tokens, block_size));
        let Some((tail, of_tail)) = tail.zip(of_tail) else {
            return Found { blocks, num_full: num_hits, tail: None, num_tokens };
        };
        blocks.list(ONLY_GROUP).push(tail.block);
        let num_tokens = num_tokens + of_tail;
        let Some(&hash) = hashes.get(num_hits).filter(|_| of_tail == block_size) else {
            return Found { blocks, num_full: num_hits, tail: Some(tail), num_tokens };
        };
        // The tail became full, and the crash came before it was sealed.
        self.tails.drop_kept(request);
        self.pool.cache_block(tail.block, hash, ONLY_GROUP);
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

    pub(super) fn free_table(&mut self, table: &Table) {
        table.blocks.lists().iter().for_each(|blocks| self.pool.free_blocks(blocks));
    }

    fn validate(&self, op: &AllocateOp, found: &Found) -> Result<(), PlanError> {
        let table = self.tables.get(&op.request);
        let registered = table.map_or(found.num_full, |table| table.num_registered);
        let what = if found.num_tokens != op.num_hit_tokens {
            "its hits do not follow from the operation before"
        } else if table.is_some() && found.num_tokens > 0 {
            "hits for a request that holds blocks"
        } else if (registered + op.full_blocks.len()) * self.block_size > op.num_tokens {
            "more full blocks than tokens"
        } else {
            return Ok(());
        };
        Err(PlanError::Invalid { request: op.request, what })
    }

    fn allocate(&mut self, op: &AllocateOp, found: &Found, step: Step) -> AllocationResult {
        let hits = &found.blocks;
        let held = self.tables.get(&op.request).map_or(hits, |table| &table.blocks);
        let num_to_fit = self.groups.num_new_blocks(op.num_tokens.max(op.num_tokens_to_fit), held);
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
        hits.lists().iter().for_each(|blocks| self.pool.touch(blocks));
        table.blocks.append(hits);
        table.num_registered += found.num_full;
        table.tail = table.tail.or(found.tail);
        let mut block_ids = hits.clone();
        self.groups.take_new_blocks(&mut self.pool, op.num_tokens, &table.blocks, &mut block_ids);
        for (group, blocks) in block_ids.lists().iter().enumerate() {
            let new_blocks = &blocks[hits.group(group).len()..];
            new_blocks.iter().for_each(|&block| self.tails.handed_out(block));
            table.blocks.list(group).extend_from_slice(new_blocks);
        }
        // This comes before the new blocks are registered, because one of them may just have lost
        // older content.
        for block in self.pool.drain_evicted() {
            self.seals.evicted(block);
        }
        if !op.full_blocks.is_empty() {
            let stores = (&mut self.pool, &mut self.seals);
            let first = table.num_registered;
            self.groups.register(stores, &table.blocks, first, &op.full_blocks, step);
            table.num_registered += op.full_blocks.len();
            if planted(Bug::SealTooEarly) {
                self.seals.complete(step, |block| self.pool.hash_of(block));
            }
        }
        if let Some(tail) = table.new_tail(op) {
            table.tail = Some(tail);
            self.tails.moved(op.request, tail);
        }
        AllocationResult::Allocated { block_ids }
    }
}

impl Table {
    /// Returns the tail after `op`, if it has changed.
    fn new_tail(&self, op: &AllocateOp) -> Option<Tail> {
        let begins = op.catches_up.then_some(op.num_tokens);
        let caught_up_at = self.tail.map(|tail| tail.caught_up_at).or(begins)?;
        let (index, block) = last_block(&self.blocks)?;
        let tail = Tail { block, index, caught_up_at };
        (self.tail != Some(tail)).then_some(tail)
    }
}
