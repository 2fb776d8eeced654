//! Cohorts: while a failure is traced to its request, only some requests may run.

use std::collections::BTreeSet;

use playhouse_actors::logic::{
    request::ids::RequestId,
    scheduler::{PauseState, SchedulerConfig, SchedulingPolicy, WaitingReason},
};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

fn only<const N: usize>(ids: [u64; N]) -> Option<BTreeSet<RequestId>> {
    Some(ids.map(RequestId).into())
}

#[test]
fn only_members_are_scheduled_and_the_others_continue_afterwards() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10, 10, 10]);
    harness.step();
    harness.scheduler.set_cohort(only([1]));
    assert_eq!(harness.step(), tokens([(1, 1)]));
    assert_eq!(harness.running(), [0, 1, 2], "they keep their blocks");
    harness.scheduler.set_cohort(None);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 1), (2, 1)]));
    assert_eq!(harness.output(0).len(), 2);
}

#[test]
fn only_members_are_admitted_in_their_order() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10; 5]);
    harness.scheduler.set_cohort(only([3, 1]));
    assert_eq!(harness.step(), tokens([(1, 10), (3, 10)]));
    assert_eq!(harness.running(), [1, 3]);
    let suspects = WaitingReason::Suspects;
    let waiting = [0, 2, 4].map(|id| (RequestId(id), suspects));
    assert_eq!(harness.scheduler.waiting_reasons(), waiting);
    assert_eq!(harness.scheduler.stats().waiting_reason, suspects);
    assert_eq!(suspects.class(), "deferred");
}

#[test]
fn a_member_that_waits_has_its_own_reason() {
    let mut harness = Harness::new(SchedulerConfig { max_num_batched_tokens: 10, ..roomy() });
    harness.add_all(&[10, 10, 10]);
    harness.scheduler.set_cohort(only([1, 2]));
    assert_eq!(harness.step(), tokens([(1, 10)]));
    let reasons = [(0, WaitingReason::Suspects), (2, WaitingReason::TokenBudget)];
    assert_eq!(harness.scheduler.waiting_reasons(), reasons.map(|(id, why)| (RequestId(id), why)));
}

#[test]
fn a_cohort_without_a_live_member_stops_no_request() {
    let mut harness = Harness::new(roomy());
    harness.add_all(&[10, 10]);
    harness.scheduler.set_cohort(only([1, 7]));
    assert_eq!(harness.step(), tokens([(1, 10)]));
    harness.finish(&[1]);
    assert_eq!(harness.step(), tokens([(0, 10)]));
}

#[test]
fn a_member_takes_the_place_of_another_request() {
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 2, ..roomy() });
    harness.add_all(&[10; 4]);
    harness.step();
    harness.scheduler.set_cohort(only([2, 3]));
    assert_eq!(harness.step(), tokens([(2, 10)]));
    assert_eq!(harness.last.output.preempted, [RequestId(1)], "the last one is preempted");
    assert_eq!(harness.running(), [0, 2]);
    assert_eq!(
        harness.step(),
        tokens([(2, 1)]),
        "one member makes progress, so no other request is preempted"
    );
    harness.finish(&[2]);
    assert_eq!(harness.step(), tokens([(3, 10)]));
    harness.finish(&[3]);
    assert_eq!(harness.step(), tokens([(0, 1), (1, 11)]));
}

/// Returns a full engine: the first request has four of five blocks, the second has one.
fn full(policy: SchedulingPolicy) -> Harness {
    let config = SchedulerConfig {
        num_blocks: 6,
        policy,
        enable_prefix_caching: false,
        reserve_full_isl: false,
        ..roomy()
    };
    let mut harness = Harness::new(config);
    harness.add_all(&[60, 16]);
    harness.step();
    harness
}

#[test]
fn a_member_grows_at_the_cost_of_others() {
    for policy in [SchedulingPolicy::Fcfs, SchedulingPolicy::Priority] {
        let mut harness = full(policy);
        harness.scheduler.set_cohort(only([1]));
        assert_eq!(harness.step(), tokens([(1, 1)]));
        assert_eq!(
            harness.last.output.preempted,
            [RequestId(0)],
            "not the last one: it is a member"
        );
        harness.scheduler.set_cohort(None);
        assert_eq!(harness.step(), tokens([(1, 1)]));
    }
}

#[test]
fn a_member_is_admitted_at_the_cost_of_others() {
    let mut harness = full(SchedulingPolicy::Fcfs);
    harness.add(request(2, own_prompt(2, 40)));
    harness.scheduler.set_cohort(only([2]));
    assert_eq!(harness.step(), tokens([(2, 40)]), "in the same step");
    assert_eq!(harness.last.output.preempted, [RequestId(1), RequestId(0)]);
    assert_eq!(harness.waiting(), [0, 1], "in the order in which they ran");
    assert_eq!(harness.last.stats.preempted.len(), 2);
}

#[test]
fn no_request_is_preempted_while_a_member_makes_progress() {
    let mut harness = full(SchedulingPolicy::Fcfs);
    harness.add(request(2, own_prompt(2, 40)));
    harness.scheduler.set_cohort(only([0, 2]));
    assert_eq!(harness.step(), tokens([(0, 1)]));
    assert_eq!(harness.running(), [0, 1]);
    assert_eq!(harness.scheduler.stats().waiting_reason, WaitingReason::KvCache);
}

#[test]
fn the_prefill_interval_ignores_requests_outside_the_cohort() {
    let mut harness = Harness::new(SchedulerConfig { prefill_schedule_interval: 9, ..roomy() });
    harness.add_all(&[10]);
    harness.step();
    harness.add(request(1, own_prompt(1, 10)));
    harness.scheduler.set_cohort(only([1]));
    assert_eq!(harness.step(), tokens([(1, 10)]));
}

#[test]
fn a_pause_also_stops_members() {
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 1, ..roomy() });
    harness.add_all(&[10, 10]);
    harness.step();
    harness.scheduler.set_cohort(only([1]));
    for pause in [PauseState::PausedNew, PauseState::PausedAll] {
        harness.scheduler.set_pause(pause);
        assert_eq!(harness.step(), tokens([]));
        assert_eq!(harness.running(), [0], "no request is preempted for one that may not start");
    }
}
