//! The port to a profiler, which measures the time that actors spend on messages.

use std::time::{Duration, Instant};

/// One message that an actor has handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handled {
    /// The actor's role.
    pub role: &'static str,
    /// The actor's number among those with the same role.
    pub index: usize,
    /// The message's edge: `sender->receiver`.
    pub edge: &'static str,
    /// The time when the actor began with the message.
    pub begin: Instant,
    /// The time when the actor finished the message.
    pub end: Instant,
    /// How long the actor computed. In the rest of the time it waited for another actor's answer.
    pub busy: Duration,
}

/// Receives a report of every message that an actor has handled, from many threads at once. The
/// time that the profiler itself takes is added to the times that it measures.
pub trait HandlerProfiler: std::fmt::Debug + Send + Sync + 'static {
    /// Records that an actor has finished a message. Pings of the watchdog are not reported.
    fn handled(&self, handled: Handled);
}
