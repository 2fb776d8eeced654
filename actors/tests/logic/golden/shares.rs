//! Tenants share turns by tokens, and the choices of a request take turns with other requests.

use playhouse_actors::logic::{
    admission::Tenant,
    request::{
        EngineRequest,
        ids::{Epoch, RequestId, Step},
    },
    scheduler::{RecoveredRequest, SchedulerConfig, SchedulingPolicy},
};

use crate::house::{House, own_prompt, request, roomy, tokens};

const ALICE: Option<Tenant> = Some(Tenant(0));
const BOB: Option<Tenant> = Some(Tenant(1));

/// One that ends with its first token.
fn short(id: u64, tenant: Option<Tenant>, len: usize) -> EngineRequest {
    let mut request = EngineRequest { tenant, ..request(id, own_prompt(id, len)) };
    request.sampling_mut().max_tokens = 1;
    request
}

/// One of the choices of the request that began with `group`.
fn choice(id: u64, group: u64) -> EngineRequest {
    let choice = (id - group) as u32;
    EngineRequest { group: RequestId(group), choice, arrival: group, ..short(id, None, 10) }
}

fn one_seat() -> House {
    House::new(SchedulerConfig { max_num_seqs: 1, ..roomy() })
}

/// In which order `count` requests run, one a step.
fn order(house: &mut House, count: usize) -> Vec<u64> {
    (0..count).flat_map(|_| house.step().into_keys()).collect()
}

#[test]
fn the_tenant_with_the_fewest_tokens_is_next() {
    let mut house = one_seat();
    for id in 0..6 {
        house.add(short(id, ALICE, 10));
    }
    house.add(short(6, BOB, 30));
    house.add(short(7, BOB, 30));
    assert_eq!(house.waiting(), [0, 6, 1, 7, 2, 3, 4, 5]);
    // Alice has 10, Bob 30; at 30 each, the one accepted first.
    assert_eq!(order(&mut house, 8), [0, 6, 1, 2, 3, 7, 4, 5]);
}

#[test]
fn seats_of_one_step_are_shared_too() {
    let mut house = House::new(SchedulerConfig { max_num_seqs: 4, ..roomy() });
    for id in 0..4 {
        house.add(short(id, ALICE, 10));
    }
    house.add(short(4, BOB, 10));
    house.add(short(5, BOB, 10));
    assert_eq!(house.step(), tokens([(0, 10), (1, 10), (4, 10), (5, 10)]));
}

#[test]
fn a_tenant_that_was_away_has_no_credit() {
    let mut house = one_seat();
    house.add(short(0, BOB, 10));
    house.step();
    for id in 1..7 {
        house.add(short(id, ALICE, 100));
    }
    assert_eq!(order(&mut house, 3), [1, 2, 3]);
    for id in 7..10 {
        house.add(short(id, BOB, 100));
    }
    assert_eq!(order(&mut house, 6), [4, 7, 5, 8, 6, 9]);
}

#[test]
fn the_choices_of_a_request_take_turns_with_others() {
    let mut house = one_seat();
    for id in 0..5 {
        house.add(choice(id, 0));
    }
    house.add(choice(5, 5));
    house.add(choice(6, 6));
    assert_eq!(house.waiting(), [0, 5, 1, 6, 2, 3, 4]);
    assert_eq!(order(&mut house, 4), [0, 5, 1, 6]);
    // What comes later follows the turn that is being served, not the choices behind it.
    house.add(choice(7, 7));
    assert_eq!(house.waiting(), [2, 7, 3, 4]);
}

#[test]
fn after_a_crash_they_take_turns_as_well() {
    let mut house = one_seat();
    let live = (100..105).map(|id| choice(id, 0)).chain([choice(105, 105), choice(106, 106)]);
    let live = live.map(|request| RecoveredRequest {
        request: request.into(),
        output_token_ids: Vec::new(),
        num_prompt_logprobs: 0,
    });
    house.scheduler.recover(Epoch(1), Step(0), live.collect());
    assert_eq!(house.waiting(), [100, 105, 101, 106, 102, 103, 104]);
}

