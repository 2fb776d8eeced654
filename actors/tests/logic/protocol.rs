//! The protocol between scheduler and KV cache manager, and how each detects errors of the other.

use std::sync::Arc;

use playhouse_actors::{
    error::ActorError,
    logic::{
        kv_cache::{
            DirectoryUpdate, KvCacheConfig, KvCacheManager, KvSpec,
            allocation::{AllocateOp, AllocationOp, AllocationPlan, AllocationResult, PlanError},
            block_pool::BlockKey,
            hashes::BlockHash,
        },
        request::ids::{BlockId, Epoch, RequestId, Step},
        scheduler::{RecoveredRequest, Scheduler, SchedulerConfig, WaitingReason},
    },
};

use crate::harness::{Harness, Tokens, own_prompt, request, roomy, tokens};

fn config() -> KvCacheConfig {
    KvCacheConfig { num_blocks: 6, num_step_tokens: 64, spec: KvSpec::full(1, 4, 1) }
}
const ALICE: RequestId = RequestId(1);
const BOB: RequestId = RequestId(2);

fn plan(step: u64, completed_step: Option<u64>, ops: Vec<AllocationOp>) -> AllocationPlan {
    let completed_step = completed_step.map(Step);
    AllocationPlan { epoch: Epoch(3), step: Step(step), round: 0, completed_step, ops }
}

fn hash(content: u8) -> BlockHash {
    BlockHash([content; 32])
}

fn key(content: u8) -> BlockKey {
    BlockKey::new(&hash(content), 0)
}

/// Allocates room for `num_tokens`, of which `num_hit_tokens` were found, and registers `contents`.
fn allocate(
    request: RequestId,
    num_tokens: usize,
    num_hit_tokens: usize,
    contents: &[u8],
) -> AllocationOp {
    AllocationOp::Allocate(AllocateOp {
        request,
        num_tokens,
        num_hit_tokens,
        num_settled_tokens: num_hit_tokens,
        num_tokens_to_fit: num_tokens,
        spare_blocks: 0,
        full_blocks: contents.iter().map(|&content| hash(content)).collect(),
        catches_up: false,
    })
}

fn look_up(request: RequestId, contents: &[u8]) -> AllocationOp {
    let block_hashes = Arc::new(contents.iter().map(|&content| hash(content)).collect());
    let max_tokens = 4 * contents.len();
    AllocationOp::Lookup { request, block_hashes, max_tokens, with_tail: false }
}

fn allocated(block_ids: &[BlockId]) -> AllocationResult {
    AllocationResult::Allocated { block_ids: block_ids.to_vec().into() }
}

#[test]
fn a_block_is_sealed_after_its_step_and_reported_before_it_is_reused() {
    let mut manager = KvCacheManager::new(&config());
    let results = |manager: &mut KvCacheManager, plan| manager.execute(&plan).unwrap().results;
    let first = results(&mut manager, plan(1, None, vec![allocate(ALICE, 9, 0, &[1, 2])]));
    assert_eq!(first, [allocated(&[1, 2, 3])]);
    assert_eq!(manager.drain_directory_updates(), [], "the step may still fail");
    let free = AllocationOp::Free { request: ALICE, discard: None };
    results(&mut manager, plan(2, Some(1), vec![free]));
    let sealed = |block, content| DirectoryUpdate::Sealed { block, hash: hash(content), group: 0 };
    assert_eq!(manager.drain_directory_updates(), [sealed(1, 1), sealed(2, 2)]);
    // Four of five blocks are needed, so one of the two sealed blocks is evicted: the last of the
    // chain.
    results(&mut manager, plan(3, None, vec![allocate(BOB, 16, 0, &[])]));
    assert_eq!(manager.drain_directory_updates(), [DirectoryUpdate::Evicted { block: 2 }]);
}

