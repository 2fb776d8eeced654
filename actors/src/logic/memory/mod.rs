//! The memory for requests, counted before it is allocated. The ledger records how much each lease
//! holds and which leases wait for more. It chooses unfinished bodies that have to end so that
//! other requests go on.
//!
//! Requests of more than [`SMALL_BYTES`] share three quarters of the limit, and small ones seven
//! eighths. A small request therefore never waits for a large one. Outputs may take the whole
//! limit. They cannot wait, because the model has computed them already.

mod body;
mod wishes;

use std::collections::BTreeMap;

use self::{body::Body, wishes::Wishes};
use super::request::ids::Micros;

/// A request that holds at most this many bytes is small.
pub const SMALL_BYTES: usize = 256 << 10;
/// The smallest limit, in bytes, that leaves room for small requests.
pub const LIMIT_BYTES_MIN: usize = 16 << 20;
/// Largest number of waiting wishes of large requests. Further ones are refused at once.
const WAITING_MAX: usize = 1024;
/// Largest number of waiting wishes of small requests. Further ones are refused at once.
const SMALL_WAITING_MAX: usize = 4 * WAITING_MAX;

/// One holder of memory. A lower number is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId(u64);

/// One wish for more memory that waits. The oldest lease is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    lease: LeaseId,
    number: u64,
}

/// The answer to a wish for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// The lease holds the memory now.
    Taken,
    /// The memory is not free. [`MemoryLedger::granted`] reports when the lease holds it.
    Waits(Ticket),
    /// The memory is not free, and too many wishes wait already.
    Refused,
    /// The wish would never fit. The number is the most bytes that the lease may hold.
    TooLarge(usize),
}

/// All leases of one memory budget.
#[derive(Debug, Clone)]
pub struct MemoryLedger {
    limit: usize,
    in_use: usize,
    next: u64,
    /// The bytes that each lease holds.
    leases: BTreeMap<LeaseId, usize>,
    /// The bodies that arrive.
    bodies: BTreeMap<LeaseId, Body>,
    waiting: Wishes,
    /// Wishes that were granted since the last call of [`MemoryLedger::granted`].
    granted: Vec<Ticket>,
    /// Number of leases that hold memory.
    num_holders: usize,
}

