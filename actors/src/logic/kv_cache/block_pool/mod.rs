//! The KV cache's blocks: their references, the content that can be hit, and the order of reuse.
//!
//! A block is referenced by block tables (`ref_cnt`), or free. A free block keeps its hash and can
//! be hit until it is allocated for new content. The free queue is in order of last use. Block 0 is
//! the null block. It is never allocated, freed or hashed, and is not counted in the usage. A table
//! has it where its group no longer needs a block.

mod free_queue;
mod hash_index;

pub use self::hash_index::BlockKey;
use self::{free_queue::FreeQueue, hash_index::HashIndex};
use super::hashes::BlockHash;
use crate::logic::request::ids::BlockId;

/// The block that fills the places where a table has no block.
pub const NULL_BLOCK: BlockId = 0;

#[derive(Debug, Clone, Copy, Default)]
struct Block {
    ref_cnt: u32,
    key: Option<BlockKey>,
}

/// All blocks of one KV cache.
#[derive(Debug, Clone)]
pub struct BlockPool {
    blocks: Vec<Block>,
    free: FreeQueue,
    index: HashIndex,
    /// Blocks that lost their hash and are not reported to the owner yet.
    evicted: Vec<BlockId>,
}

impl BlockPool {
    /// Returns a pool of `num_blocks` blocks, including the null block. All are free and in order.
    #[must_use]
    pub fn new(num_blocks: u32) -> Self {
        let mut free = FreeQueue::new(num_blocks);
        (1..num_blocks).for_each(|block| free.push_back(block));
        Self {
            blocks: vec![Block::default(); num_blocks as usize],
            free,
            index: HashIndex::new(num_blocks),
            evicted: Vec::new(),
        }
    }

    /// Returns the number of free blocks.
    #[must_use]
    pub fn num_free(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of blocks for tokens.
    #[must_use]
    pub fn num_usable(&self) -> usize {
        self.blocks.len().saturating_sub(1)
    }

    /// Returns the share of the usable blocks that tables reference, in `[0, 1]`.
    #[must_use]
    pub fn usage(&self) -> f64 {
        match self.num_usable() {
            0 => 0.0,
            usable => 1.0 - self.num_free() as f64 / usable as f64,
        }
    }

    /// Returns the free blocks, the next to be reused first.
    pub fn free_block_ids(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.free.iter()
    }

    /// Returns the number of block tables that hold the block.
    #[must_use]
    pub fn ref_cnt(&self, block: BlockId) -> u32 {
        self.blocks[block as usize].ref_cnt
    }

    /// Returns the hash under which the block can be hit.
    #[must_use]
    pub fn hash_of(&self, block: BlockId) -> Option<BlockHash> {
        self.key_of(block).map(|key| key.hash())
    }

    /// Returns the hash and the group under which the block can be hit.
    #[must_use]
    pub fn key_of(&self, block: BlockId) -> Option<BlockKey> {
        self.blocks[block as usize].key
    }

    /// Returns whether the block can be hit.
    #[must_use]
    pub fn is_cached(&self, block: BlockId) -> bool {
        self.blocks[block as usize].key.is_some()
    }

    /// Returns a block with this content for a group of layers, referenced or free.
    #[must_use]
    pub fn get_cached_block(&self, hash: &BlockHash, group: usize) -> Option<BlockId> {
        self.index.get(&BlockKey::new(hash, group))
    }

    /// Appends `count` free blocks to `table` and removes their hashes. If fewer are free, changes
    /// nothing and returns false.
    pub fn get_new_blocks(&mut self, count: usize, table: &mut Vec<BlockId>) -> bool {
        if count > self.free.len() {
            return false;
        }
        table.reserve(count);
        for _ in 0..count {
            let Some(block) = self.free.pop_front() else { break };
            self.evict(block);
            self.blocks[block as usize].ref_cnt = 1;
            table.push(block);
        }
        true
    }

    /// Adds one table's reference to each of `blocks` except null blocks.
    pub fn touch(&mut self, blocks: &[BlockId]) {
        for &block in blocks.iter().filter(|block| **block != NULL_BLOCK) {
            if self.blocks[block as usize].ref_cnt == 0 {
                self.free.remove(block);
            }
            self.blocks[block as usize].ref_cnt += 1;
        }
    }

    /// Drops one table's references to `blocks` except null blocks. The tail of a chain is reused
    /// before its head, and blocks that cannot be hit before all others.
    pub fn free_blocks(&mut self, blocks: &[BlockId]) {
        for &block in blocks.iter().rev().filter(|block| **block != NULL_BLOCK) {
            let entry = &mut self.blocks[block as usize];
            assert!(entry.ref_cnt > 0, "block {block} is freed though no table holds it");
            entry.ref_cnt -= 1;
            match (entry.ref_cnt, entry.key) {
                (0, Some(_)) => self.free.push_back(block),
                (0, None) => self.free.push_front(block),
                _ => {}
            }
        }
    }

    /// Moves the free `block` behind all others that are free now.
    pub fn reuse_last(&mut self, block: BlockId) {
        self.free.remove(block);
        self.free.push_back(block);
    }

    /// Makes `block` a hit for `hash` in a group of layers from now on. The block must have no hash
    /// yet.
    pub fn cache_block(&mut self, block: BlockId, hash: BlockHash, group: usize) {
        assert!(self.blocks[block as usize].key.is_none(), "block {block} is hashed already");
        let key = BlockKey::new(&hash, group);
        self.blocks[block as usize].key = Some(key);
        self.index.insert(key, block);
    }

    /// Removes the hash of `block`: it cannot be hit. Tables that reference it keep it.
    pub fn evict(&mut self, block: BlockId) {
        if let Some(key) = self.blocks[block as usize].key.take() {
            self.index.remove(&key, block);
            self.evicted.push(block);
        }
    }

    /// Forgets every hash, unless a table references a block. Returns whether it did.
    pub fn reset_prefix_cache(&mut self) -> bool {
        if self.num_free() != self.num_usable() {
            return false;
        }
        let hashed = (1..self.blocks.len()).filter(|&block| self.blocks[block].key.is_some());
        self.evicted.extend(hashed.map(|block| block as BlockId));
        self.blocks.iter_mut().for_each(|block| block.key = None);
        self.index = HashIndex::new(self.blocks.len() as u32);
        true
    }

    /// Returns the blocks that lost their hash since the last call.
    pub(super) fn drain_evicted(&mut self) -> std::vec::Drain<'_, BlockId> {
        self.evicted.drain(..)
    }
}
