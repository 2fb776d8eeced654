//! The KV cache's blocks in order, as runs of blocks alike: who holds them, what can be hit, what is
//! empty. A large cache is shown in cells of several blocks, so the map has a bounded size.

use serde::{Deserialize, Serialize};

use crate::logic::{
    ids::{BlockId, Epoch, RequestId},
    kv_cache::KvCacheManager,
};

/// What is known of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockState {
    /// Nobody holds it, and nothing in it can be hit.
    Free,
    /// Nobody holds it; its content can be hit until it is handed out again.
    Cached,
    /// Nobody holds it; a new epoch keeps it for the request that was filling it.
    Tail,
    /// Requests hold it.
    Used,
}

/// Neighbouring blocks that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRun {
    /// How many.
    pub num_blocks: u32,
    /// What they are.
    pub state: BlockState,
    /// Who holds them, or will; of several, the one that was accepted first.
    pub owner: Option<RequestId>,
    /// How many requests hold each.
    pub ref_cnt: u32,
}

/// All blocks but the null block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BlockMap {
    /// How many there are.
    pub num_blocks: u32,
    /// Those that can be handed out, the cached ones among them.
    pub num_free: u32,
    /// Those that nobody holds and that can be hit.
    pub num_cached: u32,
    /// Those that more than one request holds.
    pub num_shared: u32,
    /// Each cell of the runs stands for so many blocks, the last one perhaps for fewer: if for more
    /// than one, it shows what most of them are.
    pub blocks_per_cell: u32,
    /// From block 1 on.
    pub runs: Vec<BlockRun>,
}

/// The KV cache as its manager knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KvCacheView {
    /// The epoch that the manager serves.
    pub epoch: Epoch,
    /// Its blocks: known from the first plan of its life on.
    pub map: Option<BlockMap>,
}

impl BlockMap {
    /// The map of at most `most_cells` cells. Takes time in proportion to the blocks there are.
    #[must_use]
    pub fn of(manager: &KvCacheManager, most_cells: u32) -> Self {
        let pool = manager.pool();
        let num_blocks = pool.num_usable() as u32;
        let owners = owners(manager, num_blocks);
        let mut map = Self {
            num_blocks,
            num_free: pool.num_free() as u32,
            blocks_per_cell: num_blocks.div_ceil(most_cells.max(1)).max(1),
            ..Self::default()
        };
        let mut cell = Vec::with_capacity(map.blocks_per_cell as usize);
        for block in 1..=num_blocks {
            let (owner, ref_cnt) = (owners[block as usize], pool.ref_cnt(block));
            let state = match (ref_cnt, owner) {
                (1.., _) => BlockState::Used,
                (0, Some(_)) => BlockState::Tail,
                (0, None) if pool.is_cached(block) => BlockState::Cached,
                (0, None) => BlockState::Free,
            };
            map.num_cached += u32::from(state == BlockState::Cached);
            map.num_shared += u32::from(ref_cnt > 1);
            cell.push(BlockRun { num_blocks: 1, state, owner, ref_cnt });
            if cell.len() as u32 == map.blocks_per_cell || block == num_blocks {
                map.push(summary(&cell));
                cell.clear();
            }
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

/// By block, the null block among them.
fn owners(manager: &KvCacheManager, num_blocks: u32) -> Vec<Option<RequestId>> {
    let mut owners = vec![None; num_blocks as usize + 1];
    let tails = manager.kept_tails().map(|(request, tail)| (request, tail.block));
    let held = manager
        .tables()
        .flat_map(|(request, blocks)| blocks.iter().map(move |&block: &BlockId| (request, block)));
    for (request, block) in tails.chain(held) {
        if let Some(owner) = owners.get_mut(block as usize) {
            owner.get_or_insert(request);
        }
    }
    owners
}

/// One run for several blocks: what most of them are, and of the same many what is more in use.
fn summary(cell: &[BlockRun]) -> BlockRun {
    let count = |state: BlockState| cell.iter().filter(|run| run.state == state).count();
    let shown = cell.iter().max_by_key(|run| (count(run.state), run.state, run.ref_cnt));
    let shown = shown.copied().unwrap_or(BlockRun {
        num_blocks: 0,
        state: BlockState::Free,
        owner: None,
        ref_cnt: 0,
    });
    BlockRun { num_blocks: cell.len() as u32, ..shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::{
        allocation::{AllocateOp, AllocationOp, AllocationPlan, FullBlock},
        block_hash::BlockHash,
        ids::Step,
        kv_cache::{KvCacheConfig, Tail},
    };

    const BLOCK_SIZE: usize = 4;

    fn config(num_blocks: u32) -> KvCacheConfig {
        KvCacheConfig { num_blocks, block_size: BLOCK_SIZE, enable_events: false }
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
            spare_blocks: 0,
            full_blocks: full
                .iter()
                .map(|&byte| FullBlock { hash: hash(byte), content: None })
                .collect(),
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
        let map = BlockMap::of(&KvCacheManager::new(config(11)), 100);
        assert_eq!(runs(&map), [(10, BlockState::Free, None, 0)]);
        assert_eq!((map.num_blocks, map.num_free, map.blocks_per_cell), (10, 10, 1));
        let nothing = BlockMap::of(&KvCacheManager::new(config(1)), 100);
        assert_eq!(runs(&nothing), []);
    }

    #[test]
    fn owners_sharing_and_what_can_be_hit_are_seen() {
        let mut manager = KvCacheManager::new(config(9));
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
        let free = |request| AllocationOp::Free { request: RequestId(request), discard: false };
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
        let tail = Tail { block: 3, index: 0, caught_up_at: 2 };
        let tails = [(RequestId(5), tail)];
        let manager = KvCacheManager::from_directory(config(6), Epoch(2), [(1, hash(9))], tails);
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
        let mut manager = KvCacheManager::new(config(1_001));
        execute(&mut manager, vec![allocate(1, 110 * BLOCK_SIZE, 0, &[])]);
        let map = BlockMap::of(&manager, 64);
        assert_eq!(map.blocks_per_cell, 16);
        // 96 blocks fill six cells, and 14 of 16 the seventh.
        assert_eq!(
            runs(&map),
            [(112, BlockState::Used, Some(1), 1), (888, BlockState::Free, None, 0)]
        );
        let total: u32 = map.runs.iter().map(|run| run.num_blocks).sum();
        assert_eq!((total, map.num_free), (1_000, 890));
    }
}
