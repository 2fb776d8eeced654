//! Whether the engine makes progress. Scheduler and worker write it, health checks read it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::logic::request::ids::Micros;

/// A time that never comes.
const NEVER: u64 = u64::MAX;

/// Signs of progress of one system.
#[derive(Debug)]
pub struct Progress {
    has_begun: AtomicBool,
    begun: Notify,
    due: AtomicU64,
    /// The time from which the current step takes suspiciously long.
    long_after: AtomicU64,
    /// Total time that threads lacked a processor while a step took suspiciously long.
    starved: AtomicU64,
    /// Time of the watchdog's last look.
    looked: AtomicU64,
    steps: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            has_begun: AtomicBool::new(false),
            begun: Notify::new(),
            due: AtomicU64::new(NEVER),
            long_after: AtomicU64::new(NEVER),
            starved: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            steps: AtomicU64::new(0),
        }
    }
}

impl Progress {
    /// Records that the scheduler knows the first epoch.
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

    /// Returns whether requests can be served at all.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Expects a step by `due`. A step that is computed again gets no more time.
    pub fn expect(&self, due: Micros) {
        self.due.fetch_min(due, Ordering::Relaxed);
    }

    /// Records that the device begins a step that may take `limit`.
    pub fn begin_step(&self, now: Micros, limit: Micros) {
        self.expect(now.saturating_add(limit));
        self.long_after.store(now.saturating_add(limit / 5), Ordering::Relaxed);
    }

    /// Moves the end of the current step to `due`, because the step lacked a processor.
    pub fn put_off(&self, due: Micros) {
        self.due.store(due, Ordering::Relaxed);
    }

    /// Records that a step is done.
    pub fn step_done(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.rest();
    }

    /// Records that no step is expected.
    pub fn rest(&self) {
        self.due.store(NEVER, Ordering::Relaxed);
        self.long_after.store(NEVER, Ordering::Relaxed);
    }

    /// Takes over an engine process's report: the steps done since its last one, and whether a step
    /// is late.
    pub fn report(&self, new_steps: u64, is_late: bool) {
        self.steps.fetch_add(new_steps, Ordering::Relaxed);
        self.due.store(if is_late { 0 } else { NEVER }, Ordering::Relaxed);
    }

    /// Returns the number of steps done so far.
    pub fn num_steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Returns whether the current step takes suspiciously long. If so, the watchdog measures
    /// whether it lacks a processor.
    pub fn is_long(&self, now: Micros) -> bool {
        self.long_after.load(Ordering::Relaxed) <= now
    }

    /// Records a look of the watchdog at `now`. Since the look before, threads lacked a processor
    /// for `starved` while a step took suspiciously long.
    pub fn looked(&self, now: Micros, starved: Micros) {
        self.starved.fetch_add(starved, Ordering::Relaxed);
        self.looked.store(now, Ordering::Release);
    }

    /// Returns the time up to `now` that a step must not be charged for, counted since the start.
    /// It is the time without a processor, and the time since the last look: a watchdog that lacks
    /// a processor looks late, and the step's threads may have lacked one as well.
    pub fn excused(&self, now: Micros) -> Micros {
        let unseen = now.saturating_sub(self.looked.load(Ordering::Acquire));
        unseen + self.starved()
    }

    /// Returns the time without a processor that the watchdog saw since the start.
    pub fn starved(&self) -> Micros {
        self.starved.load(Ordering::Relaxed)
    }

    /// Returns whether a step should have been done before `now`.
    pub fn is_late(&self, now: Micros) -> bool {
        self.due.load(Ordering::Relaxed) < now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_the_last_look_is_excused() {
        let progress = Progress::default();
        progress.looked(1_000, 0);
        assert_eq!(progress.excused(1_000), 0);
        assert_eq!(progress.excused(150_000), 149_000, "the watchdog is late");
        progress.looked(151_000, 130_000);
        assert_eq!(progress.excused(151_000), 130_000, "it saw why");
    }
}
