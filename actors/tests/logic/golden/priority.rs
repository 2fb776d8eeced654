//! vLLM's test_priority_scheduler: a lower value is served first, and no request starves.

use playhouse_actors::logic::{
    request::{
        EngineRequest,
        ids::{Micros, RequestId},
    },
    scheduler::{SchedulerConfig, SchedulingPolicy},
};

use crate::harness::{Harness, own_prompt, request, roomy, tokens};

fn config() -> SchedulerConfig {
    SchedulerConfig { policy: SchedulingPolicy::Priority, ..roomy() }
}

fn with_priority(id: u64, priority: i32, arrival: Micros, len: usize) -> EngineRequest {
    EngineRequest { priority, arrival, ..request(id, own_prompt(id, len)) }
}

/// Checks that requests 0, 1, … with these (priority, arrival) are served in this order.
fn check(requests: &[(i32, Micros)], order: &[u64]) {
    let mut harness = Harness::new(config());
    for (id, &(priority, arrival)) in (0..).zip(requests) {
        harness.add(with_priority(id, priority, arrival, 10));
    }
    harness.plan();
    assert_eq!(harness.running(), order);
}

#[test]
fn the_lowest_value_first_then_arrival_then_id() {
    check(&[(2, 0), (0, 0), (1, 0)], &[1, 2, 0]);
    check(&[(1, 3), (1, 1), (1, 2)], &[1, 2, 0]);
    check(&[(1, 5), (1, 5), (1, 5)], &[0, 1, 2]);
}

#[test]
fn admission_alone_never_preempts() {
    let mut harness = Harness::new(SchedulerConfig { max_num_seqs: 1, ..config() });
    harness.add(with_priority(0, 5, 0, 10));
    harness.step();
    harness.add(with_priority(1, 0, 1, 10));
    assert_eq!(harness.step(), tokens([(0, 1)]));
    assert!(harness.last.output.preempted.is_empty());
}

#[test]
fn the_highest_value_is_preempted_and_resumes_with_all_its_tokens() {
    let config = SchedulerConfig { num_blocks: 6, enable_prefix_caching: false, ..config() };
    let mut harness = Harness::new(config);
    harness.add(with_priority(0, 1, 0, 32));
    assert_eq!(harness.step(), tokens([(0, 32)]));
    harness.add(with_priority(1, 0, 1, 32));
    assert_eq!(harness.step(), tokens([(0, 1), (1, 32)]));
    assert_eq!(harness.step(), tokens([(1, 1)]), "it was scheduled before the victim was chosen");
    assert_eq!(harness.last.output.preempted, [RequestId(0)]);
    harness.finish(&[1]);
    assert_eq!(harness.step(), tokens([(0, 34)]));
}

#[test]
fn the_victims_tokens_go_to_others() {
    let config = SchedulerConfig {
        num_blocks: 7,
        max_num_batched_tokens: 40,
        reserve_full_isl: false,
        enable_prefix_caching: false,
        ..config()
    };
    let mut harness = Harness::new(config);
    harness.add(with_priority(0, 9, 0, 32));
    assert_eq!(harness.step(), tokens([(0, 32)]));
    harness.add(with_priority(1, 0, 1, 90));
    assert_eq!(harness.step(), tokens([(0, 1), (1, 39)]));
    // Its 39 tokens would need three blocks, and none is free. Without the victim it gets 40.
    assert_eq!(harness.step(), tokens([(1, 40)]));
}

#[test]
fn an_old_request_is_served_before_younger_ones_of_better_priority() {
    let bound = 1_000;
    let config = SchedulerConfig { max_num_seqs: 1, priority_age_bound: bound, ..config() };
    let mut harness = Harness::new(config);
    harness.add(with_priority(0, 100, 0, 8));
    let mut served_at = None;
    // A request with better priority arrives every 100 µs and takes 200, so the queue only grows.
    for id in 1..40 {
        harness.now = id * 100;
        let mut urgent = with_priority(id, 0, harness.now, 8);
        urgent.sampling_mut().max_tokens = 2;
        harness.add(urgent);
        harness.step();
        if harness.running() == [0] {
            served_at = Some(harness.now);
            break;
        }
    }
    let served_at = served_at.unwrap();
    assert!((bound..bound + 300).contains(&served_at), "served at {served_at}");
}

#[test]
fn an_old_request_is_no_victim() {
    let config = SchedulerConfig { num_blocks: 6, priority_age_bound: 50, ..config() };
    let mut harness = Harness::new(config);
    harness.add(with_priority(0, 1, 0, 32));
    harness.step();
    harness.add(with_priority(1, 0, 10, 32));
    harness.step();
    harness.now = 50;
    assert_eq!(harness.step(), tokens([(0, 1)]));
    assert_eq!(harness.last.output.preempted, [RequestId(1)]);
}
