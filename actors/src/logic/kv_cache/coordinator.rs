//! The groups of layers together: a request's hits are those of all groups, and its blocks are
//! allocated in all groups or in none.

use std::ops::Range;

use smallvec::SmallVec;

use super::{
    BlockIds, Demand, KvCacheConfig, KvKind, demand::GroupDemand, full, seals::Seals, sliding,
};
use crate::logic::{
    kv_cache::{
        allocation::AllocateOp,
        block_pool::{BlockPool, NULL_BLOCK},
        hashes::BlockHash,
    },
    planted::{Bug, planted},
    request::ids::{BlockId, Step},
};

/// The groups of one KV cache, over one block pool.
#[derive(Debug, Clone)]
pub(super) struct Coordinator {
    demand: Demand,
    /// Whether a group does not read all tokens, so that requests free blocks while they run.
    has_windows: bool,
}

impl Coordinator {
    pub(super) fn new(config: &KvCacheConfig) -> Self {
        let demand = Demand::new(config);
        let has_windows = demand.groups().iter().any(|group| group.kind != KvKind::Full);
        Self { demand, has_windows }
    }

    /// Returns the number of groups.
    pub(super) fn num_groups(&self) -> usize {
        self.groups().len()
    }

    fn groups(&self) -> &[GroupDemand] {
        self.demand.groups()
    }

    fn block_size(&self) -> usize {
        self.demand.block_size()
    }

    /// Returns the cached blocks of the first `max_tokens` tokens, and their number in each group.
    /// That is the largest number of blocks after which a request can go on in all groups.
    pub(super) fn longest_hit(
        &self,
        pool: &BlockPool,
        hashes: &[BlockHash],
        max_tokens: usize,
    ) -> (BlockIds, usize) {
        let (mut hits, groups) = (BlockIds::default(), self.groups());
        let mut num_hits = hashes.len().min(max_tokens / self.block_size());
        // Each group in turn shortens the hit, until all in a row agree. A group of a window may
        // find less among fewer blocks, so it is asked again.
        let (mut turn, mut num_agreed) = (0, 0);
        while num_agreed < groups.len() {
            let group = turn % groups.len();
            let list = hits.list(group);
            let (hashes, kind) = (&hashes[..num_hits], groups[group].kind);
            let first_block = |num_blocks| kind.first_block(num_blocks, self.block_size());
            match kind {
                // A run from the first block on is still one when it is shortened.
                KvKind::Full if turn > group => list.truncate(num_hits),
                KvKind::Full => *list = full::longest_hit(pool, group, hashes),
                KvKind::State if planted(Bug::SkipState) => *list = vec![NULL_BLOCK; num_hits],
                KvKind::Sliding { .. } | KvKind::ChunkedLocal { .. } | KvKind::State => {
                    *list = sliding::longest_hit(pool, group, hashes, first_block);
                }
            }
            num_agreed = if list.len() < num_hits { 1 } else { num_agreed + 1 };
            num_hits = list.len();
            turn += 1;
        }
        (hits, num_hits)
    }

    /// Returns the number of blocks that must be free for `op`, beside those that its request holds
    /// in `table`: the blocks that it gets now, or more if more tokens must fit.
    pub(super) fn num_wanted(&self, op: &AllocateOp, table: &BlockIds) -> usize {
        let tokens = [op.num_tokens, op.num_tokens_to_fit];
        let [num_blocks, num_to_fit] = tokens.map(|tokens| tokens.div_ceil(self.block_size()));
        let of_group = |(group, demand): (usize, &GroupDemand)| {
            let blocks = table.group(group);
            let num_new = num_blocks.saturating_sub(blocks.len());
            let num_later = num_to_fit.saturating_sub(blocks.len() + num_new);
            if num_later == 0 {
                return num_new;
            }
            let num_held = blocks.len() - num_null(blocks) + num_new;
            num_new + num_later.min(demand.num_blocks_max(usize::MAX).saturating_sub(num_held))
        };
        self.groups().iter().enumerate().map(of_group).sum()
    }

