//! Counts of the hangs that were found.

use std::sync::atomic::{AtomicU64, Ordering};

/// Hangs of one system so far.
#[derive(Debug, Default)]
pub(crate) struct HangCounts {
    actors: AtomicU64,
    unordered: AtomicU64,
    steps: AtomicU64,
}

impl HangCounts {
    /// Counts an actor that hangs, by order of chaos or not.
    pub(crate) fn actor(&self, is_ordered: bool) {
        self.actors.fetch_add(1, Ordering::Relaxed);
        self.unordered.fetch_add(u64::from(!is_ordered), Ordering::Relaxed);
    }

    /// Counts a step that hangs.
    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of actors that were found to hang.
    pub(crate) fn actors(&self) -> u64 {
        self.actors.load(Ordering::Relaxed)
    }

    /// Returns the number of those actors that chaos did not make hang. Where no actor hangs by
    /// itself, each of them is a false alarm.
    pub(crate) fn unordered(&self) -> u64 {
        self.unordered.load(Ordering::Relaxed)
    }

    /// Returns the number of steps that were found to hang.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}
