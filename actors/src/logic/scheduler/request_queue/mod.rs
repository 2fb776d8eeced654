//! Waiting requests, in the order of service. Tenants share turns, and so do the choices of one
//! request with other requests.
//!
//! A tenant's share is counted in the tokens computed for it, as in "Fairness in Serving Large
//! Language Models" (Sheng et al., 2024). The next request is one of the tenant with the fewest
//! tokens. A tenant that returns after a pause starts at the count of those that wait, so it has no
//! credit. Priorities go before shares. With one tenant, or without tenants, shares change nothing.

mod lane;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::lane::Lane;
use crate::logic::{
    admission::Tenant,
    request::{
        EngineRequest,
        ids::{Micros, RequestId},
    },
};

/// The order in which waiting requests are served, and the choice of the running request to
/// preempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SchedulingPolicy {
    /// First come, first served.
    #[default]
    Fcfs,
    /// Lower `priority` first. Requests of equal priority are served by arrival.
    Priority,
}

/// A place in the queue. Lower places are served earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    priority: i64,
    /// Under [`SchedulingPolicy::Priority`], the number of choices of the same request that come
    /// first.
    round: u64,
    turn: i128,
    /// Whether it is a further choice. In one turn, first choices are served before further ones.
    is_further_choice: bool,
    id: RequestId,
    owner: Owner,
}

/// The owner of a share: a tenant or, without tenants, one client's request with all its choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// All requests with one API key.
    Tenant(Tenant),
    /// The requests of a [`EngineRequest::group`].
    Group(RequestId),
}

impl Owner {
    /// Returns the owner of a request.
    #[must_use]
    pub fn of(request: &EngineRequest) -> Self {
        request.tenant.map_or(Self::Group(request.group), Self::Tenant)
    }

    fn tenant(self) -> Option<Tenant> {
        match self {
            Self::Tenant(tenant) => Some(tenant),
            Self::Group(_) => None,
        }
    }
}

/// Waiting requests. `T` identifies a request for the queue's user.
///
/// Under [`SchedulingPolicy::Priority`], a request is old when it has waited for the age bound
/// since its arrival. An old request comes before every younger one of its tenant. It competes with
/// requests of other tenants whatever their priorities, so no request starves.
#[derive(Debug, Clone)]
pub struct RequestQueue<T> {
    policy: SchedulingPolicy,
    age_bound: Micros,
    /// One share for each tenant seen. Their number is bounded by the number of API keys.
    tenants: BTreeMap<Option<Tenant>, Share<T>>,
    len: usize,
    /// The count at which a tenant starts if no other requests wait.
    virtual_time: u64,
}

#[derive(Debug, Clone)]
struct Share<T> {
    lane: Lane<T>,
    /// Tokens computed for the tenant, from where it started.
    served: u64,
}

impl<T: Copy> RequestQueue<T> {
    /// Returns an empty queue.
    #[must_use]
    pub fn new(policy: SchedulingPolicy, age_bound: Micros) -> Self {
        Self { policy, age_bound, tenants: BTreeMap::new(), len: 0, virtual_time: 0 }
    }

    /// Returns the number of waiting requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a new request and returns its place.
    pub fn push_back(&mut self, request: &EngineRequest, value: T) -> QueueKey {
        let key = self.reserve_back(request);
        self.reinsert(key, request.arrival, value);
        key
    }

    /// Returns the place that [`RequestQueue::push_back`] would give, for a request that cannot be
    /// served yet. [`RequestQueue::reinsert`] puts it there once it can. Others are served
    /// meanwhile.
    pub fn reserve_back(&mut self, request: &EngineRequest) -> QueueKey {
        let waiting = self.tenants.values().filter(|share| share.lane.len() > 0);
        let start = waiting.map(|share| share.served).min().unwrap_or(self.virtual_time);
        let share = self.share(request.tenant);
        if share.lane.len() == 0 {
            share.served = share.served.max(start);
        }
        share.lane.reserve_back(request)
    }

    /// Adds a request that was served before. Under FCFS it comes before all others of its tenant.
    pub fn push_front(&mut self, request: &EngineRequest, value: T) -> QueueKey {
        let key = self.share(request.tenant).lane.reserve_front(request);
        self.reinsert(key, request.arrival, value);
        key
    }

    /// Puts a request at a place that it had, or that was reserved for it.
    pub fn reinsert(&mut self, key: QueueKey, arrival: Micros, value: T) {
        let is_new = self.share(key.owner.tenant()).lane.insert(key, arrival, value);
        self.len += usize::from(is_new);
    }

    /// Returns the next request to serve.
    #[must_use]
    pub fn peek(&self, now: Micros) -> Option<(QueueKey, T)> {
        self.peek_where(now, |_| true)
    }

