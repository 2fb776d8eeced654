//! Comparison of the block pool with a naive one: plain vectors, searched from the front.

use std::collections::BTreeMap;

use playhouse_actors::logic::{
    kv_cache::{block_pool::BlockPool, hashes::BlockHash},
    request::ids::BlockId,
};
use proptest::prelude::*;

const NUM_BLOCKS: u32 = 12;

#[derive(Debug, Clone)]
enum Op {
    /// Takes hits of a chain of contents, then new blocks. Some of these are registered.
    Allocate {
        contents: Vec<u8>,
        num_new: usize,
    },
    /// Frees the table at this index.
    Free(usize),
    Evict(BlockId),
    Reset,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (prop::collection::vec(0..6u8, 0..4), 0..5usize)
            .prop_map(|(contents, num_new)| Op::Allocate { contents, num_new }),
        4 => (0..8usize).prop_map(Op::Free),
        1 => (1..NUM_BLOCKS).prop_map(Op::Evict),
        1 => Just(Op::Reset),
    ]
}

fn hash(content: u8) -> BlockHash {
    BlockHash([content; 32])
}

/// A simple pool, in O(n) everywhere.
struct Naive {
    free: Vec<BlockId>,
    /// Blocks with hashes, in order of registration.
    hashed: Vec<(BlockId, u8)>,
    refs: BTreeMap<BlockId, u32>,
}

impl Naive {
    fn hit(&self, content: u8) -> Option<BlockId> {
        self.hashed.iter().find(|entry| entry.1 == content).map(|entry| entry.0)
    }

    fn touch(&mut self, block: BlockId) {
        self.free.retain(|&free| free != block);
        *self.refs.entry(block).or_default() += 1;
    }

    fn evict(&mut self, block: BlockId) {
        self.hashed.retain(|entry| entry.0 != block);
    }

    fn take(&mut self, count: usize) -> Option<Vec<BlockId>> {
        (count <= self.free.len()).then(|| {
            let taken: Vec<BlockId> = self.free.drain(..count).collect();
            for &block in &taken {
                self.evict(block);
                self.refs.insert(block, 1);
            }
            taken
        })
    }

    fn free(&mut self, table: &[BlockId]) {
        for &block in table.iter().rev() {
            let refs = self.refs.get_mut(&block).unwrap();
            *refs -= 1;
            if *refs == 0 {
                let is_hashed = self.hashed.iter().any(|entry| entry.0 == block);
                let place = if is_hashed { self.free.len() } else { 0 };
                self.free.insert(place, block);
            }
        }
    }
}

fn run(ops: Vec<Op>) {
    let mut pool = BlockPool::new(NUM_BLOCKS);
    let mut naive =
        Naive { free: (1..NUM_BLOCKS).collect(), hashed: Vec::new(), refs: BTreeMap::new() };
    let mut tables: Vec<Vec<BlockId>> = Vec::new();
    for op in ops {
        match op {
            Op::Allocate { contents, num_new } => {
                let lookup = |content: &u8| pool.get_cached_block(&hash(*content), 0);
                let mut table: Vec<BlockId> = contents.iter().map_while(lookup).collect();
                let expected: Vec<BlockId> =
                    contents.iter().map_while(|&content| naive.hit(content)).collect();
                assert_eq!(table, expected);
                pool.touch(&table);
                expected.iter().for_each(|&block| naive.touch(block));
                let num_hits = table.len();
                let fits = pool.get_new_blocks(num_new, &mut table);
                let taken = naive.take(num_new);
                assert_eq!(fits, taken.is_some());
                assert_eq!(table[num_hits..], taken.unwrap_or_default());
                // The remaining contents are computed into the new blocks.
                let rest = contents[num_hits..].iter().filter(|_| fits);
                for (&block, &content) in table[num_hits..].iter().zip(rest) {
                    pool.cache_block(block, hash(content), 0);
                    naive.hashed.push((block, content));
                }
                tables.push(table);
            }
            Op::Free(place) if place < tables.len() => {
                let table = tables.swap_remove(place);
                pool.free_blocks(&table);
                naive.free(&table);
            }
            Op::Free(_) => {}
            Op::Evict(block) => {
                pool.evict(block);
                naive.evict(block);
            }
            Op::Reset => {
                let is_idle = naive.free.len() == NUM_BLOCKS as usize - 1;
                assert_eq!(pool.reset_prefix_cache(), is_idle);
                if is_idle {
                    naive.hashed.clear();
                }
            }
        }
        assert_eq!(pool.free_block_ids().collect::<Vec<_>>(), naive.free);
        for block in 1..NUM_BLOCKS {
            let refs = naive.refs.get(&block).copied().unwrap_or_default();
            assert_eq!(pool.ref_cnt(block), refs, "block {block}");
        }
    }
}

proptest! {
    #[test]
    fn the_pool_does_what_plain_vectors_do(ops in prop::collection::vec(op(), 0..80)) {
        run(ops);
    }
}