impl MemoryLedger {
    /// Returns a budget of `limit` bytes, but at least [`LIMIT_BYTES_MIN`].
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(LIMIT_BYTES_MIN),
            in_use: 0,
            next: 0,
            leases: BTreeMap::new(),
            bodies: BTreeMap::new(),
            waiting: Wishes::default(),
            granted: Vec::new(),
            num_holders: 0,
        }
    }

    /// Returns the number of bytes that all leases together may hold.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of bytes that one request may hold before it has output.
    #[must_use]
    pub fn request_limit(&self) -> usize {
        self.limit / 4 * 3
    }

    /// Returns the number of bytes that all leases together hold.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// Returns the number of bytes that `lease` holds.
    #[must_use]
    pub fn held(&self, lease: LeaseId) -> usize {
        self.leases.get(&lease).copied().unwrap_or(0)
    }

    /// Returns the number of waiting wishes.
    #[must_use]
    pub fn num_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Returns a new lease, which holds nothing.
    pub fn open(&mut self) -> LeaseId {
        let lease = LeaseId(self.next);
        self.next += 1;
        self.leases.insert(lease, 0);
        lease
    }

    /// Takes `bytes` more for `lease`, unless they are not free or an older wish comes first.
    /// Returns the answer.
    pub fn grow(&mut self, lease: LeaseId, bytes: usize) -> Growth {
        if bytes == 0 {
            return Growth::Taken;
        }
        let total = self.held(lease).saturating_add(bytes);
        if total > self.request_limit() {
            return Growth::TooLarge(self.request_limit());
        }
        let ticket = Ticket { lease, number: self.next };
        self.next += 1;
        let has_room = self.waiting.has_room(total);
        self.waiting.insert(ticket, bytes, total);
        self.grant();
        if let Some(place) = self.granted.iter().position(|granted| *granted == ticket) {
            self.granted.swap_remove(place);
            return Growth::Taken;
        }
        if has_room {
            return Growth::Waits(ticket);
        }
        self.waiting.remove(ticket);
        Growth::Refused
    }

    /// Returns the wishes that waited and were granted since the last call.
    pub fn granted(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.granted)
    }

    /// Takes `bytes` of output for `lease`. Output cannot wait. Returns `false`, without effect, if
    /// the budget is used up and the lease would hold more than its share.
    pub fn add(&mut self, lease: LeaseId, bytes: usize) -> bool {
        let total = self.held(lease).saturating_add(bytes);
        let fits = self.in_use.saturating_add(bytes) <= self.limit;
        let is_modest = total <= self.limit / self.num_holders.max(1);
        if fits || is_modest {
            self.take(lease, bytes);
            self.grant();
        }
        fits || is_modest
    }

    /// Takes `bytes` for `lease`, even if they are not free. This is for memory that another limit
    /// bounds.
    pub fn take(&mut self, lease: LeaseId, bytes: usize) {
        let Some(held) = self.leases.get_mut(&lease).filter(|_| bytes > 0) else { return };
        self.num_holders += usize::from(*held == 0);
        *held = held.saturating_add(bytes);
        self.in_use = self.in_use.saturating_add(bytes);
        self.waiting.reclassify(lease, *held);
    }

    /// Releases `bytes` of `lease`, or all of its bytes if it holds fewer.
    pub fn release(&mut self, lease: LeaseId, bytes: usize) {
        self.give(lease, bytes);
        self.grant();
    }

    /// Moves up to `bytes` from one lease to another. Returns the number of bytes moved.
    pub fn transfer(&mut self, from: LeaseId, to: LeaseId, bytes: usize) -> usize {
        if !self.leases.contains_key(&to) {
            return 0;
        }
        let moved = self.give(from, bytes);
        self.take(to, moved);
        self.grant();
        moved
    }

    /// Ends a lease and its wishes.
    pub fn close(&mut self, lease: LeaseId) {
        self.give(lease, usize::MAX);
        self.leases.remove(&lease);
        self.bodies.remove(&lease);
        self.waiting.remove_all(lease);
        self.grant();
    }

    /// Ends a wish.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.waiting.remove(ticket);
        self.grant();
    }

    fn give(&mut self, lease: LeaseId, bytes: usize) -> usize {
        let Some(held) = self.leases.get_mut(&lease) else { return 0 };
        let given = bytes.min(*held);
        *held -= given;
        self.num_holders -= usize::from(given > 0 && *held == 0);
        self.in_use -= given;
        self.waiting.reclassify(lease, *held);
        given
    }

    /// Returns the largest number of bytes in use at which a lease may come to hold `total`.
    fn ceiling(&self, total: usize) -> usize {
        match is_small(total) {
            true => self.limit / 8 * 7,
            false => self.limit / 4 * 3,
        }
    }

    /// Grants wishes in order of age.
    fn grant(&mut self) {
        while let Some((ticket, bytes)) = self.next_wish() {
            self.waiting.remove(ticket);
            self.take(ticket.lease, bytes);
            self.granted.push(ticket);
        }
    }

    /// Returns the oldest wish that can be granted. A large wish that does not fit holds up all
    /// younger large ones. A small one holds up all younger ones. Only the oldest wish and the
    /// oldest small one can therefore be granted.
    fn next_wish(&self) -> Option<(Ticket, usize)> {
        let oldest = self.waiting.oldest()?;
        let small = self.waiting.oldest_small();
        [Some(oldest), small].into_iter().flatten().find(|&(ticket, bytes)| {
            let total = self.held(ticket.lease).saturating_add(bytes);
            self.in_use.saturating_add(bytes) <= self.ceiling(total)
        })
    }

    /// Records that a body begins to arrive for `lease`.
    pub fn body_begins(&mut self, lease: LeaseId, now: Micros) {
        if self.leases.contains_key(&lease) {
            self.bodies.insert(lease, Body::new(now));
        }
    }

    /// Records that more of the body has arrived.
    pub fn body_arrived(&mut self, lease: LeaseId, bytes: usize, now: Micros) {
        if let Some(body) = self.bodies.get_mut(&lease) {
            body.arrived(bytes, now);
        }
    }

    /// Records that the body is complete.
    pub fn body_ends(&mut self, lease: LeaseId) {
        self.bodies.remove(&lease);
    }

    /// Returns whether the body of `lease` has to end.
    #[must_use]
    pub fn is_ending(&self, lease: LeaseId) -> bool {
        self.bodies.get(&lease).is_some_and(|body| body.is_ending)
    }

    /// Chooses the unfinished bodies that have to end so that `ticket` is granted, and returns
    /// their leases. Bodies without progress end first, the largest of them first. A body that
    /// itself waits for memory makes no progress, but not because of its client. A waiting body
    /// ends only for the oldest wish, and only if that wish `is_overdue`. The youngest waiting body
    /// ends first. Without this rule, all bodies could hold a part, and none could go on.
    ///
    /// No body ends for a wish that an older one holds up. Of all waiting wishes, two therefore
    /// look at the bodies.
    pub fn end_bodies(&mut self, ticket: Ticket, is_overdue: bool, now: Micros) -> Vec<LeaseId> {
        let (oldest, small) = (self.waiting.oldest(), self.waiting.oldest_small());
        let is_next = |wish: &(Ticket, usize)| wish.0 == ticket;
        let Some((_, bytes)) = oldest.filter(is_next).or(small.filter(is_next)) else {
            return Vec::new();
        };
        let total = self.held(ticket.lease).saturating_add(bytes);
        let wanted = self.in_use.saturating_add(bytes).saturating_sub(self.ceiling(total));
        let ending = self.bodies.iter().filter(|(_, body)| body.is_ending);
        let leaving = ending.map(|(&lease, _)| self.held(lease)).fold(0, usize::saturating_add);
        let mut missing = wanted.saturating_sub(leaving);
        if missing == 0 {
            return Vec::new();
        }
        let waits = |lease| self.waiting.has(lease);
        let mut stalled = self.unfinished(|lease, body| !waits(lease) && body.is_stalled(now));
        stalled.sort_unstable();
        let may_end_waiting = is_overdue && oldest.is_some_and(|wish| is_next(&wish));
        let mut youngest = match may_end_waiting {
            true => self.unfinished(|lease, _| lease > ticket.lease && waits(lease)),
            false => Vec::new(),
        };
        youngest.sort_unstable_by_key(|&(_, lease)| lease);
        let mut chosen = Vec::new();
        for (bytes, lease) in stalled.into_iter().rev().chain(youngest.into_iter().rev()) {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(bytes);
            if let Some(body) = self.bodies.get_mut(&lease) {
                body.is_ending = true;
            }
            chosen.push(lease);
        }
        chosen
    }

    /// Returns the bytes and the lease of each unfinished body that is `wanted`. Bodies that
    /// already have to end are left out.
    fn unfinished(&self, wanted: impl Fn(LeaseId, &Body) -> bool) -> Vec<(usize, LeaseId)> {
        let unfinished = self.bodies.iter().filter(|(_, body)| !body.is_ending);
        let bodies = unfinished.map(|(&lease, body)| (self.held(lease), lease, body));
        let wanted = bodies.filter(|&(bytes, lease, body)| bytes > 0 && wanted(lease, body));
        wanted.map(|(bytes, lease, _)| (bytes, lease)).collect()
    }
}

/// Returns whether a request that holds `total` bytes is small.
fn is_small(total: usize) -> bool {
    total <= SMALL_BYTES
}

#[cfg(test)]
mod tests;
