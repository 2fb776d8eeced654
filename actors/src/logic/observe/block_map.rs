//! A map of the KV cache. It lists the blocks in order, as runs of equal neighbours, each with a
//! state and an owner. A large cache is shown in cells of several blocks, so the map has a bounded
//! size.

use serde::{Deserialize, Serialize};

use crate::logic::{kv_cache::KvCacheManager, request::ids::RequestId};

/// Maximum number of blocks read for a cell.
pub const SAMPLES_PER_CELL: u32 = 16;

/// The state of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// No request uses it, and its content cannot be hit.
    Free,
    /// No request uses it. Its content can be hit until it is allocated again.
    Cached,
    /// No request uses it. A new epoch keeps it for the request that was filling it.
    Tail,
    /// Requests use it.
    Used,
}

/// A run of neighbouring blocks that are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRun {
    /// Number of blocks.
    pub num_blocks: u32,
    /// State of the blocks.
    pub state: BlockState,
    /// The request that uses them or will use them. Of several requests, the one that was accepted
    /// first.
    pub owner: Option<RequestId>,
    /// Number of requests that use each block.
    pub ref_cnt: u32,
}

/// All blocks except the null block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockMap {
    /// Number of all blocks.
    pub num_blocks: u32,
    /// Number of blocks that can be allocated, including cached ones.
    pub num_free: u32,
    /// Number of unused blocks that can be hit. It is an estimate where not every block is read.
    pub num_cached: u32,
    /// Number of blocks that more than one request uses. It is an estimate in the same cases.
    pub num_shared: u32,
    /// Number of blocks in each cell of the runs; the last cell may have fewer. A cell of several
    /// blocks shows the state of most of them. A cell of more than [`SAMPLES_PER_CELL`] blocks
    /// shows the state of most of those that were read.
    pub blocks_per_cell: u32,
    /// Runs from block 1 on.
    pub runs: Vec<BlockRun>,
}

impl BlockMap {
    /// Returns a map of at most `most_cells` cells. It reads at most [`SAMPLES_PER_CELL`] blocks of
    /// each cell, and every block table.
    #[must_use]
    pub fn of(manager: &KvCacheManager, most_cells: u32) -> Self {
        let pool = manager.pool();
        let num_blocks = pool.num_usable() as u32;
        let most_samples = most_cells.max(1).saturating_mul(SAMPLES_PER_CELL);
        let stride = num_blocks.div_ceil(most_samples).next_power_of_two();
        let samples_per_cell = num_blocks.div_ceil(stride).div_ceil(most_cells.max(1)).max(1);
        let owners = owners(manager, num_blocks, stride);
        let mut map = Self {
            num_blocks,
            num_free: pool.num_free() as u32,
            blocks_per_cell: stride * samples_per_cell,
            ..Self::default()
        };
        let mut cell = Vec::with_capacity(samples_per_cell as usize);
        for (block, &owner) in (1..=num_blocks).step_by(stride as usize).zip(&owners) {
            let ref_cnt = pool.ref_cnt(block);
            let state = match (ref_cnt, owner) {
                (1.., _) => BlockState::Used,
                (0, Some(_)) => BlockState::Tail,
                (0, None) if pool.is_cached(block) => BlockState::Cached,
                (0, None) => BlockState::Free,
            };
            let num_blocks = stride.min(num_blocks + 1 - block);
            map.num_cached += if state == BlockState::Cached { num_blocks } else { 0 };
            map.num_shared += if ref_cnt > 1 { num_blocks } else { 0 };
            cell.push(BlockRun { num_blocks, state, owner, ref_cnt });
            if cell.len() as u32 == samples_per_cell {
                map.push(summary(&cell));
                cell.clear();
            }
        }
        if !cell.is_empty() {
            map.push(summary(&cell));
        }
        map
    }

    fn push(&mut self, cell: BlockRun) {
        match self.runs.last_mut() {
            Some(run) if BlockRun { num_blocks: cell.num_blocks, ..*run } == cell => {
                run.num_blocks += cell.num_blocks;
            }
            _ => self.runs.push(cell),
        }
    }
}

/// Returns the owner of every `stride`th block, from block 1 on.
fn owners(manager: &KvCacheManager, num_blocks: u32, stride: u32) -> Vec<Option<RequestId>> {
    let mut owners = vec![None; num_blocks.div_ceil(stride) as usize];
    let tails = manager
        .kept_tails()
        .flat_map(|(request, tail)| tail.blocks.iter().map(move |&block| (request, block)));
    let held = manager
        .tables()
        .flat_map(|(request, blocks)| blocks.iter().map(move |block| (request, block)));
    let (mask, shift) = (stride - 1, stride.ilog2());
    for (request, block) in tails.chain(held) {
        // The null block is not in the map.
        let place = block.checked_sub(1).filter(|place| place & mask == 0);
        if let Some(owner) = place.and_then(|place| owners.get_mut((place >> shift) as usize)) {
            owner.get_or_insert(request);
        }
    }
    owners
}

