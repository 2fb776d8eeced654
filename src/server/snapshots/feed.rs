//! Snapshots, taken once for all readers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::Bytes;
use parking_lot::Mutex as Lock;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{shape::Shaper, snapshot::EngineSnapshot};
use crate::api::{Health, Tenant};
use crate::{engine::Engine, server::http::sse};

/// How long a snapshot is valid.
const PERIOD: Duration = Duration::from_millis(250);
/// The bytes that [`sse::event`] puts before and after the JSON.
const AROUND_JSON: (usize, usize) = (b"data: ".len(), b"\n\n".len());

/// The one source of an engine's snapshots.
pub(in crate::server) struct SnapshotFeed {
    engine: Engine,
    /// Cancelled when another engine is served: watchers ask anew, and see that one.
    superseded: CancellationToken,
    taken: Mutex<(Shaper, Option<Taken>)>,
    /// Locked during the call to the engine, so that the engine sees changes in their order.
    num_watchers: Lock<usize>,
}

/// A snapshot.
#[derive(Clone)]
pub(super) struct Taken {
    snapshot: Arc<EngineSnapshot>,
    /// Events ready to be sent, by the tenant that may read them. `None` sees all of it.
    events: Arc<Lock<BTreeMap<Option<Tenant>, Bytes>>>,
    /// When the next one may be taken.
    due: Instant,
    /// The engine has ended its requests and takes no new ones: no snapshot follows.
    is_last: bool,
}

impl Taken {
    /// Returns the event as this reader may see it.
    pub(super) fn event(&self, sees_only: Option<Tenant>) -> Bytes {
        let mut events = self.events.lock();
        let event = events.entry(sees_only).or_insert_with(|| match sees_only {
            Some(tenant) => sse::event(&self.snapshot.seen_by(tenant)),
            None => sse::event(&*self.snapshot),
        });
        event.clone()
    }

    /// Returns the event's data.
    pub(super) fn json(&self, sees_only: Option<Tenant>) -> Bytes {
        let (before, after) = AROUND_JSON;
        let event = self.event(sees_only);
        event.slice(before..event.len() - after)
    }
}

impl SnapshotFeed {
    pub(in crate::server) fn new(engine: Engine, superseded: CancellationToken) -> Self {
        let taken = Mutex::new((Shaper::new(&engine), None));
        Self { engine, superseded, taken, num_watchers: Default::default() }
    }

    /// Returns the last snapshot, or a new one if that is too old. Concurrent callers wait for the
    /// same one.
    pub(super) async fn latest(&self) -> Taken {
        let mut taken = self.taken.lock().await;
        let (shaper, last) = &mut *taken;
        if let Some(last) = last.as_ref().filter(|last| Instant::now() < last.due) {
            return last.clone();
        }
        let view = self.engine.look().await;
        let (health, open_requests) = (self.engine.health(), self.engine.open_requests());
        let is_last = match health {
            Health::Draining => open_requests == 0,
            Health::Dead => true,
            Health::Starting | Health::Ready | Health::Recovering | Health::Unhealthy(_) => false,
        };
        let snapshot = shaper.shape(view, health, open_requests);
        let due = Instant::now() + PERIOD;
        let snapshot = Arc::new(snapshot);
        let fresh = Taken { snapshot, events: Arc::default(), due, is_last };
        *last = Some(fresh.clone());
        fresh
    }

    /// Returns a watcher that watches from now on, perhaps one tenant's requests only.
    pub(super) fn watch(self: &Arc<Self>, sees_only: Option<Tenant>) -> Watcher {
        let mut num_watchers = self.num_watchers.lock();
        *num_watchers += 1;
        self.engine.set_watched(true);
        Watcher { feed: Arc::clone(self), sees_only, last: None }
    }
}

/// A reader of the snapshots. Once all watchers are dropped, the engine records no timelines.
pub(super) struct Watcher {
    feed: Arc<SnapshotFeed>,
    sees_only: Option<Tenant>,
    last: Option<Taken>,
}

impl Watcher {
    /// Returns the next snapshot that this watcher has not seen, as an event. Returns `None` after
    /// the last.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(last) = &self.last {
                if last.is_last {
                    return None;
                }
                let superseded = self.feed.superseded.cancelled();
                timeout_at(last.due, superseded).await.is_err().then_some(())?;
            }
            let taken = self.feed.latest().await;
            let seq = taken.snapshot.seq;
            let is_new = self.last.as_ref().is_none_or(|last| last.snapshot.seq != seq);
            let event = is_new.then(|| taken.event(self.sees_only));
            self.last = Some(taken);
            if event.is_some() {
                return event;
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut num_watchers = self.feed.num_watchers.lock();
        *num_watchers -= 1;
        self.feed.engine.set_watched(*num_watchers > 0);
    }
}
