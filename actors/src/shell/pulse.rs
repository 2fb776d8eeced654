//! Signs of life of one incarnation of an actor, readable from any thread without asking it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    logic::ids::Micros,
    message::{Edge, Letter},
};

/// What an incarnation shows of itself.
#[derive(Debug, Default)]
pub struct Pulse {
    sent: AtomicU64,
    handled: AtomicU64,
    /// When it began with the message it is at; 0: it is at none.
    busy_since: AtomicU64,
    last_beat: AtomicU64,
}

/// Timers and device threads do not go through a slot, so their messages are not counted.
fn is_counted(message: &impl Letter) -> bool {
    !matches!(message.edge(), Edge::Timer | Edge::DeviceToWorker)
}

impl Pulse {
    /// A message is on its way.
    pub fn sent(&self, message: &impl Letter) {
        self.sent.fetch_add(u64::from(is_counted(message)), Ordering::Relaxed);
    }

    /// It begins with a message.
    pub fn begin(&self, message: &impl Letter, now: Micros) {
        self.handled.fetch_add(u64::from(is_counted(message)), Ordering::Relaxed);
        self.begin_event(now);
    }

    /// It begins with something that was not sent to it: word of a child.
    pub fn begin_event(&self, now: Micros) {
        self.busy_since.store(now.max(1), Ordering::Relaxed);
        self.beat(now);
    }

    /// It is there.
    pub fn beat(&self, now: Micros) {
        self.last_beat.store(now, Ordering::Relaxed);
    }

    /// It is done with it. That is no beat of its own: a look at the clock costs as much as all
    /// else here.
    pub fn end(&self) {
        self.busy_since.store(0, Ordering::Relaxed);
    }

    /// Messages sent and not begun with.
    pub fn depth(&self) -> u64 {
        let handled = self.handled.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(handled)
    }

    /// Microseconds that it has been at one message.
    pub fn busy_for(&self, now: Micros) -> Option<Micros> {
        match self.busy_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(now.saturating_sub(since)),
        }
    }

    /// Microseconds since the last sign of life.
    pub fn age(&self, now: Micros) -> Micros {
        now.saturating_sub(self.last_beat.load(Ordering::Relaxed))
    }
}
