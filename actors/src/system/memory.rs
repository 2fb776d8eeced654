//! Leases of the memory for requests. A lease holds bytes until it is dropped.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use metrics::{Counter, Gauge, Label, counter, gauge};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, timeout_at},
};

use crate::logic::{
    memory::{Growth, LeaseId, MemoryLedger, Ticket},
    request::ids::Micros,
};

/// Time that a request for memory waits before it is refused.
const PATIENCE: Duration = Duration::from_secs(5);
/// Age at which the oldest waiting request for memory is overdue. Younger bodies that wait end for
/// it.
const OVERDUE: Duration = Duration::from_secs(1);
/// Time between two looks for bodies that may end for a waiting request.
const LOOK: Duration = Duration::from_millis(250);
/// Time after which a refused request may come back.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// The reason why memory was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// One request may not hold that much.
    #[error(
        "the request needs {wanted} bytes of memory, and one request may hold {limit}: a share of \
         max_request_memory_bytes"
    )]
    TooLarge {
        /// Bytes that the request would hold.
        wanted: usize,
        /// Bytes that the request may hold.
        limit: usize,
    },
    /// Other requests hold the memory.
    #[error(
        "the memory for requests is in use: {wanted} bytes were wanted, and {in_use} of {limit} \
         are taken (max_request_memory_bytes)"
    )]
    Short {
        /// Bytes that were wanted.
        wanted: usize,
        /// Bytes in use.
        in_use: usize,
        /// Bytes that all requests may hold.
        limit: usize,
        /// Time after which the client may try again.
        retry_after: Duration,
    },
}

/// The memory for all requests of one engine.
pub struct MemoryBudget {
    inner: Mutex<Inner>,
    started: Instant,
    in_use: Gauge,
    refused: Counter,
}

struct Inner {
    ledger: MemoryLedger,
    waiting: BTreeMap<Ticket, oneshot::Sender<()>>,
    /// The signal of each arriving body. The body's reader ends the body at the signal.
    bodies: BTreeMap<LeaseId, Arc<Notify>>,
}

/// Bytes that one request, or data kept of it, holds until this value is dropped.
pub struct Lease {
    id: LeaseId,
    budget: Arc<MemoryBudget>,
}

/// A body that arrives on a lease.
pub struct ArrivingBody<'a> {
    lease: &'a Lease,
    signal: Arc<Notify>,
}

impl MemoryBudget {
    /// Returns a budget of `limit` bytes. Its metrics have the labels `model_name` and `engine`.
    #[must_use]
    pub fn new(limit: usize, model_name: &str, engine: &str) -> Arc<Self> {
        let labels = [
            Label::new("model_name", model_name.to_owned()),
            Label::new("engine", engine.to_owned()),
        ];
        let ledger = MemoryLedger::new(limit);
        let total = gauge!("playhouse:request_memory_limit_bytes", labels.iter());
        total.set(ledger.limit() as f64);
        let refused = counter!("playhouse:request_memory_refused_total", labels.iter());
        refused.increment(0);
        let inner = Inner { ledger, waiting: BTreeMap::new(), bodies: BTreeMap::new() };
        Arc::new(Self {
            inner: Mutex::new(inner),
            started: Instant::now(),
            in_use: gauge!("playhouse:request_memory_bytes", labels.iter()),
            refused,
        })
    }

    /// Returns a lease that holds nothing.
    #[must_use]
    pub fn lease(self: &Arc<Self>) -> Lease {
        Lease { id: self.inner.lock().ledger.open(), budget: Arc::clone(self) }
    }

    /// Returns the bytes that all requests may hold.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.inner.lock().ledger.limit()
    }

    /// Returns the bytes that one request may hold before it has output.
    #[must_use]
    pub fn request_limit(&self) -> usize {
        self.inner.lock().ledger.request_limit()
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.inner.lock().ledger.in_use()
    }

    /// Changes the ledger, and wakes the waiters that got memory by the change.
    fn change<T>(&self, change: impl FnOnce(&mut MemoryLedger) -> T) -> T {
        let mut inner = self.inner.lock();
        let changed = change(&mut inner.ledger);
        for ticket in inner.ledger.granted() {
            // A granted ticket whose owner has left holds its bytes until its lease ends.
            inner.waiting.remove(&ticket).map(|waiting| waiting.send(()));
        }
        self.in_use.set(inner.ledger.in_use() as f64);
        changed
    }

    fn short(&self, wanted: usize) -> MemoryError {
        self.refused.increment(1);
        let inner = self.inner.lock();
        let (in_use, limit) = (inner.ledger.in_use(), inner.ledger.limit());
        MemoryError::Short { wanted, in_use, limit, retry_after: RETRY_AFTER }
    }

    fn now(&self) -> Micros {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Ends bodies that delay `ticket`.
    fn end_bodies(&self, ticket: Ticket, is_overdue: bool) {
        let now = self.now();
        let mut inner = self.inner.lock();
        for lease in inner.ledger.end_bodies(ticket, is_overdue, now) {
            inner.bodies.get(&lease).inspect(|signal| signal.notify_one());
        }
    }
}

