//! Who waits, in the order in which they are served.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    ids::{Micros, RequestId},
    request::EngineRequest,
};

/// In which order waiting requests are served, and which running one gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulingPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// A lower `priority` first; ties by arrival.
    Priority,
}

/// A place in the queue; lower is served earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    priority: i64,
    turn: i128,
    id: RequestId,
}

/// Waiting requests. `T` is what the owner finds them by.
///
/// Under [`SchedulingPolicy::Priority`] a request that has waited for the age bound since its
/// arrival comes before every younger one, whatever the priorities: nobody starves.
#[derive(Debug, Clone)]
pub struct RequestQueue<T> {
    policy: SchedulingPolicy,
    age_bound: Micros,
    entries: BTreeMap<QueueKey, T>,
    /// The same requests by (arrival, id); empty under FCFS.
    by_age: BTreeMap<(Micros, RequestId), QueueKey>,
    /// FCFS counts its ends: up at the back, down at the front.
    back: i128,
    front: i128,
}

impl<T: Copy> RequestQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(policy: SchedulingPolicy, age_bound: Micros) -> Self {
        let (entries, by_age) = (BTreeMap::new(), BTreeMap::new());
        Self { policy, age_bound, entries, by_age, back: 0, front: 0 }
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A new request. Returns its place.
    pub fn push_back(&mut self, request: &EngineRequest, value: T) -> QueueKey {
        let key = self.reserve_back(request);
        self.reinsert(key, request.arrival, value);
        key
    }

    /// The place that [`RequestQueue::push_back`] would give, for a request that cannot be served
    /// yet: once it can, [`RequestQueue::reinsert`] puts it there. Others are served meanwhile.
    pub fn reserve_back(&mut self, request: &EngineRequest) -> QueueKey {
        self.back += 1;
        self.key(request, self.back)
    }

    /// A request that was served before: under FCFS it goes ahead of all others.
    pub fn push_front(&mut self, request: &EngineRequest, value: T) -> QueueKey {
        self.front -= 1;
        let key = self.key(request, self.front);
        self.reinsert(key, request.arrival, value);
        key
    }

    /// Puts a request at a place that it had, or that was kept for it.
    pub fn reinsert(&mut self, key: QueueKey, arrival: Micros, value: T) {
        if self.policy == SchedulingPolicy::Priority {
            self.by_age.insert((arrival, key.id), key);
        }
        self.entries.insert(key, value);
    }

    /// The next to be served.
    #[must_use]
    pub fn peek(&self, now: Micros) -> Option<(QueueKey, T)> {
        if let Some((&(arrival, _), key)) = self.by_age.first_key_value()
            && self.is_aged(arrival, now)
        {
            return self.entries.get(key).map(|&value| (*key, value));
        }
        self.entries.first_key_value().map(|(&key, &value)| (key, value))
    }

    /// The next to be served of those at these places, each given with its arrival.
    #[must_use]
    pub fn peek_among(
        &self,
        places: impl IntoIterator<Item = (QueueKey, Micros)>,
        now: Micros,
    ) -> Option<(QueueKey, T)> {
        let ages = self.policy == SchedulingPolicy::Priority;
        let turn = |&(key, arrival): &(QueueKey, Micros)| {
            let aged = (ages && self.is_aged(arrival, now)).then_some((arrival, key.id));
            (aged.is_none(), aged, key)
        };
        let (key, _) = places.into_iter().min_by_key(turn)?;
        self.entries.get(&key).map(|&value| (key, value))
    }

    /// Takes a request out; false if it does not wait.
    pub fn remove(&mut self, key: QueueKey, arrival: Micros) -> bool {
        self.by_age.remove(&(arrival, key.id));
        self.entries.remove(&key).is_some()
    }

    /// What comes first among running requests under [`SchedulingPolicy::Priority`]; the last one
    /// gives way. The age bound holds here too, or an old request could be preempted for ever.
    #[must_use]
    pub fn rank(&self, request: &EngineRequest, now: Micros) -> (i64, Micros, RequestId) {
        let priority = match self.is_aged(request.arrival, now) {
            true => i64::MIN,
            false => request.priority.into(),
        };
        (priority, request.arrival, request.id)
    }

    /// The first `most`, in the order of service.
    #[must_use]
    pub fn first(&self, most: usize, now: Micros) -> Vec<T> {
        let aged = self.by_age.iter().take_while(|((arrival, _), _)| self.is_aged(*arrival, now));
        let aged: Vec<QueueKey> = aged.take(most).map(|(_, &key)| key).collect();
        let is_aged: BTreeSet<QueueKey> = aged.iter().copied().collect();
        let others = self.entries.keys().filter(|key| !is_aged.contains(key)).copied();
        let keys = aged.iter().copied().chain(others);
        keys.take(most).filter_map(|key| self.entries.get(&key).copied()).collect()
    }

    fn is_aged(&self, arrival: Micros, now: Micros) -> bool {
        now.saturating_sub(arrival) >= self.age_bound
    }

    fn key(&self, request: &EngineRequest, turn: i128) -> QueueKey {
        let id = request.id;
        match self.policy {
            SchedulingPolicy::Fcfs => QueueKey { priority: 0, turn, id },
            SchedulingPolicy::Priority => {
                QueueKey { priority: request.priority.into(), turn: request.arrival.into(), id }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::logic::sampling_params::SamplingParams;

    fn request(id: u64, priority: i32, arrival: Micros) -> EngineRequest {
        EngineRequest {
            id: RequestId(id),
            prompt_token_ids: Arc::from([1]),
            params: SamplingParams::default(),
            seed: 0,
            eos_token_ids: Arc::from([]),
            arrival,
            priority,
            cache_salt: None,
            deadline: None,
            mm_features: Arc::from([]),
        }
    }

    /// Pops everyone at time `now`.
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
    fn whoever_waited_for_the_age_bound_comes_before_all_younger_ones() {
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
    fn of_some_the_one_is_next_that_would_be_among_all() {
        let requests = [(9, 0), (5, 10), (0, 90), (1, 95)];
        let queue = priority_queue(&requests, 100);
        let keys: Vec<QueueKey> = queue.entries.keys().copied().collect();
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
    fn what_was_taken_out_goes_back_to_its_place() {
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
}
