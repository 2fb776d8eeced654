//! The groups of layers together: a request's hits are those of all groups, and its blocks are
//! allocated in all groups or in none.

use smallvec::SmallVec;

use super::{BlockIds, KvKind, KvSpec, full, seals::Seals};
use crate::logic::{
    kv_cache::{block_pool::BlockPool, hashes::BlockHash},
    request::ids::{BlockId, Step},
};

/// The groups of one KV cache, over one block pool.
#[derive(Debug, Clone)]
pub(super) struct Coordinator {
    block_size: usize,
    kinds: SmallVec<[KvKind; 4]>,
}

impl Coordinator {
    pub(super) fn new(spec: &KvSpec) -> Self {
        let kinds = spec.groups.iter().map(|group| group.kind).collect();
        Self { block_size: spec.block_size, kinds }
    }

    /// Returns the cached blocks of the first `max_tokens` tokens, and their number in each group.
    /// A block counts only if all groups have it.
    pub(super) fn longest_hit(
        &self,
        pool: &BlockPool,
        hashes: &[BlockHash],
        max_tokens: usize,
    ) -> (BlockIds, usize) {
        let mut hits = BlockIds::default();
        let mut num_hits = hashes.len().min(max_tokens / self.block_size);
        for (group, kind) in self.kinds.iter().enumerate() {
            let hashes = &hashes[..num_hits];
            let found = match kind {
                KvKind::Full => full::longest_hit(pool, group, hashes),
            };
            num_hits = found.len();
            *hits.list(group) = found;
        }
        // A later group may have found less than an earlier one.
        hits.truncate(num_hits);
        (hits, num_hits)
    }

    /// Returns the number of blocks that a request with this table lacks for `num_tokens` tokens.
    pub(super) fn num_new_blocks(&self, num_tokens: usize, table: &BlockIds) -> usize {
        (0..self.kinds.len()).map(|group| self.num_new_in(group, num_tokens, table)).sum()
    }

    /// Takes the blocks that a request with this table lacks for `num_tokens` tokens, and appends
    /// them to `block_ids`. The pool must have them all.
    pub(super) fn take_new_blocks(
        &self,
        pool: &mut BlockPool,
        num_tokens: usize,
        table: &BlockIds,
        block_ids: &mut BlockIds,
    ) {
        for group in 0..self.kinds.len() {
            let count = self.num_new_in(group, num_tokens, table);
            if count > 0 {
                pool.get_new_blocks(count, block_ids.list(group));
            }
        }
    }

    /// Registers the blocks of a table from the `first` on as hits for `hashes`. They are full once
    /// `step` is computed.
    pub(super) fn register(
        &self,
        (pool, seals): (&mut BlockPool, &mut Seals),
        table: &BlockIds,
        first: usize,
        hashes: &[BlockHash],
        step: Step,
    ) {
        for group in 0..self.kinds.len() {
            for (&block, &hash) in table.group(group)[first..].iter().zip(hashes) {
                pool.cache_block(block, hash, group);
                seals.fill(block, step);
            }
        }
    }

    fn num_new_in(&self, group: usize, num_tokens: usize, table: &BlockIds) -> usize {
        let num_blocks = num_tokens.div_ceil(self.block_size);
        match self.kinds[group] {
            KvKind::Full => full::num_new_blocks(num_blocks, table.group(group)),
        }
    }
}

/// Returns a tail's place: the last block of a table. A tail is one block, so only a table of one
/// group has one.
pub(super) fn last_block(table: &BlockIds) -> Option<(usize, BlockId)> {
    match table.lists() {
        [blocks] => blocks.iter().copied().enumerate().next_back(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(content: u8) -> BlockHash {
        BlockHash([content; 32])
    }

    /// Two groups over ten blocks of four tokens.
    fn groups() -> (Coordinator, BlockPool) {
        let mut spec = KvSpec::full(2, 4, 64);
        spec.groups.extend(spec.groups.clone());
        (Coordinator::new(&spec), BlockPool::new(11))
    }

    #[test]
    fn a_hit_is_a_hit_in_all_groups() {
        let (groups, mut pool) = groups();
        for (block, content, group) in [(1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 1, 1), (5, 2, 1)] {
            pool.cache_block(block, hash(content), group);
        }
        let hashes = [hash(1), hash(2), hash(3), hash(4)];
        let mut expected = BlockIds::from(vec![1, 2]);
        expected.list(1).extend([4, 5]);
        assert_eq!(groups.longest_hit(&pool, &hashes, 16), (expected, 2));
        let (hits, num_hits) = groups.longest_hit(&pool, &hashes, 7);
        assert_eq!((hits.num_blocks(), num_hits), (2, 1), "seven tokens have one full block");
        pool.evict(4);
        assert_eq!(groups.longest_hit(&pool, &hashes, 16), (BlockIds::default(), 0));
    }

    #[test]
    fn all_groups_get_their_blocks_from_one_pool() {
        let (groups, mut pool) = groups();
        let mut table = BlockIds::default();
        assert_eq!(groups.num_new_blocks(5, &table), 4);
        groups.take_new_blocks(&mut pool, 5, &table.clone(), &mut table);
        assert_eq!((table.group(0), table.group(1)), (&[1, 2][..], &[3, 4][..]));
        assert_eq!((groups.num_new_blocks(8, &table), groups.num_new_blocks(9, &table)), (0, 2));
        let mut seals = Seals::new(11);
        groups.register((&mut pool, &mut seals), &table, 0, &[hash(7)], Step(1));
        assert_eq!(pool.get_cached_block(&hash(7), 0), Some(1));
        assert_eq!(pool.get_cached_block(&hash(7), 1), Some(3));
    }

    #[test]
    fn only_a_table_of_one_group_has_a_tail() {
        let mut table = BlockIds::from(vec![4, 7]);
        assert_eq!(last_block(&table), Some((1, 7)));
        table.list(1).push(5);
        assert_eq!((last_block(&table), last_block(&BlockIds::default())), (None, None));
    }
}
