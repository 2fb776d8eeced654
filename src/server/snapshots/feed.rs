//! Snapshots, taken once for all who want one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::Bytes;
use parking_lot::Mutex as Lock;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

use super::{shape::Shaper, snapshot::EngineSnapshot};
use crate::api::{Health, Tenant};
use crate::{engine::Engine, server::http::sse};

/// A snapshot is good for so long.
const PERIOD: Duration = Duration::from_millis(250);
/// What [`sse::event`] puts around the JSON.
const AROUND_JSON: (usize, usize) = (b"data: ".len(), b"\n\n".len());

/// The one source of an engine's snapshots.
pub(in crate::server) struct SnapshotFeed {
    engine: Engine,
    taken: Mutex<(Shaper, Option<Taken>)>,
    /// Locked while the engine is told, so that it hears of it in the order in which it happens.
    num_watchers: Lock<usize>,
}

/// A snapshot.
#[derive(Clone)]
pub(super) struct Taken {
    snapshot: Arc<EngineSnapshot>,
    /// Ready to be sent, for each reader that asked: `None` sees all of it.
    events: Arc<Lock<BTreeMap<Option<Tenant>, Bytes>>>,
    /// When the next one may be taken.
    due: Instant,
    /// The engine has ended what it had, and takes nothing new: nothing follows.
    is_last: bool,
}

impl Taken {
    /// As this reader may see it.
    pub(super) fn event(&self, sees_only: Option<Tenant>) -> Bytes {
        let mut events = self.events.lock();
        let event = events.entry(sees_only).or_insert_with(|| match sees_only {
            Some(tenant) => sse::event(&self.snapshot.seen_by(tenant)),
            None => sse::event(&*self.snapshot),
        });
        event.clone()
    }

    /// The event's data.
    pub(super) fn json(&self, sees_only: Option<Tenant>) -> Bytes {
        let (before, after) = AROUND_JSON;
        let event = self.event(sees_only);
        event.slice(before..event.len() - after)
    }
}

impl SnapshotFeed {
    pub(in crate::server) fn new(engine: Engine) -> Self {
        let shaper = Shaper::new(&engine);
        Self { engine, taken: Mutex::new((shaper, None)), num_watchers: Default::default() }
    }

    /// The last snapshot, or a new one if that is too old. Whoever asks meanwhile waits for the
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

    /// Somebody who watches from now on, perhaps one tenant's requests only.
    pub(super) fn watch(self: &Arc<Self>, sees_only: Option<Tenant>) -> Watcher {
        let mut num_watchers = self.num_watchers.lock();
        *num_watchers += 1;
        self.engine.set_watched(true);
        Watcher { feed: Arc::clone(self), sees_only, last: None }
    }
}

/// One who watches. Once all of them are dropped, nothing is noted any more.
pub(super) struct Watcher {
    feed: Arc<SnapshotFeed>,
    sees_only: Option<Tenant>,
    last: Option<Taken>,
}

impl Watcher {
    /// The next snapshot that this one has not seen, as an event; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(last) = &self.last {
                if last.is_last {
                    return None;
                }
                sleep_until(last.due).await;
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