    /// Takes the blocks that a group's table lacks for `num_tokens` tokens, appends them to the
    /// table, and returns them. The pool must have them all.
    pub(super) fn take_new_blocks<'table>(
        &self,
        pool: &mut BlockPool,
        group: usize,
        num_tokens: usize,
        table: &'table mut BlockIds,
    ) -> &'table [BlockId] {
        let num_held = table.group(group).len();
        let count = num_tokens.div_ceil(self.block_size()).saturating_sub(num_held);
        if count == 0 {
            return &[];
        }
        let blocks = table.list(group);
        pool.get_new_blocks(count, blocks);
        &blocks[num_held..]
    }

    /// Returns the places of the blocks, by group, that the request with this table no longer
    /// reads, if its first `num_settled` tokens are computed. Without windows, the list is empty.
    pub(super) fn passed(
        &self,
        seals: &Seals,
        table: &BlockIds,
        num_settled: usize,
    ) -> SmallVec<[Range<usize>; 4]> {
        if !self.has_windows {
            return SmallVec::new();
        }
        let of_group = |(group, blocks): (usize, &Vec<BlockId>)| {
            self.passed_in(seals, group, blocks, num_settled)
        };
        table.lists().iter().enumerate().map(of_group).collect()
    }

    /// Returns the places in one group's table.
    ///
    /// Blocks that a step in flight fills do not count as computed. So after a crash the request
    /// finds the blocks from which it can go on. The result of that step also decides whether the
    /// blocks may be hit, and until then a table must name them.
    fn passed_in(
        &self,
        seals: &Seals,
        group: usize,
        blocks: &[BlockId],
        num_settled: usize,
    ) -> Range<usize> {
        let kind = self.groups()[group].kind;
        if kind == KvKind::Full {
            return 0..0;
        }
        let num_full = blocks.len().min(num_settled / self.block_size());
        let is_done = |block: &BlockId| !seals.is_pending(*block);
        let num_done = blocks[..num_full].iter().rposition(is_done).map_or(0, |last| last + 1);
        let first = kind.first_block(num_done, self.block_size());
        let first = first + usize::from(planted(Bug::PassTooMuch) && first + 1 < blocks.len());
        let num_null = num_null(blocks);
        num_null..first.max(num_null)
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
        for group in 0..self.groups().len() {
            for (&block, &hash) in table.group(group)[first..].iter().zip(hashes) {
                if block != NULL_BLOCK {
                    pool.cache_block(block, hash, group);
                    seals.fill(block, step);
                }
            }
        }
    }
}

/// Returns the number of null blocks in a table. They are its first blocks.
fn num_null(blocks: &[BlockId]) -> usize {
    blocks.partition_point(|block| *block == NULL_BLOCK)
}