#[test]
fn a_successor_offers_only_sealed_blocks() {
    let directory = [(4, key(1)), (2, key(2)), (0, key(3)), (9, key(4)), (4, key(5))];
    let mut manager = KvCacheManager::from_directory(&config(), Epoch(3), directory, []);
    let free: Vec<BlockId> = manager.pool().free_block_ids().collect();
    assert_eq!(free, [1, 3, 5, 4, 2], "the null block, unknown and repeated ones are left out");
    let ops = vec![look_up(ALICE, &[1, 2, 3]), allocate(ALICE, 12, 8, &[])];
    let allocation = manager.execute(&plan(1, None, ops)).unwrap();
    assert_eq!(allocation.results[0], AllocationResult::Hit { num_tokens: 8 });
    assert_eq!(allocation.results[1], allocated(&[4, 2, 1]));
    assert_eq!(allocation.num_free_blocks, 2);
}

#[test]
fn a_new_epoch_frees_all_blocks_and_keeps_only_sealed_content() {
    let mut manager = KvCacheManager::new(&config());
    manager.execute(&plan(1, None, vec![allocate(ALICE, 8, 0, &[1])])).unwrap();
    let seal_first = plan(2, Some(1), vec![allocate(ALICE, 12, 0, &[2, 3])]);
    manager.execute(&seal_first).unwrap();
    let next = AllocationPlan { epoch: Epoch(4), ..plan(3, None, vec![look_up(BOB, &[1, 2])]) };
    let allocation = manager.execute(&next).unwrap();
    assert_eq!(allocation.results, [AllocationResult::Hit { num_tokens: 4 }]);
    assert_eq!((allocation.num_free_blocks, allocation.usage), (5, 0.0));
    let stale = PlanError::Stale { plan: Epoch(3), current: Epoch(4) };
    assert_eq!(manager.execute(&seal_first), Err(stale));
}

#[test]
fn a_plan_is_executed_up_to_the_first_refusal() {
    let mut manager = KvCacheManager::new(&config());
    let ops = vec![
        allocate(ALICE, 16, 0, &[]),
        allocate(BOB, 8, 0, &[]),
        AllocationOp::Free { request: ALICE, discard: None },
    ];
    let allocation = manager.execute(&plan(1, None, ops)).unwrap();
    assert_eq!(allocation.results, [allocated(&[1, 2, 3, 4]), AllocationResult::Refused]);
    assert_eq!(manager.block_ids(BOB), None);
    assert_eq!(allocation.num_free_blocks, 1);
}

#[test]
fn contradictory_plans_are_rejected() {
    let refused = |ops| {
        let mut manager = KvCacheManager::from_directory(&config(), Epoch(3), [(1, key(1))], []);
        matches!(manager.execute(&plan(1, None, ops)), Err(PlanError::Invalid { .. }))
    };
    assert!(refused(vec![allocate(ALICE, 8, 4, &[])]), "nothing was looked up");
    let between = AllocationOp::Free { request: BOB, discard: None };
    assert!(refused(vec![look_up(ALICE, &[1]), between, allocate(ALICE, 8, 4, &[])]));
    assert!(refused(vec![look_up(BOB, &[1]), allocate(ALICE, 8, 4, &[])]));
    let holds = allocate(ALICE, 4, 0, &[]);
    assert!(refused(vec![holds, look_up(ALICE, &[1]), allocate(ALICE, 8, 4, &[])]));
    assert!(refused(vec![allocate(ALICE, 7, 0, &[1, 2])]), "two blocks of four in seven tokens");
    assert!(!refused(vec![look_up(ALICE, &[1]), allocate(ALICE, 8, 4, &[2])]));
}

#[test]
fn a_step_is_begun_planned_and_finished_in_this_order() {
    let mut scheduler = Scheduler::new(roomy());
    assert!(matches!(scheduler.finish_step(), Err(ActorError::Invariant(_))));
    scheduler.add(Arc::new(request(0, own_prompt(0, 10))));
    scheduler.begin_step(0).unwrap();
    assert!(scheduler.next_plan().is_some());
    assert!(matches!(scheduler.finish_step(), Err(ActorError::Invariant(_))), "no answer");

    let mut harness = Harness::new(roomy());
    harness.add_all(&[10]);
    harness.plan();
    assert!(matches!(harness.scheduler.begin_step(0), Err(ActorError::Invariant(_))), "in flight");
}

