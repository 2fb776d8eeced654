//! Tails in the KV cache manager.

use std::sync::Arc;

use playhouse_actors::logic::{
    kv_cache::{
        BlockIds, DirectoryUpdate, KvCacheConfig, KvCacheManager, KvKind, KvSpec, Tail,
        allocation::{AllocateOp, AllocationOp, AllocationPlan, AllocationResult, PlanError},
        block_pool::BlockKey,
        hashes::BlockHash,
    },
    request::ids::{BlockId, Epoch, RequestId, Step},
};

fn config() -> KvCacheConfig {
    KvCacheConfig { num_blocks: 6, num_step_tokens: 64, spec: KvSpec::full(1, 4, 1) }
}
const ALICE: RequestId = RequestId(1);
const BOB: RequestId = RequestId(2);
const EPOCH: Epoch = Epoch(3);
/// Returns a tail: one full block before it, caught up at six tokens.
fn tail(block: BlockId) -> Tail {
    Tail { blocks: [block].into_iter().collect(), index: 1, caught_up_at: 6 }
}

fn hash(content: u8) -> BlockHash {
    BlockHash([content; 32])
}

fn key(content: u8) -> BlockKey {
    BlockKey::new(&hash(content), 0)
}

/// Returns a manager of a new epoch. Block 4 is full, and block 2 is Alice's tail.
fn successor() -> KvCacheManager {
    KvCacheManager::from_directory(&config(), EPOCH, [(4, key(1))], [(ALICE, tail(2))])
}

fn execute(
    manager: &mut KvCacheManager,
    ops: Vec<AllocationOp>,
) -> Result<Vec<AllocationResult>, PlanError> {
    let (step, round, completed_step) = (Step(9), 0, Some(Step(8)));
    let plan = AllocationPlan { epoch: EPOCH, step, round, completed_step, ops };
    Ok(manager.execute(&plan)?.results)
}

/// Looks up all tokens except the last of `num_tokens`.
fn look_up(request: RequestId, num_tokens: usize) -> AllocationOp {
    let max_tokens = num_tokens - 1;
    let block_hashes = Arc::new((1..=max_tokens as u8 / 4).map(hash).collect());
    AllocationOp::Lookup { request, block_hashes, max_tokens, with_tail: true }
}

fn allocate(request: RequestId, num_tokens: usize, num_hit_tokens: usize) -> AllocationOp {
    let first = num_hit_tokens / 4;
    AllocationOp::Allocate(AllocateOp {
        request,
        num_tokens,
        num_hit_tokens,
        num_settled_tokens: num_hit_tokens,
        num_tokens_to_fit: num_tokens,
        spare_blocks: 0,
        full_blocks: (first..num_tokens / 4).map(|block| hash(block as u8 + 1)).collect(),
        catches_up: true,
    })
}

/// Returns the number of tokens that a lookup finds.
fn hit(manager: &mut KvCacheManager, request: RequestId, num_tokens: usize) -> usize {
    match execute(manager, vec![look_up(request, num_tokens)]).unwrap()[..] {
        [AllocationResult::Hit { num_tokens }] => num_tokens,
        ref other => panic!("{other:?}"),
    }
}

fn kept(manager: &KvCacheManager) -> Vec<RequestId> {
    manager.kept_tails().map(|(request, _)| request).collect()
}

#[test]
fn the_directory_learns_of_a_tail_only_when_its_block_changes() {
    let mut manager = KvCacheManager::new(&config());
    let tails = |manager: &mut KvCacheManager| {
        let mut updates = manager.drain_directory_updates();
        updates.retain(|update| !matches!(update, DirectoryUpdate::Sealed { .. }));
        updates
    };
    let at = |block, index| {
        let tail = Tail { index, ..tail(block) };
        DirectoryUpdate::TailAt { request: ALICE, tail }
    };
    execute(&mut manager, vec![allocate(ALICE, 6, 0)]).unwrap();
    assert_eq!(tails(&mut manager), [at(2, 1)]);
    let fill = AllocateOp { full_blocks: vec![], catches_up: true, ..op(allocate(ALICE, 8, 0)) };
    execute(&mut manager, vec![AllocationOp::Allocate(fill)]).unwrap();
    assert_eq!(tails(&mut manager), [], "it is the same block");
    let grow = AllocateOp { full_blocks: vec![], ..op(allocate(ALICE, 9, 0)) };
    execute(&mut manager, vec![AllocationOp::Allocate(grow)]).unwrap();
    assert_eq!(tails(&mut manager), [at(3, 2)]);
    execute(&mut manager, vec![AllocationOp::Free { request: ALICE, discard: None }]).unwrap();
    assert_eq!(tails(&mut manager), [DirectoryUpdate::TailGone { request: ALICE }]);
}

