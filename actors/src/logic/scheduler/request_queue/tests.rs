//! Tests of the turns of tenants and of the choices of one request.

use super::*;

fn request(id: u64, priority: i32, arrival: Micros) -> EngineRequest {
    EngineRequest { priority, arrival, ..EngineRequest::for_test(id, [1]) }
}

/// Serves all requests at time `now` and returns their order.
fn order(queue: &mut RequestQueue<u64>, arrivals: &[Micros], now: Micros) -> Vec<u64> {
    let mut order = Vec::new();
    while let Some((key, id)) = queue.peek(now) {
        assert!(queue.remove(key, arrivals[id as usize]));
        order.push(id);
    }
    order
}

fn priority_queue(requests: &[(i32, Micros)], age_bound: Micros) -> RequestQueue<u64> {
    let mut queue = RequestQueue::new(SchedulingPolicy::Priority, age_bound);
    for (id, &(priority, arrival)) in (0..).zip(requests) {
        queue.push_back(&request(id, priority, arrival), id);
    }
    queue
}

#[test]
fn fcfs_serves_in_order_of_arrival_and_the_preempted_first() {
    let mut queue = RequestQueue::new(SchedulingPolicy::Fcfs, 0);
    for id in 0..3 {
        queue.push_back(&request(id, -5 * id as i32, 0), id);
    }
    queue.push_front(&request(3, 9, 0), 3);
    queue.push_front(&request(4, 9, 0), 4);
    assert_eq!(queue.first(usize::MAX, 0), [4, 3, 0, 1, 2]);
    assert_eq!(order(&mut queue, &[0; 5], 0), [4, 3, 0, 1, 2]);
}

/// vllm-behaviour §10, test_priority_scheduler: priorities [2,0,1] → order 1,2,0.
#[test]
fn priority_serves_the_lowest_value_first_and_ties_by_arrival_then_id() {
    let mut queue = priority_queue(&[(2, 0), (0, 0), (1, 0)], Micros::MAX);
    assert_eq!(order(&mut queue, &[0; 3], 0), [1, 2, 0]);
    let mut queue = priority_queue(&[(1, 7), (1, 5), (1, 5)], Micros::MAX);
    assert_eq!(order(&mut queue, &[7, 5, 5], 0), [1, 2, 0]);
}

#[test]
fn a_request_that_waited_for_the_age_bound_comes_before_all_younger_ones() {
    let requests = [(9, 0), (5, 10), (0, 90), (1, 95)];
    let arrivals = [0, 10, 90, 95];
    assert_eq!(order(&mut priority_queue(&requests, 100), &arrivals, 99), [2, 3, 1, 0]);
    assert_eq!(order(&mut priority_queue(&requests, 100), &arrivals, 100), [0, 2, 3, 1]);
    assert_eq!(order(&mut priority_queue(&requests, 100), &arrivals, 110), [0, 1, 2, 3]);
    assert_eq!(priority_queue(&requests, 100).first(usize::MAX, 100), [0, 2, 3, 1]);
    for most in 0..6 {
        let first = priority_queue(&requests, 100).first(most, 100);
        assert_eq!(first, [0, 2, 3, 1][..most.min(4)]);
    }
}

#[test]
fn the_next_of_some_is_the_one_that_would_be_next_among_all() {
    let requests = [(9, 0), (5, 10), (0, 90), (1, 95)];
    let mut queue = RequestQueue::new(SchedulingPolicy::Priority, 100);
    let places = (0..).zip(requests);
    let push = |(id, (priority, arrival))| queue.push_back(&request(id, priority, arrival), id);
    let keys: Vec<QueueKey> = places.map(push).collect();
    for now in [99, 100, 110] {
        let all = queue.first(usize::MAX, now);
        for skipped in 0..=all.len() {
            let places = keys.iter().filter(|key| !all[..skipped].contains(&key.id.0));
            let places = places.map(|&key| (key, requests[key.id.0 as usize].1));
            let next = queue.peek_among(places, now).map(|(_, id)| id);
            assert_eq!(next, all.get(skipped).copied(), "at {now}");
        }
    }
}

#[test]
fn an_old_request_outranks_a_younger_one_of_any_priority() {
    let queue: RequestQueue<u64> = RequestQueue::new(SchedulingPolicy::Priority, 100);
    let (old, young) = (request(0, 9, 0), request(1, -9, 50));
    assert!(queue.rank(&young, 99) < queue.rank(&old, 99));
    assert!(queue.rank(&old, 100) < queue.rank(&young, 100));
}

#[test]
fn a_place_that_was_kept_is_ahead_of_those_that_came_later() {
    for policy in [SchedulingPolicy::Fcfs, SchedulingPolicy::Priority] {
        let mut queue = RequestQueue::new(policy, Micros::MAX);
        queue.push_back(&request(0, 0, 0), 0);
        let kept = queue.reserve_back(&request(1, 0, 1));
        queue.push_back(&request(2, 0, 2), 2);
        assert_eq!(queue.first(usize::MAX, 2), [0, 2]);
        queue.reinsert(kept, 1, 1);
        assert_eq!(queue.first(usize::MAX, 2), [0, 1, 2]);
    }
}

