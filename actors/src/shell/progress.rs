//! Whether the engine gets anywhere: told by the scheduler and the worker, read by health checks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::logic::ids::Micros;

/// Never.
const NEVER: u64 = u64::MAX;

/// Signs of progress of one system.
#[derive(Debug)]
pub struct Progress {
    has_begun: AtomicBool,
    begun: Notify,
    due: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { has_begun: AtomicBool::new(false), begun: Notify::new(), due: AtomicU64::new(NEVER) }
    }
}

impl Progress {
    /// The scheduler knows the first epoch.
    pub fn begin(&self) {
        self.has_begun.store(true, Ordering::Release);
        self.begun.notify_waiters();
    }

    /// Completes once requests can be served.
    pub async fn begun(&self) {
        let mut begun = std::pin::pin!(self.begun.notified());
        begun.as_mut().enable();
        if !self.has_begun() {
            begun.await;
        }
    }

    /// Whether requests can be served at all.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// A step should be done by `due`. One that is done again is not granted more time.
    pub fn expect(&self, due: Micros) {
        self.due.fetch_min(due, Ordering::Relaxed);
    }

    /// A step is done.
    pub fn done(&self) {
        self.due.store(NEVER, Ordering::Relaxed);
    }

    /// Whether a step should have been done before `now`.
    pub fn is_late(&self, now: Micros) -> bool {
        self.due.load(Ordering::Relaxed) < now
    }
}
