//! The progress of a body that arrives.

use crate::logic::request::ids::Micros;

/// A body makes progress while at least this many bytes arrive in each [`STALL`].
const PROGRESS_BYTES: usize = 64 << 10;
/// A body that needs at least this long for [`PROGRESS_BYTES`] has stalled: one second, in
/// microseconds.
const STALL: Micros = 1_000_000;

/// A body that is not complete.
#[derive(Debug, Clone)]
pub(super) struct Body {
    /// The time since which `bytes` have arrived.
    since: Micros,
    bytes: usize,
    /// Whether the body has to end, because other requests need its memory.
    pub(super) is_ending: bool,
}

impl Body {
    /// Returns a body that begins to arrive.
    pub(super) fn new(now: Micros) -> Self {
        Self { since: now, bytes: 0, is_ending: false }
    }

    /// Records that more bytes have arrived.
    pub(super) fn arrived(&mut self, bytes: usize, now: Micros) {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= PROGRESS_BYTES {
            (self.since, self.bytes) = (now, 0);
        }
    }

    /// Returns whether the body makes no progress.
    pub(super) fn is_stalled(&self, now: Micros) -> bool {
        now.saturating_sub(self.since) >= STALL
    }
}