/// Returns a tail's place: the last blocks of a table, and their index.
pub(super) fn last_blocks(table: &BlockIds) -> Option<(usize, SmallVec<[BlockId; 2]>)> {
    let index = table.group(0).len().checked_sub(1)?;
    let mut last_blocks = SmallVec::new();
    for blocks in table.lists() {
        last_blocks.push(*blocks.last()?);
    }
    Some((index, last_blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::{kv_cache::KvSpec, request::ids::RequestId};

    fn hash(content: u8) -> BlockHash {
        BlockHash([content; 32])
    }

    const FULL: KvKind = KvKind::Full;
    const SLIDING: KvKind = KvKind::Sliding { window: 6 };

    /// A layer of each kind over ten blocks of four tokens.
    fn groups(kinds: &[KvKind]) -> (Coordinator, BlockPool) {
        let spec = KvSpec::of_layers(kinds, 4, 64);
        let config = KvCacheConfig { num_blocks: 11, num_step_tokens: 8, spec };
        (Coordinator::new(&config), BlockPool::new(11))
    }

    fn hashes() -> [BlockHash; 4] {
        [1, 2, 3, 4].map(hash)
    }

    fn op(num_tokens: usize, num_tokens_to_fit: usize) -> AllocateOp {
        AllocateOp {
            request: RequestId(1),
            num_tokens,
            num_hit_tokens: 0,
            num_settled_tokens: 0,
            num_tokens_to_fit,
            spare_blocks: 0,
            full_blocks: Vec::new(),
            catches_up: false,
        }
    }

    fn lists(first: &[BlockId], second: &[BlockId]) -> BlockIds {
        [first, second].into_iter().map(<[BlockId]>::to_vec).collect()
    }

    #[test]
    fn a_hit_is_a_hit_in_all_groups() {
        let (groups, mut pool) = groups(&[FULL, SLIDING]);
        for (block, content, group) in [(1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 1, 1), (5, 2, 1)] {
            pool.cache_block(block, hash(content), group);
        }
        assert_eq!(groups.longest_hit(&pool, &hashes(), 16), (lists(&[1, 2], &[4, 5]), 2));
        let (hits, num_hits) = groups.longest_hit(&pool, &hashes(), 7);
        assert_eq!((hits.num_blocks(), num_hits), (2, 1), "seven tokens have one full block");
        pool.cache_block(6, hash(3), 1);
        // The next token reads five tokens before it, which lie in two blocks.
        assert_eq!(groups.longest_hit(&pool, &hashes(), 16), (lists(&[1, 2, 3], &[0, 5, 6]), 3));
        pool.evict(4);
        assert_eq!(groups.longest_hit(&pool, &hashes(), 16).1, 3, "it is before the window");
        pool.evict(6);
        assert_eq!(groups.longest_hit(&pool, &hashes(), 16), (lists(&[], &[]), 0));
    }

    #[test]
    fn groups_agree_on_the_longest_hit() {
        let chunked = KvKind::ChunkedLocal { chunk: 8 };
        let (groups, mut pool) = groups(&[SLIDING, chunked]);
        let cached = [(1, 1, 0), (2, 2, 0), (3, 3, 0), (4, 4, 0), (5, 3, 1)];
        for (block, content, group) in cached {
            pool.cache_block(block, hash(content), group);
        }
        assert_eq!(groups.longest_hit(&pool, &hashes(), 16).1, 4, "a chunk begins there");
        assert_eq!(groups.longest_hit(&pool, &hashes(), 15), (lists(&[0, 2, 3], &[0, 0, 5]), 3));
        pool.evict(3);
        assert_eq!(groups.longest_hit(&pool, &hashes(), 16), (lists(&[1, 2], &[0, 0]), 2));
        pool.evict(1);
        assert_eq!(groups.longest_hit(&pool, &hashes(), 16).1, 0);
    }

    #[test]
    fn all_groups_get_their_blocks_from_one_pool() {
        let (groups, mut pool) = groups(&[FULL, SLIDING]);
        let mut table = BlockIds::default();
        assert_eq!(groups.num_wanted(&op(5, 5), &table), 4);
        assert_eq!(groups.take_new_blocks(&mut pool, 0, 5, &mut table), [1, 2]);
        assert_eq!(groups.take_new_blocks(&mut pool, 1, 5, &mut table), [3, 4]);
        assert!(groups.take_new_blocks(&mut pool, 1, 8, &mut table).is_empty());
        assert_eq!((table.group(0), table.group(1)), (&[1, 2][..], &[3, 4][..]));
        let wanted = [8, 9].map(|tokens| groups.num_wanted(&op(tokens, tokens), &table));
        assert_eq!(wanted, [0, 2]);
        let mut seals = Seals::new(11);
        groups.register((&mut pool, &mut seals), &table, 0, &[hash(7)], Step(1));
        assert_eq!(pool.get_cached_block(&hash(7), 0), Some(1));
        assert_eq!(pool.get_cached_block(&hash(7), 1), Some(3));
    }

    #[test]
    fn a_window_wants_no_more_than_its_most() {
        let (groups, _) = groups(&[FULL, SLIDING]);
        // 40 tokens lie in ten blocks. A window of six and steps of eight hold seven.
        assert_eq!(groups.num_wanted(&op(8, 40), &BlockIds::default()), 17);
        assert_eq!(groups.num_wanted(&op(8, 40), &lists(&[1, 2], &[0, 3])), 8 + 6);
        assert_eq!(groups.num_wanted(&op(40, 40), &BlockIds::default()), 20, "all at once");
        let (full, sliding) = ([1; 10], [0, 0, 0, 0, 0, 0, 0, 0, 2, 3]);
        assert_eq!(groups.num_wanted(&op(41, 41), &lists(&full, &sliding)), 2, "one in each");
    }

    #[test]
    fn blocks_before_the_window_of_a_computed_token_are_passed() {
        let (groups, mut pool) = groups(&[FULL, SLIDING]);
        let mut seals = Seals::new(11);
        let table = [1, 2, 3, 4, 5];
        let passed = |seals: &Seals, blocks: &[BlockId], num_settled| {
            groups.passed_in(seals, 1, blocks, num_settled)
        };
        assert_eq!(groups.passed_in(&seals, 0, &table, 20), 0..0, "all tokens are read");
        let in_all = groups.passed(&seals, &lists(&table, &table), 16);
        assert_eq!(in_all.to_vec(), [0..0, 0..2]);
        assert_eq!([8, 11, 12, 16].map(|n| passed(&seals, &table, n)), [0..0, 0..0, 0..1, 0..2]);
        assert_eq!(passed(&seals, &[0, 0, 3, 4, 5], 12), 2..2);
        assert_eq!(passed(&seals, &[0, 0, 3, 4, 5], 20), 2..3);
        pool.cache_block(4, hash(4), 1);
        seals.fill(4, Step(7));
        assert_eq!(passed(&seals, &table, 16), 0..1, "the fourth block may still fail");
        seals.complete(Step(7), |block| pool.key_of(block));
        assert_eq!(passed(&seals, &table, 16), 0..2);
    }

    #[test]
    fn the_last_blocks_of_a_table_are_its_tail() {
        let last = |table: &BlockIds| last_blocks(table).map(|(at, blocks)| (at, blocks.to_vec()));
        assert_eq!(last(&lists(&[4, 7], &[0, 5])), Some((1, vec![7, 5])));
        assert_eq!(last(&BlockIds::from(vec![4])), Some((0, vec![4])));
        assert_eq!((last(&BlockIds::default()), last(&lists(&[], &[]))), (None, None));
    }
}
