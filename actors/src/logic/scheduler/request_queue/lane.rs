//! The waiting requests of one tenant, in the order of the policy.
//!
//! The choices of one request take turns with other requests. Under FCFS the first choice has the
//! turn of its request, and each further choice has the turn after the choice before. A request
//! that arrives gets the turn after the last turn that was served or given to an arrival. So at
//! most `k` later requests overtake choice `k` of a request. A request that arrives while only
//! further choices wait is served next. Under priority, first choices come before second ones, and
//! so on.

use std::collections::{BTreeMap, BTreeSet};

use super::{Owner, QueueKey, SchedulingPolicy};
use crate::logic::request::{
    EngineRequest,
    ids::{Micros, RequestId},
};

#[derive(Debug, Clone)]
pub(super) struct Lane<T> {
    policy: SchedulingPolicy,
    age_bound: Micros,
    entries: BTreeMap<QueueKey, T>,
    /// The same requests, in the order of the times when they reach the age bound, and then of ids.
    /// Empty under FCFS.
    by_age: BTreeMap<(Micros, RequestId), QueueKey>,
    /// The last turns given at both ends under FCFS. `back` counts up, and `front` counts down.
    back: i128,
    front: i128,
    /// The last turn of each group that has a turn at or after `back`.
    groups: BTreeMap<RequestId, i128>,
}

/// A waiting request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<T> {
    pub(super) key: QueueKey,
    pub(super) value: T,
    /// Whether it has waited for the age bound.
    pub(super) is_aged: bool,
}

impl<T: Copy> Lane<T> {
    pub(super) fn new(policy: SchedulingPolicy, age_bound: Micros) -> Self {
        let (entries, by_age, groups) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { policy, age_bound, entries, by_age, back: 0, front: 0, groups }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of groups whose last turn is kept.
    #[cfg(test)]
    pub(super) fn num_groups(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn get(&self, key: QueueKey) -> Option<T> {
        self.entries.get(&key).copied()
    }

    /// Returns a place behind all others, except further choices of requests.
    pub(super) fn reserve_back(&mut self, request: &EngineRequest) -> QueueKey {
        let turn = self.next_turn(request.group);
        self.key(request, turn)
    }

    /// Returns a place before all others.
    pub(super) fn reserve_front(&mut self, request: &EngineRequest) -> QueueKey {
        self.front -= 1;
        self.key(request, self.front)
    }

    /// Puts a request at a place. Returns false if one was there already.
    pub(super) fn insert(&mut self, key: QueueKey, arrival: Micros, value: T) -> bool {
        if let Some(aged_at) = self.aged_at(key, arrival) {
            self.by_age.insert((aged_at, key.id), key);
        }
        self.entries.insert(key, value).is_none()
    }

    /// Returns the next request to serve, among those for which `may` is true.
    pub(super) fn peek(&self, now: Micros, may: impl Fn(&QueueKey) -> bool) -> Option<Head<T>> {
        let mut aged = self.by_age.iter().take_while(|((aged_at, _), _)| *aged_at <= now);
        if let Some((_, &key)) = aged.find(|(_, key)| may(key)) {
            return self.get(key).map(|value| Head { key, value, is_aged: true });
        }
        let (&key, &value) = self.entries.iter().find(|(key, _)| may(key))?;
        Some(Head { key, value, is_aged: false })
    }

    /// Removes a request that is given up. Returns false if it does not wait.
    pub(super) fn remove(&mut self, key: QueueKey, arrival: Micros) -> bool {
        if let Some(aged_at) = self.aged_at(key, arrival) {
            self.by_age.remove(&(aged_at, key.id));
        }
        self.entries.remove(&key).is_some()
    }

    /// Removes a request that is served. Requests that arrive from now on come after its turn.
    pub(super) fn take(&mut self, key: QueueKey, arrival: Micros) -> bool {
        if self.policy == SchedulingPolicy::Fcfs {
            self.back = self.back.max(key.turn);
        }
        self.remove(key, arrival)
    }

    /// Returns the first `most` requests in the order of service.
    pub(super) fn first(&self, most: usize, now: Micros) -> impl Iterator<Item = Head<T>> {
        let aged = self.by_age.iter().take_while(|((aged_at, _), _)| *aged_at <= now);
        let aged: Vec<QueueKey> = aged.take(most).map(|(_, &key)| key).collect();
        let is_aged: BTreeSet<QueueKey> = aged.iter().copied().collect();
        let young = self.entries.keys().filter(move |key| !is_aged.contains(key)).copied();
        let aged = aged.into_iter().map(|key| (key, true));
        let keys = aged.chain(young.map(|key| (key, false)));
        keys.take(most).filter_map(|(key, is_aged)| {
            let value = self.get(key)?;
            Some(Head { key, value, is_aged })
        })
    }

    /// Returns the time at which a request reaches the age bound. The choices of one request age
    /// one after the other, because otherwise they would delay others all at once.
    pub(super) fn aged_at(&self, key: QueueKey, arrival: Micros) -> Option<Micros> {
        let bound = self.age_bound.saturating_mul(key.round.saturating_add(1));
        (self.policy == SchedulingPolicy::Priority).then(|| arrival.saturating_add(bound))
    }

    fn next_turn(&mut self, group: RequestId) -> i128 {
        if let Some(last) = self.groups.get_mut(&group) {
            *last = self.back.max(*last + 1);
            return *last;
        }
        self.back += 1;
        let back = self.back;
        self.groups.retain(|_, last| *last >= back);
        self.groups.insert(group, back);
        back
    }

    fn key(&self, request: &EngineRequest, turn: i128) -> QueueKey {
        let (id, owner) = (request.id, Owner::of(request));
        let is_further_choice = id != request.group;
        match self.policy {
            SchedulingPolicy::Fcfs => {
                QueueKey { priority: 0, round: 0, turn, is_further_choice, id, owner }
            }
            SchedulingPolicy::Priority => QueueKey {
                priority: request.priority.into(),
                // The choice counts and not the id, because a group's later submissions, for
                // example steps of a beam, are no later choices.
                round: request.choice.into(),
                turn: request.arrival.into(),
                is_further_choice,
                id,
                owner,
            },
        }
    }
}
