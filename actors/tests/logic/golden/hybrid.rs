//! vLLM's test_prefill_hybrid_model: layers that read all tokens, and two groups of layers with a
//! window of two blocks.

use std::sync::Arc;

use playhouse_actors::logic::{
    kv_cache::{
        BlockIds, KvCacheConfig, KvCacheManager, KvKind, KvSpec,
        allocation::{AllocationOp, AllocationPlan, AllocationResult},
        block_pool::BlockKey,
        hashes::BlockHash,
    },
    request::ids::{Epoch, RequestId, Step, TokenId},
    scheduler::SchedulerConfig,
};

use crate::harness::{Harness, own_prompt, request, roomy};

const SLIDING: KvKind = KvKind::Sliding { window: 32 };

fn spec() -> KvSpec {
    KvSpec::of_layers(&[KvKind::Full, SLIDING, SLIDING], 16, 1)
}

/// Returns a prompt of 48 tokens that all these prompts share, then seven of this request only.
fn prompt(id: u64) -> Vec<TokenId> {
    (0..48).chain(own_prompt(id, 7)).collect()
}

fn tables(harness: &Harness, id: u64) -> BlockIds {
    harness.kv_cache.block_ids(RequestId(id)).unwrap().clone()
}

fn lists<const N: usize>(lists: [[u32; N]; 3]) -> BlockIds {
    lists.into_iter().map(Vec::from).collect()
}

#[test]
fn a_hit_takes_the_last_blocks_of_a_window() {
    let mut harness = Harness::new(SchedulerConfig { kv_spec: spec(), num_blocks: 21, ..roomy() });
    harness.add(request(0, prompt(0)));
    harness.step();
    assert_eq!(tables(&harness, 0), lists([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]));
    harness.add(request(1, prompt(1)));
    harness.plan();
    assert_eq!(harness.hits(1), 48);
    let hit_and_new = [[1, 2, 3, 13], [0, 6, 7, 14], [0, 10, 11, 15]];
    assert_eq!(tables(&harness, 1), lists(hit_and_new));
}

/// The same with two groups of a state, whose hits need the last block alone.
#[test]
fn a_hit_takes_the_last_block_of_a_state() {
    let spec = KvSpec::of_layers(&[KvKind::Full, KvKind::State, KvKind::State], 16, 1);
    let mut harness = Harness::new(SchedulerConfig { kv_spec: spec, num_blocks: 21, ..roomy() });
    harness.add(request(0, prompt(0)));
    harness.step();
    assert_eq!(tables(&harness, 0), lists([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]));
    harness.add(request(1, prompt(1)));
    harness.plan();
    assert_eq!(harness.hits(1), 48);
    assert_eq!(tables(&harness, 1), lists([[1, 2, 3, 13], [0, 0, 7, 14], [0, 0, 11, 15]]));
}

/// A request that decodes keeps the state before its last block, and the state that it writes over.
/// After a crash it would go on from the former.
#[test]
fn a_state_keeps_two_blocks_of_a_long_request() {
    let kv_spec = KvSpec::of_layers(&[KvKind::State], 16, 1);
    let mut harness = Harness::new(SchedulerConfig { kv_spec, num_blocks: 21, ..roomy() });
    let mut long = request(0, own_prompt(0, 40));
    long.sampling_mut().max_tokens = 1_000;
    harness.add(long);
    let mut num_held = Vec::new();
    for _ in 0..200 {
        harness.step();
        num_held.push(tables(&harness, 0).iter().filter(|block| *block != 0).count());
    }
    assert!(num_held[30..].iter().all(|held| (2..=3).contains(held)), "{num_held:?}");
    assert_eq!(harness.kv_cache.held_tails().count(), 0);
}

/// Returns the number of hit blocks of a prompt of three full blocks. They are cached in all three
/// groups, except the blocks of these groups and places.
fn num_hits_without(evicted: &[(usize, usize)]) -> usize {
    let hash = |place: usize| BlockHash([place as u8 + 1; 32]);
    let all = (0..3).flat_map(|group| (0..3).map(move |place| (group, place)));
    let sealed = all
        .filter(|it| !evicted.contains(it))
        .map(|(group, place)| ((1 + 3 * group + place) as u32, BlockKey::new(&hash(place), group)));
    let config = KvCacheConfig { num_blocks: 21, num_step_tokens: 64, spec: spec() };
    let mut manager = KvCacheManager::from_directory(&config, Epoch(1), sealed, []);
    let lookup = AllocationOp::Lookup {
        request: RequestId(1),
        block_hashes: Arc::new((0..3).map(hash).collect()),
        max_tokens: 48,
        with_tail: false,
    };
    let (epoch, step, completed_step) = (Epoch(1), Step(1), None);
    let plan = AllocationPlan { epoch, step, round: 0, completed_step, ops: vec![lookup] };
    match manager.execute(&plan).unwrap().results[..] {
        [AllocationResult::Hit { num_tokens }] => num_tokens / 16,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_block_that_is_lost_shortens_the_hit_or_is_not_missed() {
    assert_eq!(num_hits_without(&[]), 3);
    assert_eq!(num_hits_without(&[(1, 0), (2, 0)]), 3, "they are before the windows");
    assert_eq!(num_hits_without(&[(0, 0)]), 0, "all tokens are read");
    assert_eq!(num_hits_without(&[(0, 2), (1, 2), (2, 2)]), 2);
    for group in 0..3 {
        assert_eq!(num_hits_without(&[(group, 2)]), 2);
    }
    // After two blocks, the windows read the first one.
    assert_eq!(num_hits_without(&[(0, 2), (1, 0), (2, 0)]), 0);
}

/// A window of 1,024 tokens has 64 blocks, and one more where it begins within a block.
#[test]
fn a_window_holds_no_more_blocks_than_it_reads() {
    for async_scheduling in [false, true] {
        let kv_spec = KvSpec::of_layers(&[KvKind::Sliding { window: 1024 }; 2], 16, 1);
        let config = SchedulerConfig {
            kv_spec,
            num_blocks: 90,
            max_num_batched_tokens: 64,
            async_scheduling,
            ..roomy()
        };
        let mut harness = Harness::new(config);
        let mut endless = request(0, own_prompt(0, 2_000));
        endless.sampling_mut().max_tokens = 6_000;
        harness.add(endless);
        for _ in 0..3_000 {
            harness.step();
            let pool = harness.kv_cache.pool();
            let num_held = pool.num_usable() - pool.num_free();
            assert!(num_held <= 65 * 11 / 10, "{num_held} blocks");
        }
        assert!(harness.output(0).len() > 2_900);
        harness.finish(&[0]);
        harness.plan();
        assert_eq!(harness.kv_cache.pool().num_free(), 89);
    }
}

#[test]
fn what_a_window_has_passed_may_be_hit_until_it_is_reused() {
    let kv_spec = KvSpec::of_layers(&[SLIDING], 16, 1);
    let mut harness = Harness::new(SchedulerConfig { kv_spec, num_blocks: 100, ..roomy() });
    harness.add(request(0, 0..320));
    harness.step();
    harness.step();
    let table = tables(&harness, 0);
    assert_eq!(table.group(0).iter().filter(|block| **block != 0).count(), 3, "{table:?}");
    // Another request ends within the passed part.
    harness.add(request(1, 0..161));
    harness.plan();
    assert_eq!(harness.hits(1), 160);
    assert_eq!(tables(&harness, 1).group(0)[8..10], [9, 10]);
}
