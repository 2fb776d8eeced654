//! Tenants share turns by tokens, and the choices of a request take turns with other requests.

use playhouse_actors::logic::{
    admission::Tenant,
    request::{
        EngineRequest,
        ids::{Epoch, RequestId, Step},
    },
    scheduler::{RecoveredRequest, SchedulerConfig, SchedulingPolicy},
};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

const ALICE: Option<Tenant> = Some(Tenant(0));
const BOB: Option<Tenant> = Some(Tenant(1));

/// Returns a request that ends with its first token.
fn short(id: u64, tenant: Option<Tenant>, len: usize) -> EngineRequest {
    let mut request = EngineRequest { tenant, ..request(id, own_prompt(id, len)) };
    request.sampling_mut().max_tokens = 1;
    request
}

/// Returns one of the choices of the request that began with `group`.
fn choice(id: u64, group: u64) -> EngineRequest {
    let choice = (id - group) as u32;
    EngineRequest { group: RequestId(group), choice, arrival: group, ..short(id, None, 10) }
}

fn one_seat() -> Harness {
    Harness::new(SchedulerConfig { max_num_seqs: 1, ..roomy() })
}

/// Returns the order in which `count` requests run, one in each step.
fn order(harness: &mut Harness, count: usize) -> Vec<u64> {
    (0..count).flat_map(|_| harness.step().into_keys()).collect()
}

#[test]
fn the_tenant_with_the_fewest_tokens_is_next() {
    let mut harness = one_seat();
    for id in 0..6 {
        harness.add(short(id, ALICE, 10));
    }
    harness.add(short(6, BOB, 30));
    harness.add(short(7, BOB, 30));
    assert_eq!(harness.waiting(), [0, 6, 1, 7, 2, 3, 4, 5]);
    // Alice has 10 tokens and Bob has 30. At 30 each, the request accepted first is next.
    assert_eq!(order(&mut harness, 8), [0, 6, 1, 2, 3, 7, 4, 5]);
}

#[test]
fn seats_of_one_step_are_shared_too() {
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 4, ..roomy() });
    for id in 0..4 {
        harness.add(short(id, ALICE, 10));
    }
    harness.add(short(4, BOB, 10));
    harness.add(short(5, BOB, 10));
    assert_eq!(harness.step(), tokens([(0, 10), (1, 10), (4, 10), (5, 10)]));
}

#[test]
fn an_absent_tenant_gains_no_credit() {
    let mut harness = one_seat();
    harness.add(short(0, BOB, 10));
    harness.step();
    for id in 1..7 {
        harness.add(short(id, ALICE, 100));
    }
    assert_eq!(order(&mut harness, 3), [1, 2, 3]);
    for id in 7..10 {
        harness.add(short(id, BOB, 100));
    }
    assert_eq!(order(&mut harness, 6), [4, 7, 5, 8, 6, 9]);
}

#[test]
fn the_choices_of_a_request_take_turns_with_others() {
    let mut harness = one_seat();
    for id in 0..5 {
        harness.add(choice(id, 0));
    }
    harness.add(choice(5, 5));
    harness.add(choice(6, 6));
    assert_eq!(harness.waiting(), [0, 5, 1, 6, 2, 3, 4]);
    assert_eq!(order(&mut harness, 4), [0, 5, 1, 6]);
    // A later request follows the turn that is being served, not the choices after it.
    harness.add(choice(7, 7));
    assert_eq!(harness.waiting(), [2, 7, 3, 4]);
}

#[test]
fn after_a_crash_choices_take_turns_as_well() {
    let mut harness = one_seat();
    let live = (100..105).map(|id| choice(id, 0)).chain([choice(105, 105), choice(106, 106)]);
    let live = live.map(|request| RecoveredRequest {
        request: request.into(),
        output_token_ids: Vec::new(),
        num_prompt_logprobs: 0,
    });
    harness.scheduler.recover(Epoch(1), Step(0), live.collect());
    assert_eq!(harness.waiting(), [100, 105, 101, 106, 102, 103, 104]);
}