/// Returns one run for several, with the state of most of them. Of equally frequent states, the
/// last one in [`BlockState`] wins, then the largest `ref_cnt`.
fn summary(cell: &[BlockRun]) -> BlockRun {
    let mut counts = [0_u32; 4];
    cell.iter().for_each(|run| counts[run.state as usize] += 1);
    let shown = cell.iter().max_by_key(|run| (counts[run.state as usize], run.state, run.ref_cnt));
    let nothing = BlockRun { num_blocks: 0, state: BlockState::Free, owner: None, ref_cnt: 0 };
    let num_blocks = cell.iter().map(|run| run.num_blocks).sum();
    BlockRun { num_blocks, ..shown.copied().unwrap_or(nothing) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::{
        kv_cache::{
            KvCacheConfig, KvSpec, Tail,
            allocation::{AllocateOp, AllocationOp, AllocationPlan},
            block_pool::BlockKey,
            hashes::BlockHash,
        },
        request::ids::{Epoch, Step},
    };

    const BLOCK_SIZE: usize = 4;

    fn config(num_blocks: u32) -> KvCacheConfig {
        KvCacheConfig { num_blocks, num_step_tokens: 2048, spec: KvSpec::full(1, BLOCK_SIZE, 1) }
    }

    fn hash(byte: u8) -> BlockHash {
        BlockHash([byte; 32])
    }

    fn allocate(request: u64, num_tokens: usize, hit: usize, full: &[u8]) -> AllocationOp {
        AllocationOp::Allocate(AllocateOp {
            request: RequestId(request),
            num_tokens,
            num_tokens_to_fit: num_tokens,
            num_hit_tokens: hit,
            num_settled_tokens: hit,
            spare_blocks: 0,
            full_blocks: full.iter().map(|&byte| hash(byte)).collect(),
            catches_up: false,
        })
    }

    fn execute(manager: &mut KvCacheManager, ops: Vec<AllocationOp>) {
        let (epoch, step) = (Epoch(1), Step(1));
        let plan = AllocationPlan { epoch, step, round: 0, completed_step: None, ops };
        manager.execute(&plan).unwrap();
    }

    fn runs(map: &BlockMap) -> Vec<(u32, BlockState, Option<u64>, u32)> {
        let plain = |run: &BlockRun| {
            (run.num_blocks, run.state, run.owner.map(|request| request.0), run.ref_cnt)
        };
        map.runs.iter().map(plain).collect()
    }

    #[test]
    fn an_empty_cache_is_one_run() {
        let map = BlockMap::of(&KvCacheManager::new(&config(11)), 100);
        assert_eq!(runs(&map), [(10, BlockState::Free, None, 0)]);
        assert_eq!((map.num_blocks, map.num_free, map.blocks_per_cell), (10, 10, 1));
        let nothing = BlockMap::of(&KvCacheManager::new(&config(1)), 100);
        assert_eq!(runs(&nothing), []);
    }

    #[test]
    fn the_map_shows_owners_shared_blocks_and_cached_blocks() {
        let mut manager = KvCacheManager::new(&config(9));
        execute(&mut manager, vec![allocate(7, 10, 0, &[1, 2])]);
        let lookup = AllocationOp::Lookup {
            request: RequestId(8),
            block_hashes: vec![hash(1), hash(2)].into(),
            max_tokens: 8,
            with_tail: false,
        };
        execute(&mut manager, vec![lookup, allocate(8, 9, 8, &[])]);
        let map = BlockMap::of(&manager, 100);
        let used = BlockState::Used;
        assert_eq!(
            runs(&map),
            [
                (2, used, Some(7), 2),
                (1, used, Some(7), 1),
                (1, used, Some(8), 1),
                (4, BlockState::Free, None, 0)
            ]
        );
        assert_eq!((map.num_free, map.num_cached, map.num_shared), (4, 0, 2));
        let free = |request| AllocationOp::Free { request: RequestId(request), discard: None };
        let plan = |ops, completed_step| AllocationPlan {
            epoch: Epoch(1),
            step: Step(2),
            round: 0,
            completed_step,
            ops,
        };
        manager.execute(&plan(vec![free(7), free(8)], Some(Step(1)))).unwrap();
        let map = BlockMap::of(&manager, 100);
        assert_eq!(runs(&map)[0], (2, BlockState::Cached, None, 0));
        assert_eq!((map.num_free, map.num_cached, map.num_shared), (8, 2, 0));
    }

    #[test]
    fn a_kept_tail_belongs_to_its_request() {
        let tail = Tail { blocks: [3].into_iter().collect(), index: 0, caught_up_at: 2 };
        let tails = [(RequestId(5), tail)];
        let sealed = [(1, BlockKey::new(&hash(9), 0))];
        let manager = KvCacheManager::from_directory(&config(6), Epoch(2), sealed, tails);
        assert_eq!(
            runs(&BlockMap::of(&manager, 100)),
            [
                (1, BlockState::Cached, None, 0),
                (1, BlockState::Free, None, 0),
                (1, BlockState::Tail, Some(5), 0),
                (2, BlockState::Free, None, 0)
            ]
        );
    }

    #[test]
    fn a_large_cache_is_shown_in_cells() {
        let mut manager = KvCacheManager::new(&config(1_001));
        execute(&mut manager, vec![allocate(1, 110 * BLOCK_SIZE, 0, &[])]);
        let map = BlockMap::of(&manager, 64);
        assert_eq!(map.blocks_per_cell, 16);
        // The request has 110 blocks: 96 of them fill six cells, and 14 lie in the seventh.
        assert_eq!(
            runs(&map),
            [(112, BlockState::Used, Some(1), 1), (888, BlockState::Free, None, 0)]
        );
        let total: u32 = map.runs.iter().map(|run| run.num_blocks).sum();
        assert_eq!((total, map.num_free), (1_000, 890));
    }

    #[test]
    fn of_a_very_large_cache_not_every_block_is_read() {
        let mut manager = KvCacheManager::new(&config(1_002));
        execute(&mut manager, vec![allocate(1, 500 * BLOCK_SIZE, 0, &[])]);
        let map = BlockMap::of(&manager, 4);
        // Every sixteenth block is read: 63 blocks, in cells of 16.
        assert_eq!((map.blocks_per_cell, map.num_blocks), (256, 1_001));
        assert_eq!(
            runs(&map),
            [(512, BlockState::Used, Some(1), 1), (489, BlockState::Free, None, 0)]
        );
    }
}
