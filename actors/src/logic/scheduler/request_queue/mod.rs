//! Waiting requests, in the order in which they are served: tenants share turns, and so do the
//! choices of one request with other requests.
//!
//! A tenant is served by the tokens computed for it, as in "Fairness in Serving Large Language
//! Models" (Sheng et al., 2024): the next request is that of the tenant with the fewest. A tenant
//! that comes back after a pause starts at the count of those that wait, so it has no credit.
//! Priorities go before shares. With one tenant, or without tenants, shares change nothing.

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
    /// Under [`SchedulingPolicy::Priority`]: how many choices of the same request come first.
    round: u64,
    turn: i128,
    /// Of the same turn, first choices are served before further ones.
    is_further_choice: bool,
    id: RequestId,
    owner: Owner,
}

/// The owner of a share: a tenant, or, without tenants, one client's request with all its choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// All requests with one API key.
    Tenant(Tenant),
    /// The requests of a [`EngineRequest::group`].
    Group(RequestId),
}

impl Owner {
    /// The one that a request counts for.
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

/// Waiting requests. `T` is what the owner finds them by.
///
/// Under [`SchedulingPolicy::Priority`], a request is old when it has waited for the age bound
/// since its arrival. An old request comes before every younger one of its tenant. It competes
/// with those of other tenants whatever the priorities, so no request starves.
#[derive(Debug, Clone)]
pub struct RequestQueue<T> {
    policy: SchedulingPolicy,
    age_bound: Micros,
    /// One for each tenant seen: bounded by the number of API keys.
    tenants: BTreeMap<Option<Tenant>, Share<T>>,
    len: usize,
    /// The count at which a tenant starts whose requests find no others waiting.
    virtual_time: u64,
}

#[derive(Debug, Clone)]
struct Share<T> {
    lane: Lane<T>,
    /// Tokens computed for the tenant, from where it started.
    served: u64,
}

impl<T: Copy> RequestQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new(policy: SchedulingPolicy, age_bound: Micros) -> Self {
        Self { policy, age_bound, tenants: BTreeMap::new(), len: 0, virtual_time: 0 }
    }

    /// Requests that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
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
        let waiting = self.tenants.values().filter(|share| share.lane.len() > 0);
        let start = waiting.map(|share| share.served).min().unwrap_or(self.virtual_time);
        let share = self.share(request.tenant);
        if share.lane.len() == 0 {
            share.served = share.served.max(start);
        }
        share.lane.reserve_back(request)
    }

    /// A request that was served before: under FCFS it goes ahead of all others of its tenant.
    pub fn push_front(&mut self, request: &EngineRequest, value: T) -> QueueKey {
        let key = self.share(request.tenant).lane.reserve_front(request);
        self.reinsert(key, request.arrival, value);
        key
    }

    /// Puts a request at a place that it had, or that was kept for it.
    pub fn reinsert(&mut self, key: QueueKey, arrival: Micros, value: T) {
        let is_new = self.share(key.owner.tenant()).lane.insert(key, arrival, value);
        self.len += usize::from(is_new);
    }

    /// The next to be served.
    #[must_use]
    pub fn peek(&self, now: Micros) -> Option<(QueueKey, T)> {
        self.peek_where(now, |_| true)
    }

    /// The next to be served, were it not for those of one owner; none if that would pass one of a
    /// better priority.
    #[must_use]
    pub fn peek_apart(&self, owner: Owner, now: Micros) -> Option<(QueueKey, T)> {
        let (head, _) = self.peek(now)?;
        let apart = self.peek_where(now, |key| key.owner != owner);
        apart.filter(|(key, _)| key.priority <= head.priority)
    }

    fn peek_where(&self, now: Micros, may: impl Fn(&QueueKey) -> bool) -> Option<(QueueKey, T)> {
        let heads = || {
            let shares = self.tenants.values();
            shares.filter_map(|share| Some((share.served, share.lane.peek(now, &may)?)))
        };
        let priority = heads().map(|(_, head)| head.key.priority).min()?;
        let competing = heads().filter(|(_, head)| head.is_aged || head.key.priority == priority);
        let (_, next) = competing.min_by_key(|(served, head)| (*served, head.key.id))?;
        Some((next.key, next.value))
    }

    /// The next to be served of those at these places, each given with its arrival, whatever their
    /// tenants' shares.
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

    /// Takes a request out that is given up; false if it does not wait.
    pub fn remove(&mut self, key: QueueKey, arrival: Micros) -> bool {
        let is_removed = self.share(key.owner.tenant()).lane.remove(key, arrival);
        self.len -= usize::from(is_removed);
        is_removed
    }

    /// Takes a request out that is served; false if it does not wait.
    pub fn take(&mut self, key: QueueKey, arrival: Micros) -> bool {
        let share = self.share(key.owner.tenant());
        let served = share.served;
        let is_taken = share.lane.take(key, arrival);
        self.virtual_time = self.virtual_time.max(served);
        self.len -= usize::from(is_taken);
        is_taken
    }

    /// Tokens are computed for a tenant.
    pub fn charge(&mut self, tenant: Option<Tenant>, tokens: usize) {
        // One tenant has nothing to compare with.
        if self.tenants.len() > 1 {
            let share = self.share(tenant);
            share.served = share.served.saturating_add(tokens as u64);
            let served = share.served;
            if self.is_empty() {
                self.virtual_time = self.virtual_time.max(served);
            }
        }
    }

    /// Tokens that were charged are not computed after all.
    pub fn refund(&mut self, tenant: Option<Tenant>, tokens: usize) {
        if self.tenants.len() > 1 {
            let share = self.share(tenant);
            share.served = share.served.saturating_sub(tokens as u64);
        }
    }

    /// Tokens computed for a tenant, from where it started: to compare tenants with.
    #[must_use]
    pub fn served(&self, tenant: Option<Tenant>) -> u64 {
        self.tenants.get(&tenant).map_or(0, |share| share.served)
    }

    /// Returns the sort key of running requests under [`SchedulingPolicy::Priority`]: the last one
    /// gives way. The age bound holds here too, or an old request could be preempted for ever.
    #[must_use]
    pub fn rank(&self, request: &EngineRequest, now: Micros) -> (i64, Micros, RequestId) {
        let priority = match now.saturating_sub(request.arrival) >= self.age_bound {
            true => i64::MIN,
            false => request.priority.into(),
        };
        (priority, request.arrival, request.id)
    }

    /// The first `most`, in the order of service; of several tenants, as if all requests had the
    /// same number of tokens.
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
