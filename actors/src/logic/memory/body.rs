//! Whether a body that arrives makes progress.

use crate::logic::ids::Micros;

/// A body makes progress while this much of it arrives in each [`STALL`], bytes.
const PROGRESS_BYTES: usize = 64 << 10;
/// A body that takes longer for [`PROGRESS_BYTES`] has stalled: one second.
const STALL: Micros = 1_000_000;

/// A body that is not complete.
#[derive(Debug, Clone)]
pub(super) struct Body {
    /// Since when the bytes below have arrived.
    since: Micros,
    bytes: usize,
    /// Others need its memory.
    pub(super) is_ending: bool,
}

impl Body {
    /// One that begins to arrive.
    pub(super) fn new(now: Micros) -> Self {
        Self { since: now, bytes: 0, is_ending: false }
    }

    /// More of it is there.
    pub(super) fn arrived(&mut self, bytes: usize, now: Micros) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= PROGRESS_BYTES {
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// Whether it makes no progress.
    pub(super) fn is_stalled(&self, now: Micros) -> bool {
        now.saturating_sub(self.since) >= STALL
    }
}
