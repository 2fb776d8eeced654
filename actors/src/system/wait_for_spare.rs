//! The requests of an engine whose process has ended wait for its spare process, if that has loaded
//! its model: it adopts the KV cache. Another engine would have to compute their tokens again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::link::spare::Spare;

/// Longest time that requests wait. A spare process takes about 50 ms, and several times as long on
/// a busy machine. After a while, another engine has computed the tokens again.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The wait of one engine's requests.
#[derive(Debug, Default)]
pub(super) struct WaitForSpare(Mutex<Option<Wait>>);

#[derive(Debug)]
struct Wait {
    until: Instant,
    /// Whether the spare process lives and has loaded its model.
    is_ready: Arc<AtomicBool>,
}

impl WaitForSpare {
    /// Begins a wait for the spare process, if there is one, and ends the wait before.
    pub(super) fn begin(&self, spare: Option<&Spare>) {
        let wait = |spare: &Spare| {
            let is_ready = spare.readiness();
            Wait { until: Instant::now() + WAIT_MAX, is_ready }
        };
        *self.0.lock() = spare.map(wait);
    }

    /// Ends the wait.
    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }

    /// Returns whether the requests wait.
    pub(super) fn is_on(&self) -> bool {
        let is_on =
            |wait: &Wait| wait.is_ready.load(Ordering::Acquire) && Instant::now() < wait.until;
        self.0.lock().as_ref().is_some_and(is_on)
    }
}
