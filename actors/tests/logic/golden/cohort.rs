//! While a failure is traced to its request, only some may run.

use std::collections::BTreeSet;

use playhouse_actors::logic::{
    request::ids::RequestId,
    scheduler::{PauseState, SchedulerConfig, SchedulingPolicy, WaitingReason},
};

use crate::house::{House, own_prompt, request, roomy, tokens};

fn only<const N: usize>(ids: [u64; N]) -> Option<BTreeSet<RequestId>> {
    Some(ids.map(RequestId).into())
}

#[test]
fn only_members_are_scheduled_and_the_others_go_on_where_they_were() {
    let mut house = House::new(roomy());
    house.add_all(&[10, 10, 10]);
    house.step();
    house.scheduler.set_cohort(only([1]));
    assert_eq!(house.step(), tokens([(1, 1)]));
    assert_eq!(house.running(), [0, 1, 2], "they keep their blocks");
    house.scheduler.set_cohort(None);
    assert_eq!(house.step(), tokens([(0, 1), (1, 1), (2, 1)]));
    assert_eq!(house.output(0).len(), 2);
}

#[test]
fn only_members_are_admitted_in_their_order() {
    let mut house = House::new(roomy());
    house.add_all(&[10; 5]);
    house.scheduler.set_cohort(only([3, 1]));
    assert_eq!(house.step(), tokens([(1, 10), (3, 10)]));
    assert_eq!(house.running(), [1, 3]);
    let suspects = WaitingReason::Suspects;
    let waiting = [0, 2, 4].map(|id| (RequestId(id), suspects));
    assert_eq!(house.scheduler.waiting_reasons(), waiting);
    assert_eq!(house.scheduler.stats().waiting_reason, suspects);
    assert_eq!(suspects.class(), "deferred");
}

#[test]
fn a_member_that_waits_has_its_own_reason() {
    let mut house = House::new(SchedulerConfig { max_num_batched_tokens: 10, ..roomy() });
    house.add_all(&[10, 10, 10]);
    house.scheduler.set_cohort(only([1, 2]));
    assert_eq!(house.step(), tokens([(1, 10)]));
    let reasons = [(0, WaitingReason::Suspects), (2, WaitingReason::TokenBudget)];
    assert_eq!(house.scheduler.waiting_reasons(), reasons.map(|(id, why)| (RequestId(id), why)));
}

#[test]
fn a_cohort_without_a_live_member_stops_nobody() {
    let mut house = House::new(roomy());
    house.add_all(&[10, 10]);
    house.scheduler.set_cohort(only([1, 7]));
    assert_eq!(house.step(), tokens([(1, 10)]));
    house.finish(&[1]);
    assert_eq!(house.step(), tokens([(0, 10)]));
}

#[test]
fn a_member_takes_the_seat_of_another() {
    let mut house = House::new(SchedulerConfig { max_num_seqs: 2, ..roomy() });
    house.add_all(&[10; 4]);
    house.step();
    house.scheduler.set_cohort(only([2, 3]));
    assert_eq!(house.step(), tokens([(2, 10)]));
    assert_eq!(house.last.output.preempted, [RequestId(1)], "the last one gives way");
    assert_eq!(house.running(), [0, 2]);
    assert_eq!(house.step(), tokens([(2, 1)]), "one member gets on, so nobody else gives way");
    house.finish(&[2]);
    assert_eq!(house.step(), tokens([(3, 10)]));
    house.finish(&[3]);
    assert_eq!(house.step(), tokens([(0, 1), (1, 11)]));
}

/// The first has four of five blocks, the second one.
fn full(policy: SchedulingPolicy) -> House {
    let config = SchedulerConfig {
        num_blocks: 6,
        policy,
        enable_prefix_caching: false,
        reserve_full_isl: false,
        ..roomy()
    };
    let mut house = House::new(config);
    house.add_all(&[60, 16]);
    house.step();
    house
}

#[test]
fn a_member_grows_at_the_cost_of_others() {
    for policy in [SchedulingPolicy::Fcfs, SchedulingPolicy::Priority] {
        let mut house = full(policy);
        house.scheduler.set_cohort(only([1]));
        assert_eq!(house.step(), tokens([(1, 1)]));
        assert_eq!(house.last.output.preempted, [RequestId(0)], "not the last one: it is a member");
        house.scheduler.set_cohort(None);
        assert_eq!(house.step(), tokens([(1, 1)]));
    }
}

#[test]
fn a_member_is_admitted_at_the_cost_of_others() {
    let mut house = full(SchedulingPolicy::Fcfs);
    house.add(request(2, own_prompt(2, 40)));
    house.scheduler.set_cohort(only([2]));
    assert_eq!(house.step(), tokens([(2, 40)]), "in the same step");
    assert_eq!(house.last.output.preempted, [RequestId(1), RequestId(0)]);
    assert_eq!(house.waiting(), [0, 1], "in the order in which they ran");
    assert_eq!(house.last.stats.num_preempted, 2);
}

#[test]
fn nobody_gives_way_while_a_member_gets_on() {
    let mut house = full(SchedulingPolicy::Fcfs);
    house.add(request(2, own_prompt(2, 40)));
    house.scheduler.set_cohort(only([0, 2]));
    assert_eq!(house.step(), tokens([(0, 1)]));
    assert_eq!(house.running(), [0, 1]);
    assert_eq!(house.scheduler.stats().waiting_reason, WaitingReason::KvCache);
}

#[test]
fn the_prefill_interval_holds_nobody_up_for_requests_that_stand_still() {
    let mut house = House::new(SchedulerConfig { prefill_schedule_interval: 9, ..roomy() });
    house.add_all(&[10]);
    house.step();
    house.add(request(1, own_prompt(1, 10)));
    house.scheduler.set_cohort(only([1]));
    assert_eq!(house.step(), tokens([(1, 10)]));
}

#[test]
fn a_pause_is_a_pause() {
    let mut house = House::new(SchedulerConfig { max_num_seqs: 1, ..roomy() });
    house.add_all(&[10, 10]);
    house.step();
    house.scheduler.set_cohort(only([1]));
    for pause in [PauseState::PausedNew, PauseState::PausedAll] {
        house.scheduler.set_pause(pause);
        assert_eq!(house.step(), tokens([]));
        assert_eq!(house.running(), [0], "nobody gives way for one that may not come");
    }
}