#[test]
fn only_the_answer_to_the_last_plan_is_taken() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10]);
    harness.scheduler.begin_step(0).unwrap();
    let plan = harness.scheduler.next_plan().unwrap();
    let answer = harness.kv_cache.execute(&plan).unwrap();
    let mut of_another_round = answer.clone();
    of_another_round.round += 1;
    harness.scheduler.apply(of_another_round).unwrap();
    harness.scheduler.apply(answer.clone()).unwrap();
    harness.scheduler.apply(answer.clone()).unwrap();
    assert_eq!(harness.scheduler.stats().num_stale, 2);
    assert_eq!(harness.scheduler.next_plan(), None);
    assert_eq!(harness.scheduler.finish_step().unwrap().output.total_num_scheduled_tokens, 10);
    harness.scheduler.apply(answer).unwrap();
    assert_eq!(harness.scheduler.stats().num_stale, 3);
}

#[test]
fn an_answer_that_does_not_fit_the_plan_is_an_error() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10]);
    harness.scheduler.begin_step(0).unwrap();
    let plan = harness.scheduler.next_plan().unwrap();
    let mut answer = harness.kv_cache.execute(&plan).unwrap();
    answer.results = vec![AllocationResult::Freed];
    assert!(matches!(harness.scheduler.apply(answer), Err(ActorError::Invariant(_))));
}

#[test]
fn a_request_that_is_aborted_during_planning_ends_after_it() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10, 10]);
    harness.scheduler.begin_step(0).unwrap();
    let plan = harness.scheduler.next_plan().unwrap();
    assert_eq!(harness.finish(&[0]), [0]);
    harness.scheduler.apply(harness.kv_cache.execute(&plan).unwrap()).unwrap();
    harness.last = harness.scheduler.finish_step().unwrap();
    assert_eq!(harness.running(), [1]);
    assert_eq!(harness.compute(5).len(), 1);
    assert_eq!(harness.step(), tokens([(1, 1)]));
    assert_eq!(harness.blocks(0), [0; 0]);
}

#[test]
fn a_row_that_the_worker_left_out_is_computed_again() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10, 10]);
    harness.plan();
    let mut output = crate::harness::answer(&harness.last.output, |_| vec![1]);
    output.outputs.remove(0);
    assert_eq!(harness.scheduler.update_from_output(output, 0).len(), 1);
    assert_eq!(harness.plan(), tokens([(0, 10), (1, 1)]));
}

#[test]
fn the_next_step_computes_tokens_beyond_the_draws() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10, 10]);
    harness.plan();
    let draw = |id: RequestId| vec![7; 2 - id.0 as usize];
    let output = crate::harness::answer(&harness.last.output, draw);
    let commits = harness.scheduler.update_from_output(output, 0);
    assert_eq!(
        commits.iter().map(|commit| commit.produced.tokens().len()).collect::<Vec<_>>(),
        [2, 1]
    );
    assert_eq!(harness.plan(), tokens([(0, 2), (1, 1)]));
}

#[test]
fn rows_in_another_order_find_their_requests() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10, 10, 10]);
    harness.plan();
    let mut output = crate::harness::answer(&harness.last.output, |id| vec![id.0 as u32]);
    output.outputs.reverse();
    let commits = harness.scheduler.update_from_output(output, 0);
    let pairs =
        commits.iter().map(|commit| (commit.request.0, commit.produced.tokens()[0].token_id));
    assert_eq!(pairs.collect::<Vec<_>>(), [(2, 2), (1, 1), (0, 0)]);
}

