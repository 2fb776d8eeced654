//! Prefix hits of random groups, compared with a naive model.

use std::{collections::BTreeSet, sync::Arc};

use playhouse_actors::logic::{
    kv_cache::{
        BlockIds, KvCacheConfig, KvCacheManager, KvKind, KvSpec,
        allocation::{AllocateOp, AllocationOp, AllocationPlan, AllocationResult},
        block_pool::BlockKey,
        hashes::BlockHash,
    },
    request::ids::{BlockId, Epoch, RequestId, Step},
};
use proptest::prelude::*;

const BLOCK_SIZE: usize = 4;
/// Blocks of the prompt in each group.
const NUM_BLOCKS: usize = 12;
const REQUEST: RequestId = RequestId(1);

fn kind() -> impl Strategy<Value = KvKind> {
    prop_oneof![
        Just(KvKind::Full),
        (1..30usize).prop_map(|window| KvKind::Sliding { window }),
        (1..30usize).prop_map(|chunk| KvKind::ChunkedLocal { chunk }),
        Just(KvKind::State),
    ]
}

fn hash(place: usize) -> BlockHash {
    BlockHash([place as u8 + 1; 32])
}

fn block(group: usize, place: usize) -> BlockId {
    (1 + group * NUM_BLOCKS + place) as BlockId
}

/// Returns whether the token at `position` reads the token at `earlier`.
fn reads(kind: KvKind, position: usize, earlier: usize) -> bool {
    match kind {
        KvKind::Full => true,
        KvKind::Sliding { window } => earlier + window > position,
        KvKind::ChunkedLocal { chunk } => earlier / chunk == position / chunk,
        KvKind::State => earlier + 1 == position,
    }
}

/// Returns the blocks that a request reads after `num_blocks` full blocks.
fn read_blocks(kind: KvKind, num_blocks: usize) -> BTreeSet<usize> {
    let position = num_blocks * BLOCK_SIZE;
    let read = (0..position).filter(|&earlier| reads(kind, position, earlier));
    read.map(|earlier| earlier / BLOCK_SIZE).collect()
}

proptest! {
    #[test]
    fn a_hit_is_the_longest_that_every_group_can_go_on_from(
        kinds in prop::collection::vec(kind(), 1..4),
        is_cached in prop::collection::vec(prop::bool::weighted(0.8), 3 * NUM_BLOCKS),
        max_tokens in 0..BLOCK_SIZE * NUM_BLOCKS + 3,
    ) {
        let spec = KvSpec::of_layers(&kinds, BLOCK_SIZE, 1);
        let groups: Vec<KvKind> = spec.groups.iter().map(|group| group.kind).collect();
        let num_blocks = (1 + groups.len() * NUM_BLOCKS + NUM_BLOCKS * groups.len()) as u32;
        let is_cached = |group: usize, place: usize| is_cached[group * NUM_BLOCKS + place];
        let sealed = (0..groups.len()).flat_map(|group| {
            let cached = (0..NUM_BLOCKS).filter(move |&place| is_cached(group, place));
            cached.map(move |place| (block(group, place), BlockKey::new(&hash(place), group)))
        });
        let config = KvCacheConfig { num_blocks, num_step_tokens: 64, spec };
        let mut manager = KvCacheManager::from_directory(&config, Epoch(1), sealed, []);

        let can_go_on = |num_blocks: &usize| groups.iter().enumerate().all(|(group, &kind)| {
            read_blocks(kind, *num_blocks).into_iter().all(|place| is_cached(group, place))
        });
        let expected = (0..=max_tokens / BLOCK_SIZE).rev().find(can_go_on).unwrap_or_default();
        let num_hit_tokens = expected * BLOCK_SIZE;
        let lookup = AllocationOp::Lookup {
            request: REQUEST,
            block_hashes: Arc::new((0..NUM_BLOCKS).map(hash).collect()),
            max_tokens,
            with_tail: false,
        };
        let allocate = AllocationOp::Allocate(AllocateOp {
            request: REQUEST,
            num_tokens: num_hit_tokens + 1,
            num_hit_tokens,
            num_settled_tokens: num_hit_tokens,
            num_tokens_to_fit: num_hit_tokens + 1,
            spare_blocks: 0,
            full_blocks: Vec::new(),
            catches_up: false,
        });
        let (epoch, step, completed_step) = (Epoch(1), Step(1), None);
        let ops = vec![lookup, allocate];
        let plan = AllocationPlan { epoch, step, round: 0, completed_step, ops };
        let results = manager.execute(&plan).unwrap().results;
        prop_assert_eq!(&results[0], &AllocationResult::Hit { num_tokens: num_hit_tokens });
        let AllocationResult::Allocated { block_ids } = &results[1] else {
            return Err(TestCaseError::fail(format!("{results:?}")));
        };
        let hit: BlockIds = groups.iter().enumerate().map(|(group, &kind)| {
            let read = read_blocks(kind, expected);
            let mut blocks: Vec<BlockId> = (0..expected)
                .map(|place| if read.contains(&place) { block(group, place) } else { 0 })
                .collect();
            blocks.extend(block_ids.group(group).last());
            blocks
        }).collect();
        prop_assert_eq!(block_ids, &hit);
    }
}
