//! The operations of a plan.

use std::ops::Range;

use super::{BlockIds, KvCacheManager, coordinator::last_blocks, tails::Tail};
use crate::logic::{
    kv_cache::{
        allocation::{AllocateOp, AllocationOp, AllocationResult, PlanError},
        block_pool::{BlockKey, NULL_BLOCK},
        hashes::BlockHash,
    },
    planted::{Bug, planted},
    request::ids::{BlockId, RequestId, Step},
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
    /// In the order of the table. The tail's blocks are the last ones.
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
                self.free(*request, discard.as_deref().map(Vec::as_slice), step);
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
                self.allocate(op, found, step)
            }
            AllocationOp::Touch { request, block_hashes, max_tokens } => {
                self.touch(*request, block_hashes, *max_tokens);
                Ok(AllocationResult::Touched)
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
        let of_tail =
            tail.as_ref().and_then(|tail| tail.num_tokens(num_hits, max_tokens, block_size));
        let Some((tail, of_tail)) = tail.zip(of_tail) else {
            return Found { blocks, num_full: num_hits, tail: None, num_tokens };
        };
        for (group, &block) in tail.blocks.iter().enumerate() {
            blocks.list(group).push(block);
        }
        let num_tokens = num_tokens + of_tail;
        let Some(&hash) = hashes.get(num_hits).filter(|_| of_tail == block_size) else {
            return Found { blocks, num_full: num_hits, tail: Some(tail), num_tokens };
        };
        // The tail became full, and the crash came before it was sealed.
        self.tails.drop_kept(request);
        for (group, &block) in tail.blocks.iter().enumerate() {
            self.pool.cache_block(block, hash, group);
            self.seals.seal(block, BlockKey::new(&hash, group));
        }
        Found { blocks, num_full: num_hits + 1, tail: None, num_tokens }
    }

    /// Puts the free blocks that a lookup would find behind all other free blocks. As after a free,
    /// the head of the chain is the last of them.
    fn touch(&mut self, request: RequestId, hashes: &[BlockHash], max_tokens: usize) {
        let (found, _) = self.groups.longest_hit(&self.pool, hashes, max_tokens);
        // It cannot be used without the block before it, so it goes first.
        let tail = self.tails.kept(request).map(|tail| tail.blocks).unwrap_or_default();
        tail.into_iter().for_each(|block| self.reuse_last(block));
        for list in found.lists() {
            for &block in list.iter().rev().filter(|block| **block != NULL_BLOCK) {
                self.reuse_last(block);
            }
        }
    }

    fn reuse_last(&mut self, block: BlockId) {
        if self.pool.ref_cnt(block) == 0 {
            self.pool.reuse_last(block);
        }
    }

    fn free(&mut self, request: RequestId, discard: Option<&[BlockHash]>, step: Step) {
        self.tails.drop_kept(request);
        let table = self.tables.remove(&request);
        if let Some(hashes) = discard {
            self.discard(hashes, table.as_ref());
        }
        let Some(table) = table else { return };
        if table.tail.is_some() {
            self.tails.gone(request);
        }
        for block in table.blocks.iter() {
            // The blocks that the current plan's step should fill for this request will not be
            // computed.
            if self.seals.is_filled_by(block, step) {
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

    /// Evicts all blocks with these hashes, because the content of some of them is not finite. The
    /// request whose result showed this held the blocks of `table`. Windows and states have passed
    /// others: those are no longer in the table. Other requests may have written copies of them.
    fn discard(&mut self, hashes: &[BlockHash], table: Option<&Table>) {
        if planted(Bug::KeepPassedGarbage) {
            let held = table.into_iter().flat_map(|table| table.blocks.iter());
            held.for_each(|block| self.pool.evict(block));
            return;
        }
        for group in 0..self.groups.num_groups() {
            for hash in hashes {
                while let Some(block) = self.pool.get_cached_block(hash, group) {
                    self.pool.evict(block);
                }
            }
        }
    }

    pub(super) fn free_table(&mut self, table: &Table) {
        table.blocks.lists().iter().for_each(|blocks| self.pool.free_blocks(blocks));
    }

    fn validate(
        &self,
        op: &AllocateOp,
        table: Option<&Table>,
        found: &Found,
    ) -> Result<(), PlanError> {
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

    fn allocate(
        &mut self,
        op: &AllocateOp,
        found: Found,
        step: Step,
    ) -> Result<AllocationResult, PlanError> {
        let table = self.tables.get(&op.request);
        self.validate(op, table, &found)?;
        let Found { blocks: hits, num_full, tail, .. } = found;
        let held = table.map(|table| &table.blocks);
        let passed = held.map(|held| self.groups.passed(&self.seals, held, op.num_settled_tokens));
        let passed = passed.unwrap_or_default();
        if !self.has_room(op, held.unwrap_or(&hits), &hits, &passed) {
            return Ok(AllocationResult::Refused);
        }
        match &tail {
            Some(_) => self.tails.adopt(op.request),
            None => self.tails.drop_kept(op.request),
        }
        let table = self.tables.entry(op.request).or_default();
        for (group, passed) in passed.into_iter().enumerate().filter(|(_, it)| !it.is_empty()) {
            let blocks = &mut table.blocks.list(group)[passed];
            self.pool.free_blocks(blocks);
            blocks.fill(NULL_BLOCK);
        }
        hits.lists().iter().for_each(|blocks| self.pool.touch(blocks));
        table.blocks.append(&hits);
        table.num_registered += num_full;
        table.tail = table.tail.take().or(tail);
        let mut block_ids = hits;
        for group in 0..self.groups.num_groups() {
            let (pool, table) = (&mut self.pool, &mut table.blocks);
            let new_blocks = self.groups.take_new_blocks(pool, group, op.num_tokens, table);
            if !new_blocks.is_empty() {
                new_blocks.iter().for_each(|&block| self.tails.handed_out(block));
                block_ids.list(group).extend_from_slice(new_blocks);
            }
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
                self.seals.complete(step, |block| self.pool.key_of(block));
            }
        }
        if let Some(tail) = table.new_tail(op) {
            table.tail = Some(tail.clone());
            self.tails.moved(op.request, tail);
        }
        Ok(AllocationResult::Allocated { block_ids })
    }

    /// Returns whether there are enough free blocks for `op`. Its request holds the blocks `held`
    /// and frees the `passed` ones of them, or it has no table yet and is given `hits`.
    fn has_room(
        &self,
        op: &AllocateOp,
        held: &BlockIds,
        hits: &BlockIds,
        passed: &[Range<usize>],
    ) -> bool {
        let is_free = |block: &BlockId| *block != NULL_BLOCK && self.pool.ref_cnt(*block) == 0;
        let num_free_hits = hits.iter().filter(is_free).count();
        let num_wanted = self.groups.num_wanted(op, held) + num_free_hits;
        // A table that need not grow is never refused, however full the cache is.
        if num_wanted == 0 {
            return true;
        }
        let of_group = |(blocks, passed): (&Vec<BlockId>, &Range<usize>)| {
            blocks[passed.clone()].iter().filter(|block| self.pool.ref_cnt(**block) == 1).count()
        };
        let num_freed: usize = held.lists().iter().zip(passed).map(of_group).sum();
        num_wanted + op.spare_blocks <= self.pool.num_free() + num_freed
    }
}

impl Table {
    /// Returns the tail after `op`, if it has changed.
    fn new_tail(&self, op: &AllocateOp) -> Option<Tail> {
        let caught_up_at = match &self.tail {
            Some(tail) if tail.is_end_of(&self.blocks) => return None,
            Some(tail) => tail.caught_up_at,
            None => op.catches_up.then_some(op.num_tokens)?,
        };
        let (index, blocks) = last_blocks(&self.blocks)?;
        Some(Tail { blocks, index, caught_up_at })
    }
}
