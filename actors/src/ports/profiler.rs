//! Who wants to know what actors spend their time on.

use std::time::{Duration, Instant};

/// One message that an actor has handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handled {
    /// The actor's role.
    pub role: &'static str,
    /// Which of those with the same role.
    pub index: usize,
    /// Who said it to whom: `sender->receiver`.
    pub edge: &'static str,
    /// When it began with it.
    pub begin: Instant,
    /// When it was done.
    pub end: Instant,
    /// For how long it computed: the rest of the time it waited for another actor's answer.
    pub busy: Duration,
}

/// Is told of every message that is handled, from many threads at once. What it takes is added to
/// what it measures.
pub trait HandlerProfiler: std::fmt::Debug + Send + Sync + 'static {
    /// An actor is done with a message. Pings of the watchdog are not told of.
    fn handled(&self, handled: Handled);
}
