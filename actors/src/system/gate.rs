//! The gate for clients: the breaker, which may keep it shut, and the call for the canary, which
//! may open it again.

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::logic::{
    recovery::breaker::{Breaker, BreakerState},
    request::ids::Micros,
};

/// Time after which a canary without a result has failed: ten minutes. Its sender waits less.
const CANARY_LIMIT: Micros = 600_000_000;

/// The gate of one system.
#[derive(Debug)]
pub(crate) struct Gate {
    breaker: Mutex<Breaker>,
    /// Why the breaker opened the last time.
    why: Mutex<String>,
    canary_wanted: Notify,
}

impl Default for Gate {
    fn default() -> Self {
        let breaker = Mutex::new(Breaker::new(CANARY_LIMIT));
        Self { breaker, why: Mutex::default(), canary_wanted: Notify::new() }
    }
}

impl Gate {
    /// Returns the breaker.
    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock()
    }

    /// Lets no clients in until a canary was served, for a reason that is no text of a client.
    pub(crate) fn trip(&self, now: Micros, why: String) {
        *self.why.lock() = why;
        self.breaker().trip(now);
        self.call_canary();
    }

    /// Returns why no clients are let in, if that is so.
    pub(crate) fn closed_because(&self, now: Micros) -> Option<String> {
        let is_closed = self.breaker().state(now) != BreakerState::Closed;
        is_closed.then(|| self.why.lock().clone())
    }

    /// Wakes the canary: the breaker may close, the model is suspect, or the system ends.
    pub(crate) fn call_canary(&self) {
        self.canary_wanted.notify_one();
    }

    /// Completes at the next call for the canary.
    pub(crate) async fn canary_called(&self) {
        self.canary_wanted.notified().await;
    }
}
