//! The state of a recording.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The state of a recording, which the thread and the actors share.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Whether no further entry is taken.
    pub(super) is_over: AtomicBool,
    /// Whether the recording ended before the engine.
    pub(super) is_truncated: AtomicBool,
    /// Number of bytes of images and sounds in the queue.
    pub(super) content_bytes: AtomicUsize,
    /// Whether the reason is a full queue.
    pub(super) was_full: AtomicBool,
}

impl State {
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Ends the recording before the engine.
    pub(super) fn truncate(&self) {
        self.is_over.store(true, Ordering::Release);
        self.is_truncated.store(true, Ordering::Release);
    }
}
