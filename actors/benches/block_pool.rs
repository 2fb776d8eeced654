//! Time to allocate, hit and free a request's blocks, and to hash a block.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use playhouse_actors::logic::kv_cache::{
    block_pool::BlockPool,
    hashes::{BlockHash, hash_block, none_hash},
};

const NUM_BLOCKS: u32 = 100_000;
/// Blocks of a prompt of 8,192 tokens.
const PROMPT_BLOCKS: usize = 512;

fn chain(len: usize) -> Vec<BlockHash> {
    let tokens: Vec<u32> = (0..16).collect();
    let mut parent = none_hash(None);
    let next = || {
        parent = hash_block(&parent, &tokens, &[]);
        parent
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn blocks(criterion: &mut Criterion) {
    criterion.bench_function("block_pool/allocate_and_free_512", |bencher| {
        let mut pool = BlockPool::new(NUM_BLOCKS);
        let mut table = Vec::with_capacity(PROMPT_BLOCKS);
        bencher.iter(|| {
            table.clear();
            assert!(pool.get_new_blocks(PROMPT_BLOCKS, &mut table));
            pool.free_blocks(black_box(&table));
        });
    });
    criterion.bench_function("block_pool/look_up_touch_and_free_512", |bencher| {
        let mut pool = BlockPool::new(NUM_BLOCKS);
        let (hashes, mut table) = (chain(PROMPT_BLOCKS), Vec::new());
        assert!(pool.get_new_blocks(PROMPT_BLOCKS, &mut table));
        for (&block, &hash) in table.iter().zip(&hashes) {
            pool.cache_block(block, hash, 0);
        }
        pool.free_blocks(&table);
        bencher.iter(|| {
            table.clear();
            table.extend(hashes.iter().map_while(|hash| pool.get_cached_block(hash, 0)));
            assert_eq!(table.len(), PROMPT_BLOCKS);
            pool.touch(&table);
            pool.free_blocks(&table);
        });
    });
    criterion.bench_function("block_hash/16_tokens", |bencher| {
        let (parent, tokens) = (none_hash(None), (30_000..30_016).collect::<Vec<u32>>());
        bencher.iter(|| hash_block(black_box(&parent), black_box(&tokens), &[]));
    });
}

criterion_group!(benches, blocks);
criterion_main!(benches);