#[test]
fn a_removed_request_returns_to_its_place() {
    let mut queue = RequestQueue::new(SchedulingPolicy::Fcfs, 0);
    for id in 0..3 {
        queue.push_back(&request(id, 0, 0), id);
    }
    let (key, id) = queue.peek(0).unwrap();
    assert!(queue.remove(key, 0));
    assert!(!queue.remove(key, 0));
    queue.reinsert(key, 0, id);
    assert_eq!(queue.first(usize::MAX, 0), [0, 1, 2]);
}

fn of(id: u64, group: u64, tenant: Option<u32>) -> EngineRequest {
    let (tenant, choice) = (tenant.map(Tenant), (id - group) as u32);
    EngineRequest { group: RequestId(group), choice, tenant, ..request(id, 0, 0) }
}

#[test]
fn a_request_of_many_choices_delays_no_other() {
    let mut queue = RequestQueue::new(SchedulingPolicy::Fcfs, 0);
    for id in 0..10_000 {
        queue.push_back(&of(id, 0, None), id);
    }
    let serve = |queue: &mut RequestQueue<u64>| {
        let (key, id) = queue.peek(0).unwrap();
        queue.take(key, 0);
        id
    };
    for id in 0..5_000 {
        assert_eq!(serve(&mut queue), id);
    }
    assert_eq!(queue.len(), 5_000);
    queue.push_back(&of(10_000, 10_000, None), 10_000);
    queue.push_back(&of(10_001, 10_001, None), 10_001);
    let next: Vec<u64> = (0..4).map(|_| serve(&mut queue)).collect();
    assert_eq!(next, [10_000, 5_000, 10_001, 5_001]);
}

#[test]
fn turns_are_forgotten_with_their_requests() {
    let mut queue = RequestQueue::new(SchedulingPolicy::Fcfs, 0);
    for id in 0..1_000 {
        queue.push_back(&of(id, id / 4 * 4, None), id);
    }
    assert!(queue.tenants[&None].lane.num_groups() <= 4);
}

#[test]
fn the_choices_of_a_request_age_one_after_the_other() {
    let mut queue = RequestQueue::new(SchedulingPolicy::Priority, 100);
    for id in 0..3 {
        queue.push_back(&of(id, 0, None), id);
    }
    queue.push_back(&request(3, -1, 50), 3);
    assert_eq!(queue.first(usize::MAX, 100), [0, 3, 1, 2]);
    assert_eq!(queue.first(usize::MAX, 200), [0, 3, 1, 2], "as old as the second choice");
    assert_eq!(queue.first(usize::MAX, 300), [0, 3, 1, 2]);
}

/// The steps of a beam arrive one after another, so other requests have ids between theirs.
#[test]
fn a_later_submission_of_a_group_ages_like_any_request() {
    let mut queue = RequestQueue::new(SchedulingPolicy::Priority, 100);
    let late_step = EngineRequest { priority: 1, group: RequestId(0), ..request(5_000, 0, 0) };
    queue.push_back(&late_step, 5_000);
    queue.push_back(&request(5_001, 0, 50), 5_001);
    assert_eq!(queue.first(usize::MAX, 99), [5_001, 5_000]);
    assert_eq!(queue.first(usize::MAX, 100), [5_000, 5_001]);
}

/// Otherwise one key's old requests would delay those of all others.
#[test]
fn old_requests_of_one_tenant_take_turns_with_young_ones_of_others() {
    let mut queue = RequestQueue::new(SchedulingPolicy::Priority, 100);
    for id in 0..3 {
        queue.push_back(&EngineRequest { priority: 5, ..of(id, id, Some(0)) }, id);
    }
    for id in 3..6 {
        let arrival = 100;
        queue.push_back(&EngineRequest { arrival, ..of(id, id, Some(1)) }, id);
    }
    let mut order = Vec::new();
    while let Some((key, id)) = queue.peek(100) {
        queue.take(key, if id < 3 { 0 } else { 100 });
        queue.charge(Some(Tenant(u32::from(id >= 3))), 10);
        order.push(id);
    }
    assert_eq!(order, [0, 3, 1, 4, 2, 5]);
}

#[test]
fn refunded_tokens_do_not_count() {
    let mut queue = RequestQueue::new(SchedulingPolicy::Fcfs, 0);
    queue.push_back(&of(0, 0, Some(0)), 0);
    queue.push_back(&of(1, 1, Some(1)), 1);
    queue.charge(Some(Tenant(0)), 10);
    assert_eq!(queue.first(2, 0), [1, 0]);
    queue.refund(Some(Tenant(0)), 10);
    assert_eq!(queue.first(2, 0), [0, 1]);
}