#[test]
fn by_priority_first_choices_come_first() {
    let policy = SchedulingPolicy::Priority;
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 1, policy, ..roomy() });
    for id in 0..3 {
        harness.add(choice(id, 0));
    }
    harness.add(EngineRequest { priority: -1, ..choice(3, 3) });
    harness.add(choice(4, 4));
    harness.add(EngineRequest { tenant: BOB, priority: 1, ..choice(5, 5) });
    assert_eq!(order(&mut harness, 6), [3, 0, 4, 1, 2, 5]);
}

#[test]
fn by_priority_a_later_submission_of_a_group_is_no_later_choice() {
    let policy = SchedulingPolicy::Priority;
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 1, policy, ..roomy() });
    let step_of_a_beam = |id| EngineRequest { group: RequestId(0), arrival: id, ..choice(id, id) };
    harness.add(choice(0, 0));
    harness.add(step_of_a_beam(2));
    harness.add(choice(3, 3));
    harness.add(step_of_a_beam(7));
    harness.add(choice(8, 8));
    assert_eq!(order(&mut harness, 5), [0, 2, 3, 7, 8]);
}

/// Adds requests of `tenant` that run until they are stopped.
fn fill(
    harness: &mut Harness,
    ids: std::ops::Range<u64>,
    tenant: Option<Tenant>,
    group: Option<u64>,
) {
    for id in ids {
        let group = RequestId(group.unwrap_or(id));
        let choice = (id - group.0) as u32;
        let request = request(id, own_prompt(id, 10));
        harness.add(EngineRequest { tenant, group, choice, ..request });
    }
}

#[test]
fn an_owner_without_a_seat_gets_one_of_the_owner_with_most() {
    for group in [None, Some(0)] {
        let (alice, bob) = if group.is_none() { (ALICE, BOB) } else { (None, None) };
        let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 4, ..roomy() });
        fill(&mut harness, 0..6, alice, group);
        harness.step();
        assert_eq!(harness.running(), [0, 1, 2, 3]);
        harness.add(short(6, bob, 10));
        assert_eq!(harness.step()[&6], 10);
        assert_eq!(harness.last.output.preempted, [RequestId(3)]);
        assert_eq!(harness.finish_reason(6).unwrap().as_str(), "length");
        harness.step();
        assert_eq!(harness.running(), [0, 1, 2, 3], "the seat is returned");
        assert_eq!(harness.scheduler.stats().num_preemptions, 1);
    }
}

#[test]
fn requests_of_one_choice_keep_their_seats() {
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 4, ..roomy() });
    fill(&mut harness, 0..4, None, None);
    harness.step();
    harness.add(short(4, None, 10));
    for _ in 0..5 {
        assert!(!harness.step().contains_key(&4));
    }
    assert_eq!(harness.scheduler.stats().num_preemptions, 0);
}

#[test]
fn blocks_are_given_as_seats_are() {
    // Alice's four prompts of 20 tokens use all 8 blocks.
    let config = SchedulerConfig { num_blocks: 9, enable_prefix_caching: false, ..roomy() };
    let mut harness = Harness::new(config);
    for id in 0..4 {
        harness.add(EngineRequest { tenant: ALICE, ..request(id, own_prompt(id, 20)) });
    }
    harness.step();
    harness.add(short(4, BOB, 20));
    harness.step();
    assert_eq!(harness.step()[&4], 20);
    assert_eq!(harness.running(), [0, 1, 2]);
}

#[test]
fn when_blocks_are_short_the_owner_with_most_blocks_is_preempted() {
    let config = SchedulerConfig { num_blocks: 7, enable_prefix_caching: false, ..roomy() };
    let mut harness = Harness::new(config);
    for id in 0..2 {
        harness.add(EngineRequest { tenant: ALICE, ..request(id, own_prompt(id, 30)) });
    }
    harness.step();
    harness.add(EngineRequest { tenant: BOB, ..request(2, own_prompt(2, 32)) });
    harness.step();
    harness.plan();
    assert_eq!(harness.last.output.preempted, [RequestId(1)], "though Bob came last");
    assert_eq!(harness.running(), [0, 2]);
}
