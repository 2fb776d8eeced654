//! Stores responses for their owners, with limits on number, size and time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use indexmap::IndexMap;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use super::{ids::response_of, items::Item, stored::Stored, weight::Weight};
use crate::api::{Lease, MemoryBudget, Tenant};
use crate::server::{ServerConfig, http::error::ApiError};

/// The share of the memory for requests that responses may take: one byte of this many.
const MEMORY_PART: usize = 4;
/// Time after which a client may ask again for a response that had no room.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The key that a response belongs to. Other keys do not see the response.
pub(super) type Owner = Option<Tenant>;

/// The responses of a server, in memory.
pub(in crate::server) struct ResponseStore {
    limits: Limits,
    /// Bytes of everything stored, including turns whose own response was removed.
    total: Arc<AtomicUsize>,
    memory: Arc<MemoryBudget>,
    kept: Mutex<Kept>,
    background: TaskTracker,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    max_count: usize,
    max_bytes: usize,
    ttl: Duration,
}

/// The stored responses, with the time of their last use.
#[derive(Default)]
struct Kept {
    entries: IndexMap<(Owner, String), Entry>,
    /// Counts uses.
    now: u64,
}

struct Entry {
    stored: Arc<Stored>,
    since: Instant,
    looked_at: u64,
}

impl ResponseStore {
    /// Returns an empty store. Its bytes are part of `memory`, which bounds it as well.
    pub(in crate::server) fn new(config: &ServerConfig, memory: Arc<MemoryBudget>) -> Self {
        let limits = Limits {
            max_count: config.responses_store_max_count,
            max_bytes: config.responses_store_max_bytes.min(memory.limit() / MEMORY_PART),
            ttl: Duration::from_secs(config.responses_store_ttl_secs),
        };
        Self {
            limits,
            total: Arc::default(),
            memory,
            kept: Mutex::default(),
            background: TaskTracker::new(),
        }
    }

    /// Returns whether responses are stored at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.limits.max_count > 0
    }

    /// Returns the weight of an object that will be stored here.
    pub(super) fn weight(&self) -> Weight {
        Weight::new(self.total.clone(), self.memory.lease())
    }

    /// Returns room for a response of `bytes` that runs without its client. Takes the memory of
    /// `request` first.
    ///
    /// # Errors
    /// 503 if running responses leave no room.
    pub(super) fn reserve(&self, bytes: usize, request: &Lease) -> Result<Weight, ApiError> {
        let weight = self.weight();
        let mut kept = self.kept.lock();
        weight.set(bytes, Some(request));
        kept.make_room(&self.limits, &self.total, Instant::now());
        let (total, limit) = (self.total.load(Ordering::Relaxed), self.limits.max_bytes);
        if total <= limit {
            return Ok(weight);
        }
        let message = format!(
            "the store of responses is full of those that are not over: {bytes} bytes more would \
             make {total}, and it may hold {limit} (responses_store_max_bytes, and a quarter of \
             max_request_memory_bytes)"
        );
        Err(ApiError::unavailable(message, RETRY_AFTER))
    }

    /// Returns whether there is room after an object has grown. Removes old responses first.
    pub(super) fn has_room(&self) -> bool {
        let is_full = || self.total.load(Ordering::Relaxed) > self.limits.max_bytes;
        if is_full() {
            self.make_room();
        }
        !is_full()
    }

    pub(super) fn insert(&self, owner: Owner, stored: Arc<Stored>) {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        kept.insert(owner, stored, now);
        kept.make_room(&self.limits, &self.total, now);
    }

    /// Stores a response that another process has stored so long ago.
    pub(super) fn insert_aged(&self, owner: Owner, stored: Arc<Stored>, age: Duration) {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        kept.insert(owner, stored, now.checked_sub(age).unwrap_or(now));
        kept.make_room(&self.limits, &self.total, now);
    }

    /// Returns all responses with their owners and ages, in the order in which they were stored.
    pub(super) fn all(&self, now: Instant) -> Vec<(Owner, Arc<Stored>, Duration)> {
        let kept = self.kept.lock();
        let mut entries: Vec<_> = kept.entries.iter().collect();
        entries.sort_by_key(|(_, entry)| entry.since);
        let all = entries.into_iter().map(|((owner, _), entry)| {
            (*owner, Arc::clone(&entry.stored), now.saturating_duration_since(entry.since))
        });
        all.collect()
    }

    /// Removes responses until the store is within its limits.
    pub(super) fn make_room(&self) {
        self.kept.lock().make_room(&self.limits, &self.total, Instant::now());
    }

    /// # Errors
    /// 404 if there is no such response, or if it belongs to another owner.
    pub(in crate::server) fn get(&self, owner: Owner, id: &str) -> Result<Arc<Stored>, ApiError> {
        let found = self.kept.lock().get(owner, id, &self.limits, Instant::now());
        found.ok_or_else(|| unknown(id))
    }

    /// # Errors
    /// As [`Self::get`].
    pub(super) fn remove(&self, owner: Owner, id: &str) -> Result<Arc<Stored>, ApiError> {
        let found = self.get(owner, id)?;
        self.kept.lock().entries.swap_remove(&(owner, id.to_owned()));
        Ok(found)
    }

    /// Returns an item of a stored response.
    pub(super) fn item(&self, owner: Owner, item_id: &str) -> Option<Arc<Item>> {
        self.get(owner, &response_of(item_id)?).ok()?.item(item_id)
    }

    /// Runs work that goes on without its client.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(work);
    }

    /// Completes when no work runs in the background.
    pub(in crate::server) async fn drained(&self) {
        self.background.close();
        self.background.wait().await;
    }
}

fn unknown(id: &str) -> ApiError {
    ApiError::missing("response_id", format!("Response with id '{id}' not found."))
}

impl Kept {
    fn insert(&mut self, owner: Owner, stored: Arc<Stored>, since: Instant) {
        self.now += 1;
        let key = (owner, stored.response().id);
        self.entries.insert(key, Entry { stored, since, looked_at: self.now });
    }

    fn get(
        &mut self,
        owner: Owner,
        id: &str,
        limits: &Limits,
        now: Instant,
    ) -> Option<Arc<Stored>> {
        let entry = self.entries.get_mut(&(owner, id.to_owned()))?;
        if entry.is_old(limits, now) {
            return None;
        }
        self.now += 1;
        entry.looked_at = self.now;
        Some(entry.stored.clone())
    }

    /// Removes responses that are too old, and then those that were unused for longest. Running
    /// ones stay: [`ResponseStore::reserve`] bounds their size.
    fn make_room(&mut self, limits: &Limits, total: &AtomicUsize, now: Instant) {
        self.entries.retain(|_, entry| !entry.is_old(limits, now));
        while self.entries.len() > limits.max_count
            || total.load(Ordering::Relaxed) > limits.max_bytes
        {
            let over =
                self.entries.values().enumerate().filter(|(_, entry)| entry.stored.is_over());
            let Some((oldest, _)) = over.min_by_key(|(_, entry)| entry.looked_at) else { return };
            self.entries.swap_remove_index(oldest);
        }
    }
}

impl Entry {
    fn is_old(&self, limits: &Limits, now: Instant) -> bool {
        self.stored.is_over() && now.duration_since(self.since) >= limits.ttl
    }
}

#[cfg(test)]
mod tests;
