//! Tests from a thread outside a runtime whether the runtime takes up work. It counts looks, not
//! time. So a process that got no processor for a while does not look frozen.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::runtime::Handle;

/// How often to look.
pub(crate) const PERIOD: Duration = Duration::from_millis(250);
/// Looks without progress after which a thing counts as frozen: 12 × 250 ms, three seconds.
pub(crate) const LOOKS_MAX: u32 = 12;

/// Counts looks at a value that changes as long as its owner works.
#[derive(Debug)]
pub(in crate::server) struct Stillness<T> {
    last: Option<T>,
    looks: u32,
}

impl<T> Default for Stillness<T> {
    fn default() -> Self {
        Self { last: None, looks: 0 }
    }
}

impl<T: PartialEq> Stillness<T> {
    /// Returns whether the value has been `now` for too long.
    pub(in crate::server) fn look(&mut self, now: T) -> bool {
        match self.last.as_ref() == Some(&now) {
            true => self.looks = self.looks.saturating_add(1),
            false => *self = Self { last: Some(now), looks: 0 },
        }
        self.looks >= LOOKS_MAX
    }
}

/// Sends small tasks to a runtime, one at a time.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    runtime: Handle,
    /// Number of tasks sent.
    sent: u64,
    answered: Arc<AtomicU64>,
    stillness: Stillness<u64>,
}

impl Heartbeat {
    /// Returns the heartbeat of `runtime`, with no task sent yet.
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, sent: 0, answered: Arc::default(), stillness: Stillness::default() }
    }

    /// Sends the next task if the last one ran. Returns whether the last one has waited for too
    /// long.
    pub(crate) fn look(&mut self) -> bool {
        let answered = self.answered.load(Relaxed);
        if answered == self.sent {
            self.sent += 1;
            self.beat();
        }
        self.stillness.look(answered)
    }

    /// Sends a task that goes through the queue, a thread, and the timer.
    fn beat(&self) {
        let answered = self.answered.clone();
        self.runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            answered.fetch_add(1, Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_does_not_move_for_long_is_frozen() {
        let mut stillness = Stillness::default();
        for turn in 0..3 {
            assert!((0..LOOKS_MAX).all(|_| !stillness.look(turn)));
        }
        assert!(stillness.look(2));
        assert!(!stillness.look(3), "it moves again");
    }
}