#[test]
fn by_priority_first_choices_come_first() {
    let policy = SchedulingPolicy::Priority;
    let mut house = House::new(SchedulerConfig { max_num_seqs: 1, policy, ..roomy() });
    for id in 0..3 {
        house.add(choice(id, 0));
    }
    house.add(EngineRequest { priority: -1, ..choice(3, 3) });
    house.add(choice(4, 4));
    house.add(EngineRequest { tenant: BOB, priority: 1, ..choice(5, 5) });
    assert_eq!(order(&mut house, 6), [3, 0, 4, 1, 2, 5]);
}

#[test]
fn by_priority_a_later_submission_of_a_group_is_no_later_choice() {
    let policy = SchedulingPolicy::Priority;
    let mut house = House::new(SchedulerConfig { max_num_seqs: 1, policy, ..roomy() });
    let step_of_a_beam = |id| EngineRequest { group: RequestId(0), arrival: id, ..choice(id, id) };
    house.add(choice(0, 0));
    house.add(step_of_a_beam(2));
    house.add(choice(3, 3));
    house.add(step_of_a_beam(7));
    house.add(choice(8, 8));
    assert_eq!(order(&mut house, 5), [0, 2, 3, 7, 8]);
}

/// Requests of `tenant` that run until they are stopped.
fn fill(house: &mut House, ids: std::ops::Range<u64>, tenant: Option<Tenant>, group: Option<u64>) {
    for id in ids {
        let group = RequestId(group.unwrap_or(id));
        let choice = (id - group.0) as u32;
        let request = request(id, own_prompt(id, 10));
        house.add(EngineRequest { tenant, group, choice, ..request });
    }
}

#[test]
fn who_runs_nothing_gets_a_seat_of_who_has_most() {
    for group in [None, Some(0)] {
        let (alice, bob) = if group.is_none() { (ALICE, BOB) } else { (None, None) };
        let mut house = House::new(SchedulerConfig { max_num_seqs: 4, ..roomy() });
        fill(&mut house, 0..6, alice, group);
        house.step();
        assert_eq!(house.running(), [0, 1, 2, 3]);
        house.add(short(6, bob, 10));
        assert_eq!(house.step()[&6], 10);
        assert_eq!(house.last.output.preempted, [RequestId(3)]);
        assert_eq!(house.finish_reason(6).unwrap().as_str(), "length");
        house.step();
        assert_eq!(house.running(), [0, 1, 2, 3], "which is given back");
        assert_eq!(house.scheduler.stats().num_preemptions, 1);
    }
}

#[test]
fn requests_of_one_choice_keep_their_seats() {
    let mut house = House::new(SchedulerConfig { max_num_seqs: 4, ..roomy() });
    fill(&mut house, 0..4, None, None);
    house.step();
    house.add(short(4, None, 10));
    for _ in 0..5 {
        assert!(!house.step().contains_key(&4));
    }
    assert_eq!(house.scheduler.stats().num_preemptions, 0);
}

#[test]
fn blocks_are_given_as_seats_are() {
    // 8 blocks: Alice's four prompts of 20 tokens hold all.
    let config = SchedulerConfig { num_blocks: 9, enable_prefix_caching: false, ..roomy() };
    let mut house = House::new(config);
    for id in 0..4 {
        house.add(EngineRequest { tenant: ALICE, ..request(id, own_prompt(id, 20)) });
    }
    house.step();
    house.add(short(4, BOB, 20));
    house.step();
    assert_eq!(house.step()[&4], 20);
    assert_eq!(house.running(), [0, 1, 2]);
}

#[test]
fn where_blocks_are_short_the_owner_that_holds_most_gives_way() {
    let config = SchedulerConfig { num_blocks: 7, enable_prefix_caching: false, ..roomy() };
    let mut house = House::new(config);
    for id in 0..2 {
        house.add(EngineRequest { tenant: ALICE, ..request(id, own_prompt(id, 30)) });
    }
    house.step();
    house.add(EngineRequest { tenant: BOB, ..request(2, own_prompt(2, 32)) });
    house.step();
    house.plan();
    assert_eq!(house.last.output.preempted, [RequestId(1)], "though Bob came last");
    assert_eq!(house.running(), [0, 2]);
}