impl Lease {
    /// Takes `bytes` more, before they are allocated. Waits a while if they are not free. A call is
    /// one ticket: other calls of the same lease wait with their own.
    ///
    /// # Errors
    /// [`MemoryError`] if it is more than a request may hold, or not free in time.
    pub async fn grow(&self, bytes: usize) -> Result<(), MemoryError> {
        let budget = &*self.budget;
        let (ticket, mut granted) = {
            let mut inner = budget.inner.lock();
            let growth = inner.ledger.grow(self.id, bytes);
            match growth {
                Growth::Waits(ticket) => {
                    let (sender, receiver) = oneshot::channel();
                    inner.waiting.insert(ticket, sender);
                    (ticket, receiver)
                }
                Growth::Taken => {
                    budget.in_use.set(inner.ledger.in_use() as f64);
                    return Ok(());
                }
                Growth::Refused => {
                    drop(inner);
                    return Err(budget.short(bytes));
                }
                Growth::TooLarge(limit) => {
                    let wanted = inner.ledger.held(self.id).saturating_add(bytes);
                    return Err(MemoryError::TooLarge { wanted, limit });
                }
            }
        };
        let wish = Wish { ticket, budget };
        let began = Instant::now();
        let give_up = began + PATIENCE;
        loop {
            budget.end_bodies(wish.ticket, began.elapsed() >= OVERDUE);
            let look = give_up.min(Instant::now() + LOOK);
            // The sender is dropped only with the wish, which lives here.
            if let Ok(Ok(())) = timeout_at(look, &mut granted).await {
                return Ok(());
            }
            if Instant::now() >= give_up {
                drop(wish);
                return match granted.try_recv() {
                    Ok(()) => Ok(()),
                    Err(_) => Err(budget.short(bytes)),
                };
            }
        }
    }

    /// Takes `bytes` of output, which cannot wait.
    ///
    /// # Errors
    /// [`MemoryError::Short`] if the budget is used up, and this lease holds more than its share.
    pub fn add(&self, bytes: usize) -> Result<(), MemoryError> {
        match self.budget.change(|ledger| ledger.add(self.id, bytes)) {
            true => Ok(()),
            false => Err(self.budget.short(bytes)),
        }
    }

    /// Releases `bytes`.
    pub fn shrink(&self, bytes: usize) {
        self.budget.change(|ledger| ledger.release(self.id, bytes));
    }

    /// Returns the bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.budget.inner.lock().ledger.held(self.id)
    }

    /// Makes it hold `bytes`. Missing bytes come from `other` as far as it has them. The rest comes
    /// from the budget, even if it is not free, so another limit must bound the data.
    pub fn set(&self, bytes: usize, other: Option<&Self>) {
        self.budget.change(|ledger| {
            let held = ledger.held(self.id);
            let missing = bytes.saturating_sub(held);
            let moved = other.map_or(0, |other| ledger.transfer(other.id, self.id, missing));
            ledger.take(self.id, missing - moved);
            ledger.release(self.id, held.saturating_sub(bytes));
        });
    }

    /// Returns its budget.
    #[must_use]
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Records that a body begins to arrive on this lease.
    #[must_use]
    pub fn body(&self) -> ArrivingBody<'_> {
        let signal = Arc::new(Notify::new());
        let now = self.budget.now();
        let mut inner = self.budget.inner.lock();
        inner.ledger.body_begins(self.id, now);
        inner.bodies.insert(self.id, Arc::clone(&signal));
        ArrivingBody { lease: self, signal }
    }
}

impl ArrivingBody<'_> {
    /// Records that `bytes` more of it have arrived.
    pub fn arrived(&self, bytes: usize) {
        let budget = &self.lease.budget;
        let now = budget.now();
        budget.inner.lock().ledger.body_arrived(self.lease.id, bytes, now);
    }

    /// Completes when the body has to end, because other requests need its memory.
    pub async fn must_end(&self) -> MemoryError {
        while !self.lease.budget.inner.lock().ledger.is_ending(self.lease.id) {
            self.signal.notified().await;
        }
        self.lease.budget.short(self.lease.bytes())
    }
}

impl Drop for ArrivingBody<'_> {
    fn drop(&mut self) {
        let mut inner = self.lease.budget.inner.lock();
        inner.bodies.remove(&self.lease.id);
        inner.ledger.body_ends(self.lease.id);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.change(|ledger| ledger.close(self.id));
    }
}

/// A waiting request for memory. It ends when its owner stops waiting.
struct Wish<'a> {
    ticket: Ticket,
    budget: &'a MemoryBudget,
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        self.budget.inner.lock().waiting.remove(&self.ticket);
        self.budget.change(|ledger| ledger.cancel(self.ticket));
    }
}

impl std::fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryBudget").field("in_use", &self.in_use()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
