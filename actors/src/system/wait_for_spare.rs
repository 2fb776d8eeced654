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

/// Longest time that requests wait. A spare process takes about 50 ms, and several times as long on
/// a busy machine. After a while, another engine has computed the tokens again.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The wait of one engine's requests.
#[derive(Debug, Default)]
pub(super) struct WaitForSpare(Mutex<Option<Wait>>);

/// A wait that has begun.
#[derive(Debug)]
pub(super) struct Wait {
    until: Instant,
    /// Whether the spare process lives and has loaded its model.
    is_ready: Arc<AtomicBool>,
}

impl WaitForSpare {
    /// Begins a wait for the spare process, if there is one, and ends the wait before. `is_ready`
    /// says whether the spare process lives and has loaded its model.
    pub(super) fn begin(&self, is_ready: Option<Arc<AtomicBool>>) {
        let wait = |is_ready| Wait { until: Instant::now() + WAIT_MAX, is_ready };
        *self.0.lock() = is_ready.map(wait);
    }

    /// Returns whether the requests wait, if the engine has no process that serves.
    pub(super) fn is_on(&self) -> bool {
        let is_on =
            |wait: &Wait| wait.is_ready.load(Ordering::Acquire) && Instant::now() < wait.until;
        self.0.lock().as_ref().is_some_and(is_on)
    }

    /// Lets no wait begin while the returned guard lives.
    #[cfg(test)]
    pub(super) fn hold(&self) -> parking_lot::MutexGuard<'_, Option<Wait>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_spare_process_that_is_ready_and_not_for_long() {
        let (wait, is_ready) = (WaitForSpare::default(), Arc::<AtomicBool>::default());
        wait.begin(Some(Arc::clone(&is_ready)));
        assert!(!wait.is_on(), "it loads its model");
        is_ready.store(true, Ordering::Release);
        tokio::time::advance(WAIT_MAX - Duration::from_millis(1)).await;
        assert!(wait.is_on());
        is_ready.store(false, Ordering::Release);
        assert!(!wait.is_on(), "it has ended");
        is_ready.store(true, Ordering::Release);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!wait.is_on(), "it does not serve in time");
        wait.begin(Some(is_ready));
        assert!(wait.is_on());
        wait.begin(None);
        assert!(!wait.is_on(), "there is none");
    }
}
