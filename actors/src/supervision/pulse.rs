//! Signs of life of one incarnation of an actor. Any thread reads them without a message to the
//! actor.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::{
    logic::{
        recovery::hang::{Doing, Sight},
        request::ids::Micros,
    },
    message::{Edge, Letter, Role},
};

/// The signs of life of one incarnation.
#[derive(Debug, Default)]
pub struct Pulse {
    sent: AtomicU64,
    handled: AtomicU64,
    /// The time when its current message began. 0: it is idle.
    busy_since: AtomicU64,
    last_beat: AtomicU64,
    /// Number of polls of its handlers so far.
    turn: AtomicU64,
    is_polled: AtomicBool,
    /// Whether something woke the handler since the last poll began.
    is_woken: AtomicBool,
    /// Number of declarations in force that the current message takes long.
    num_declared: AtomicU64,
    /// The thread of the last poll, by the operating system's number. 0: unknown.
    thread: AtomicU64,
    /// The edge of its message, as an index of [`Edge::ALL`], or the length of that for an event.
    edge: AtomicU8,
    /// The time that the handler expects to take, in microseconds.
    expected: AtomicU64,
    /// Whether chaos ordered its hang.
    is_struck: AtomicBool,
}

/// Added to the number of the last poll while no handler runs: that time is not the poll's.
const BETWEEN: u64 = 1 << 63;

/// Returns whether a message is counted. Messages of timers and device threads pass no slot, so
/// they are not.
fn is_counted(message: &impl Letter) -> bool {
    !matches!(message.edge().from(), Role::Timer | Role::Device)
}

impl Pulse {
    /// Records that a message was sent.
    pub fn sent(&self, message: &impl Letter) {
        self.sent.fetch_add(u64::from(is_counted(message)), Ordering::Relaxed);
    }

    /// Records that the handler of a message begins.
    pub fn begin(&self, message: &impl Letter, now: Micros) {
        self.handled.fetch_add(u64::from(is_counted(message)), Ordering::Relaxed);
        self.edge.store(message.edge().number() as u8, Ordering::Relaxed);
        self.begin_work(now);
    }

    /// Records that the handler of an event begins: the end of a child, or the actor's own start.
    pub fn begin_event(&self, now: Micros) {
        self.edge.store(Edge::ALL.len() as u8, Ordering::Relaxed);
        self.begin_work(now);
    }

    fn begin_work(&self, now: Micros) {
        self.expected.store(0, Ordering::Relaxed);
        self.busy_since.store(now.max(1), Ordering::Relaxed);
        self.beat(now);
    }

    /// Records a sign of life.
    pub fn beat(&self, now: Micros) {
        self.last_beat.store(now, Ordering::Relaxed);
    }

    /// Records that the handler has ended. It is no sign of life of its own, because reading the
    /// clock costs as much as all the rest here.
    pub fn end(&self) {
        self.busy_since.store(0, Ordering::Relaxed);
    }

    /// Records that a poll of the handler begins on this thread.
    pub fn begin_poll(&self, thread: u64) {
        self.turn.fetch_add(1, Ordering::Relaxed);
        self.thread.store(thread, Ordering::Relaxed);
        self.is_woken.store(false, Ordering::Release);
        self.is_polled.store(true, Ordering::Release);
    }

    /// Records that the poll has ended. The handler may go on in another poll.
    pub fn end_poll(&self) {
        self.is_polled.store(false, Ordering::Release);
    }

    /// Records that the handler was woken.
    pub fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
    }

    /// Declares that the current message takes long from now on.
    pub fn declare(&self) {
        self.num_declared.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back one declaration.
    pub fn take_back(&self) {
        self.num_declared.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records the time that the handler expects to take.
    pub fn expect(&self, time: Micros) {
        self.expected.store(time, Ordering::Relaxed);
    }

    /// Returns the time that the handler expects to take.
    pub fn expected(&self) -> Micros {
        self.expected.load(Ordering::Relaxed)
    }

    /// Records that chaos makes the handler hang.
    pub fn strike(&self) {
        self.is_struck.store(true, Ordering::Relaxed);
    }

    /// Returns whether chaos ordered the hang.
    pub fn is_struck(&self) -> bool {
        self.is_struck.load(Ordering::Relaxed)
    }

    /// Returns the edge of the current message, `None` for an event.
    pub fn edge(&self) -> Option<Edge> {
        Edge::ALL.get(usize::from(self.edge.load(Ordering::Relaxed))).copied()
    }

    /// Returns the thread of the handler's last poll.
    pub fn thread(&self) -> u64 {
        self.thread.load(Ordering::Relaxed)
    }

    /// Returns what the actor does, `None` if it is idle and has no messages.
    pub fn sight(&self, now: Micros) -> Option<Sight> {
        let turn = self.turn.load(Ordering::Relaxed);
        let Some(busy_for) = self.busy_for(now) else {
            let unread = Sight { turn: turn | BETWEEN, doing: Doing::Unread, busy_for: 0 };
            return (self.depth() > 0).then_some(unread);
        };
        let doing = if self.num_declared.load(Ordering::Relaxed) > 0 {
            Doing::Declared
        } else if self.is_polled.load(Ordering::Acquire) {
            Doing::Computing
        } else if self.is_woken.load(Ordering::Acquire) {
            Doing::Woken
        } else {
            Doing::Waiting
        };
        Some(Sight { turn, doing, busy_for })
    }

    /// Returns the number of messages sent whose handlers have not begun.
    pub fn depth(&self) -> u64 {
        let handled = self.handled.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(handled)
    }

    /// Returns the microseconds that the current message has taken, `None` if the actor is idle.
    pub fn busy_for(&self, now: Micros) -> Option<Micros> {
        match self.busy_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(now.saturating_sub(since)),
        }
    }

    /// Returns the microseconds since the last sign of life.
    pub fn age(&self, now: Micros) -> Micros {
        now.saturating_sub(self.last_beat.load(Ordering::Relaxed))
    }
}