    /// Returns the next request to serve, without those of one owner. Returns `None` if it would
    /// overtake one of a better priority.
    #[must_use]
    pub fn peek_apart(&self, owner: Owner, now: Micros) -> Option<(QueueKey, T)> {
        let (head, _) = self.peek(now)?;
        let apart = self.peek_where(now, |key| key.owner != owner);
        apart.filter(|(key, _)| key.priority <= head.priority)
    }

    fn peek_where(&self, now: Micros, may: impl Fn(&QueueKey) -> bool) -> Option<(QueueKey, T)> {
        // Most steps have no waiting request, and are spared the search.
        if self.is_empty() {
            return None;
        }
        let heads = || {
            let shares = self.tenants.values();
            shares.filter_map(|share| Some((share.served, share.lane.peek(now, &may)?)))
        };
        let priority = heads().map(|(_, head)| head.key.priority).min()?;
        let competing = heads().filter(|(_, head)| head.is_aged || head.key.priority == priority);
        let (_, next) = competing.min_by_key(|(served, head)| (*served, head.key.id))?;
        Some((next.key, next.value))
    }

    /// Returns the next request to serve of those at these places, each given with its arrival.
    /// Tenants' shares are ignored.
    #[must_use]
    pub fn peek_among(
        &self,
        places: impl IntoIterator<Item = (QueueKey, Micros)>,
        now: Micros,
    ) -> Option<(QueueKey, T)> {
        let turn = |&(key, arrival): &(QueueKey, Micros)| {
            let aged_at = self.tenants.get(&key.owner.tenant())?.lane.aged_at(key, arrival);
            let aged = aged_at.filter(|&at| at <= now).map(|at| (at, key.id));
            Some((aged.is_none(), aged, key))
        };
        let (key, _) = places.into_iter().min_by_key(turn)?;
        let value = self.tenants.get(&key.owner.tenant())?.lane.get(key)?;
        Some((key, value))
    }

    /// Removes a request that is given up. Returns false if it does not wait.
    pub fn remove(&mut self, key: QueueKey, arrival: Micros) -> bool {
        let is_removed = self.share(key.owner.tenant()).lane.remove(key, arrival);
        self.len -= usize::from(is_removed);
        is_removed
    }

    /// Removes a request that is served. Returns false if it does not wait.
    pub fn take(&mut self, key: QueueKey, arrival: Micros) -> bool {
        let share = self.share(key.owner.tenant());
        let served = share.served;
        let is_taken = share.lane.take(key, arrival);
        self.virtual_time = self.virtual_time.max(served);
        self.len -= usize::from(is_taken);
        is_taken
    }

    /// Counts tokens that are computed for a tenant.
    pub fn charge(&mut self, tenant: Option<Tenant>, tokens: usize) {
        // A single tenant needs no count.
        if self.tenants.len() > 1 {
            let share = self.share(tenant);
            share.served = share.served.saturating_add(tokens as u64);
            let served = share.served;
            if self.is_empty() {
                self.virtual_time = self.virtual_time.max(served);
            }
        }
    }

    /// Takes back tokens that were charged and are not computed.
    pub fn refund(&mut self, tenant: Option<Tenant>, tokens: usize) {
        if self.tenants.len() > 1 {
            let share = self.share(tenant);
            share.served = share.served.saturating_sub(tokens as u64);
        }
    }

    /// Returns the tokens computed for a tenant, counted from its start, to compare tenants.
    #[must_use]
    pub fn served(&self, tenant: Option<Tenant>) -> u64 {
        self.tenants.get(&tenant).map_or(0, |share| share.served)
    }

    /// Returns the sort key of running requests under [`SchedulingPolicy::Priority`]. The last one
    /// is preempted. The age bound holds here too, because otherwise an old request could be
    /// preempted for ever.
    #[must_use]
    pub fn rank(&self, request: &EngineRequest, now: Micros) -> (i64, Micros, RequestId) {
        let priority = match now.saturating_sub(request.arrival) >= self.age_bound {
            true => i64::MIN,
            false => request.priority.into(),
        };
        (priority, request.arrival, request.id)
    }

    /// Returns the first `most` requests in the order of service. For several tenants, it assumes
    /// that all requests have the same number of tokens.
    #[must_use]
    pub fn first(&self, most: usize, now: Micros) -> Vec<T> {
        let mut all = Vec::new();
        for share in self.tenants.values() {
            for (place, head) in share.lane.first(most, now).enumerate() {
                let priority = if head.is_aged { i64::MIN } else { head.key.priority };
                all.push(((priority, place, share.served, head.key.id), head.value));
            }
        }
        all.sort_by_key(|(turn, _)| *turn);
        all.into_iter().take(most).map(|(_, value)| value).collect()
    }

    fn share(&mut self, tenant: Option<Tenant>) -> &mut Share<T> {
        let (policy, age_bound) = (self.policy, self.age_bound);
        let new = || Share { lane: Lane::new(policy, age_bound), served: 0 };
        self.tenants.entry(tenant).or_insert_with(new)
    }
}
