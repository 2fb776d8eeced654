//! Keeps responses for those who asked for them: so many, so large, so long.

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

/// The part of the memory for requests that responses may take: one in so many bytes.
const MEMORY_PART: usize = 4;
/// When a response that had no room may be asked for again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Whose a response is: who has another key does not see it.
pub(super) type Owner = Option<Tenant>;

/// The responses of a server, in memory.
pub(in crate::server) struct ResponseStore {
    limits: Limits,
    /// Bytes of everything that is kept, also of turns whose own response is forgotten already.
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

/// What is kept, with who looked at what last.
#[derive(Default)]
struct Kept {
    entries: IndexMap<(Owner, String), Entry>,
    /// Counts looks.
    now: u64,
}

struct Entry {
    stored: Arc<Stored>,
    since: Instant,
    looked_at: u64,
}

impl ResponseStore {
    /// What is kept is part of `memory`, which bounds it as well.
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

    /// Whether anything is kept at all.
    pub(super) fn is_enabled(&self) -> bool {
        self.limits.max_count > 0
    }

    /// For something that is to be kept here.
    pub(super) fn weight(&self) -> Weight {
        Weight::new(self.total.clone(), self.memory.lease())
    }

    /// Room for a response of `bytes` that goes on without its client, with memory of `request` as
    /// far as that has it.
    ///
    /// # Errors
    /// 503 if what still runs leaves no room.
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

    /// Whether there is room for what something grew by, once others were forgotten.
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

    /// Forgets what has to go since something grew.
    pub(super) fn make_room(&self) {
        self.kept.lock().make_room(&self.limits, &self.total, Instant::now());
    }

    /// # Errors
    /// 404 if there is no such response, or it is somebody else's.
    pub(super) fn get(&self, owner: Owner, id: &str) -> Result<Arc<Stored>, ApiError> {
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

    /// An item of a response that is kept.
    pub(super) fn item(&self, owner: Owner, item_id: &str) -> Option<Arc<Item>> {
        self.get(owner, &response_of(item_id)?).ok()?.item(item_id)
    }

    /// Runs what goes on without its client.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(work);
    }

    /// Completes when nothing goes on in the background.
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

    /// Forgets what is too old, and then what nobody has looked at for longest. What still runs
    /// stays: [`ResponseStore::reserve`] bounds how much that is.
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
