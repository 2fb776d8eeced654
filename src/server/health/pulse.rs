//! Whether the runtime's threads make progress. A thread outside the runtime writes it
//! (`listen/watch.rs`), and health reads it. It consists of atomics alone, because a frozen thread
//! keeps its locks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// A freeze that lasts longer counts as one that only a restart ends.
const LASTING: Duration = Duration::from_secs(30);

/// The state of the runtime's threads. Cheap to clone.
#[derive(Debug, Clone)]
pub(in crate::server) struct RuntimePulse(Arc<State>);

#[derive(Debug)]
struct State {
    created: Instant,
    is_frozen: AtomicBool,
    stuck_threads: AtomicUsize,
    /// When the freeze began, microseconds since `created`. 0 if there is none.
    since: AtomicU64,
}

/// The threads that make no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::server) struct Freeze {
    /// No thread takes up new work.
    pub(in crate::server) is_whole: bool,
    /// Threads that do not return from one piece of work.
    pub(in crate::server) stuck_threads: usize,
}

impl Freeze {
    /// Returns whether every thread makes progress.
    pub(in crate::server) fn is_none(self) -> bool {
        self == Self::default()
    }
}

impl RuntimePulse {
    /// Returns the pulse of a runtime whose threads make progress.
    pub(in crate::server) fn new() -> Self {
        Self(Arc::new(State {
            created: Instant::now(),
            is_frozen: AtomicBool::new(false),
            stuck_threads: AtomicUsize::new(0),
            since: AtomicU64::new(0),
        }))
    }

    /// Stores the current state. Returns the one before.
    pub(in crate::server) fn set(&self, freeze: Freeze) -> Freeze {
        let (state, before) = (&self.0, self.freeze());
        if freeze.is_none() {
            state.since.store(0, Relaxed);
        } else if before.is_none() {
            let since = state.created.elapsed().as_micros() as u64;
            state.since.store(since.max(1), Relaxed);
        }
        state.is_frozen.store(freeze.is_whole, Relaxed);
        state.stuck_threads.store(freeze.stuck_threads, Relaxed);
        before
    }

    /// Returns the current state.
    pub(in crate::server) fn freeze(&self) -> Freeze {
        let (is_whole, stuck_threads) = (&self.0.is_frozen, &self.0.stuck_threads);
        Freeze { is_whole: is_whole.load(Relaxed), stuck_threads: stuck_threads.load(Relaxed) }
    }

    /// Returns whether no thread takes up new work.
    pub(in crate::server) fn is_frozen(&self) -> bool {
        self.0.is_frozen.load(Relaxed)
    }

    /// Returns whether a freeze has lasted so long that it will not end by itself.
    pub(in crate::server) fn is_lost(&self) -> bool {
        let since = self.0.since.load(Relaxed);
        let now = self.0.created.elapsed();
        since != 0 && now.saturating_sub(Duration::from_micros(since)) >= LASTING
    }
}