fn op(op: AllocationOp) -> AllocateOp {
    match op {
        AllocationOp::Allocate(op) => op,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tail_is_adopted_where_it_was_left() {
    let mut manager = successor();
    let free: Vec<_> = manager.pool().free_block_ids().collect();
    assert_eq!(free, [1, 3, 5, 4, 2], "it is reused last");
    let results = execute(&mut manager, vec![look_up(ALICE, 8), allocate(ALICE, 8, 7)]).unwrap();
    assert_eq!(results[0], AllocationResult::Hit { num_tokens: 7 });
    assert_eq!(results[1], AllocationResult::Allocated { block_ids: vec![4, 2].into() });
    assert_eq!((manager.pool().ref_cnt(2), manager.pool().num_free()), (1, 3));
    assert_eq!(kept(&manager), []);
    assert_eq!(manager.held_tails().collect::<Vec<_>>(), [(ALICE, &tail(2))]);
    assert_eq!(manager.drain_directory_updates(), [], "the directory knows it");
}

#[test]
fn blocks_that_a_request_will_look_up_are_reused_after_others() {
    // Alice's blocks are 3, 1 and 2. No request needs the others.
    let sealed = [(1, key(2)), (3, key(1)), (4, key(8)), (5, key(9))];
    let tails = [(ALICE, Tail { index: 2, ..tail(2) })];
    let mut manager = KvCacheManager::from_directory(&config(), EPOCH, sealed, tails);
    assert_eq!(manager.pool().free_block_ids().collect::<Vec<_>>(), [1, 3, 4, 5, 2]);
    let block_hashes = Arc::new(vec![hash(1), hash(2), hash(3)]);
    let touch = AllocationOp::Touch { request: ALICE, block_hashes, max_tokens: 9 };
    assert_eq!(execute(&mut manager, vec![touch]).unwrap(), [AllocationResult::Touched]);
    assert_eq!(manager.pool().free_block_ids().collect::<Vec<_>>(), [4, 5, 2, 1, 3]);
    assert_eq!(hit(&mut manager, ALICE, 10), 9);
}

#[test]
fn only_its_own_request_gets_a_tail_and_only_at_its_position() {
    assert_eq!(hit(&mut successor(), BOB, 8), 4);
    assert_eq!(hit(&mut successor(), ALICE, 7), 6);
    assert_eq!(hit(&mut successor(), ALICE, 5), 4);
    assert_eq!(hit(&mut successor(), ALICE, 10), 4, "more than a block beyond");
    let AllocationOp::Lookup { request, block_hashes, max_tokens, .. } = look_up(ALICE, 8) else {
        panic!("it is one");
    };
    let without = AllocationOp::Lookup { request, block_hashes, max_tokens, with_tail: false };
    let found = execute(&mut successor(), vec![without]).unwrap();
    assert_eq!(found, [AllocationResult::Hit { num_tokens: 4 }]);
}

#[test]
fn a_tail_whose_beginning_is_lost_is_not_used() {
    let mut manager = KvCacheManager::from_directory(&config(), EPOCH, [], [(ALICE, tail(2))]);
    assert_eq!(hit(&mut manager, ALICE, 8), 0);
    execute(&mut manager, vec![allocate(ALICE, 8, 0)]).unwrap();
    assert_eq!(kept(&manager), [], "its request has begun without it");
}

#[test]
fn a_tail_that_became_full_is_a_block_like_others() {
    let mut manager = successor();
    assert_eq!(hit(&mut manager, ALICE, 9), 8);
    assert_eq!((kept(&manager), manager.pool().hash_of(2)), (vec![], Some(hash(2))));
    let sealed = DirectoryUpdate::Sealed { block: 2, hash: hash(2), group: 0 };
    let gone = DirectoryUpdate::TailGone { request: ALICE };
    assert_eq!(manager.drain_directory_updates(), [sealed, gone]);
    assert_eq!(hit(&mut manager, BOB, 10), 8);
    execute(&mut manager, vec![look_up(ALICE, 9), allocate(ALICE, 9, 8)]).unwrap();
    assert_eq!(manager.block_ids(ALICE), Some(&vec![4, 2, 1].into()));
}

#[test]
fn a_tail_ends_with_its_block_and_with_its_request() {
    let gone = [DirectoryUpdate::TailGone { request: ALICE }];
    let mut manager = successor();
    execute(&mut manager, vec![allocate(BOB, 12, 0)]).unwrap();
    assert_eq!(kept(&manager), [ALICE], "there were other blocks");
    let all = AllocateOp { full_blocks: vec![], ..op(allocate(BOB, 20, 0)) };
    execute(&mut manager, vec![AllocationOp::Allocate(all)]).unwrap();
    assert_eq!(kept(&manager), []);
    assert!(manager.drain_directory_updates().contains(&gone[0]));

    let mut manager = successor();
    execute(&mut manager, vec![AllocationOp::Free { request: ALICE, discard: None }]).unwrap();
    assert_eq!((kept(&manager), manager.drain_directory_updates()), (vec![], gone.to_vec()));

    let mut manager = successor();
    execute(&mut manager, vec![AllocationOp::ResetPrefixCache]).unwrap();
    assert_eq!((kept(&manager), hit(&mut manager, ALICE, 8)), (vec![], 0));
}

#[test]
fn a_block_is_kept_for_one_request_or_for_all() {
    let tails = [(ALICE, tail(2)), (BOB, tail(2)), (RequestId(3), tail(4))];
    let unusable = [(RequestId(4), tail(0)), (RequestId(5), tail(6))];
    let tails = tails.into_iter().chain(unusable);
    let mut manager = KvCacheManager::from_directory(&config(), EPOCH, [(4, key(1))], tails);
    assert_eq!(kept(&manager), [ALICE]);
    let gone = |id| DirectoryUpdate::TailGone { request: RequestId(id) };
    assert_eq!(manager.drain_directory_updates(), [2, 3, 4, 5].map(gone));
}

#[test]
fn an_allocation_takes_all_found_tokens_or_none() {
    let taken = |num_hit_tokens| {
        let ops = vec![look_up(ALICE, 8), allocate(ALICE, 8, num_hit_tokens)];
        execute(&mut successor(), ops).is_ok()
    };
    assert!(taken(7) && taken(0));
    assert!(!taken(4) && !taken(8));
}

/// Two groups, of which the second reads six tokens. Each has a tail block.
#[test]
fn a_tail_has_a_block_of_each_group() {
    let spec = KvSpec::of_layers(&[KvKind::Full, KvKind::Sliding { window: 6 }], 4, 1);
    let config = KvCacheConfig { num_blocks: 13, num_step_tokens: 64, spec };
    let of_group = |group: usize, block: u8| BlockKey::new(&hash(block), group);
    let sealed = [
        (1, of_group(0, 1)),
        (2, of_group(0, 2)),
        (3, of_group(0, 3)),
        (4, of_group(1, 2)),
        (5, of_group(1, 3)),
    ];
    let tail = Tail { blocks: [6, 7].into_iter().collect(), index: 3, caught_up_at: 13 };
    let successor =
        || KvCacheManager::from_directory(&config, EPOCH, sealed, [(ALICE, tail.clone())]);
    let mut manager = successor();
    let results = execute(&mut manager, vec![look_up(ALICE, 15), allocate(ALICE, 15, 14)]);
    let block_ids: BlockIds = [vec![1, 2, 3, 6], vec![0, 4, 5, 7]].into_iter().collect();
    assert_eq!(results.unwrap()[1], AllocationResult::Allocated { block_ids });
    assert_eq!(manager.held_tails().collect::<Vec<_>>(), [(ALICE, &tail)]);

    // The tail became full, and the crash came before it was sealed.
    let mut manager = successor();
    assert_eq!(hit(&mut manager, ALICE, 17), 16);
    assert_eq!(
        (manager.pool().key_of(6), manager.pool().key_of(7)),
        (Some(of_group(0, 4)), Some(of_group(1, 4)),)
    );

    // A block of another request takes the place of one of the two.
    let mut manager = successor();
    let most = AllocateOp { full_blocks: vec![], ..op(allocate(BOB, 20, 0)) };
    execute(&mut manager, vec![AllocationOp::Allocate(most)]).unwrap();
    assert_eq!(kept(&manager), [ALICE], "there were ten other blocks");
    let more = AllocateOp { full_blocks: vec![], ..op(allocate(BOB, 24, 0)) };
    execute(&mut manager, vec![AllocationOp::Allocate(more)]).unwrap();
    assert_eq!(kept(&manager), []);
}