/// Returns a request that had this output before a crash. Its prompt has 10 tokens.
fn recovered(id: u64, output: &[u32]) -> RecoveredRequest {
    RecoveredRequest {
        request: Arc::new(request(id, own_prompt(id, 10))),
        output_token_ids: output.to_vec(),
        num_prompt_logprobs: 0,
    }
}

#[test]
fn recovered_requests_continue_where_they_were() {
    let mut harness = Harness::new(SchedulerConfig { enable_prefix_caching: false, ..roomy() });
    let live = vec![recovered(5, &[]), recovered(3, &[7, 8])];
    harness.scheduler.recover(Epoch(1), Step(41), live);
    assert_eq!(harness.plan(), tokens([(3, 12)]), "requests with an output go first");
    assert_eq!((harness.last.output.epoch, harness.last.output.step), (Epoch(1), Step(42)));
    assert_eq!(harness.last.stats.first_scheduled.len(), 0, "it was served before");
    assert_eq!(harness.scheduler.waiting_reasons(), [(RequestId(5), WaitingReason::Recovery)]);
    let commits = harness.compute(9);
    assert_eq!((commits[0].request.0, commits[0].position), (3, 2));
    assert_eq!(harness.plan(), tokens([(3, 1), (5, 10)]));
    assert_eq!(harness.last.stats.first_scheduled.len(), 1);
}

#[test]
fn after_a_crash_each_step_begins_twice_as_many_prompts() {
    let mut harness = Harness::new(SchedulerConfig { enable_prefix_caching: false, ..roomy() });
    let waiting = (1..9).map(|id| recovered(id, &[]));
    let live = [recovered(0, &[7])].into_iter().chain(waiting).collect();
    harness.scheduler.recover(Epoch(1), Step(41), live);
    assert_eq!(harness.step(), tokens([(0, 11)]));
    assert_eq!(harness.step(), tokens([(0, 1), (1, 10), (2, 10)]));
    assert_eq!(harness.scheduler.waiting_reasons()[0], (RequestId(3), WaitingReason::Recovery));
    let rows = |begun: u64, all: u64| -> Tokens {
        (0..all).map(|id| (id, if id < begun { 1 } else { 10 })).collect()
    };
    assert_eq!(harness.step(), rows(3, 7));
    assert_eq!(harness.step(), rows(7, 9));
}

#[test]
fn suspects_without_an_output_wait_for_those_with_one() {
    let mut harness = Harness::new(SchedulerConfig { enable_prefix_caching: false, ..roomy() });
    let suspects = |ids: &[u64]| Some(ids.iter().map(|&id| RequestId(id)).collect());
    let live = vec![recovered(0, &[7]), recovered(1, &[]), recovered(2, &[]), recovered(3, &[8])];
    harness.scheduler.recover(Epoch(1), Step(41), live);
    harness.scheduler.set_cohort(suspects(&[0, 1, 2]));
    assert_eq!(harness.step(), tokens([(0, 11)]));
    // The first one has been cleared by its token.
    harness.scheduler.set_cohort(suspects(&[1, 2]));
    assert_eq!(harness.step(), tokens([(1, 10), (2, 10)]));
    harness.scheduler.set_cohort(None);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 1), (2, 1), (3, 11)]));
}

#[test]
fn after_a_crash_without_outputs_prompts_begin_together() {
    let mut harness = Harness::new(SchedulerConfig { enable_prefix_caching: false, ..roomy() });
    harness.scheduler.recover(Epoch(1), Step(41), (0..4).map(|id| recovered(id, &[])).collect());
    harness.add(request(4, own_prompt(4, 10)));
    assert_eq!(harness.step(), tokens([(0, 10), (1, 10), (2, 10), (3, 10), (4, 10)]));
    harness.add(request(5, own_prompt(5, 10)));
    harness.add(request(6, own_prompt(6, 10)));
    let begun = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)];
    let all = begun.into_iter().chain([(5, 10), (6, 10)]);
    assert_eq!(harness.step(), all.collect::<Tokens>());
}
