//! Signs of life of one incarnation of an actor, readable from any thread without asking it.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::{
    logic::{
        recovery::hang::{Doing, Sight},
        request::ids::Micros,
    },
    message::{Edge, Letter, Role},
};

/// What an incarnation shows of itself.
#[derive(Debug, Default)]
pub struct Pulse {
    sent: AtomicU64,
    handled: AtomicU64,
    /// When it began with the message it is at; 0: it is at none.
    busy_since: AtomicU64,
    last_beat: AtomicU64,
    /// Polls of its handlers so far.
    turn: AtomicU64,
    is_polled: AtomicBool,
    /// Since the last poll began, something woke the handler.
    is_woken: AtomicBool,
    /// Declarations in force that what the handler is at takes long.
    num_declared: AtomicU64,
    /// The thread of the last poll, as the system numbers threads; 0: unknown.
    thread: AtomicU64,
    /// The edge of its message, by its place among all; that many: no message but an event.
    edge: AtomicU8,
    /// What the handler expects to take.
    expected: AtomicU64,
    /// Chaos ordered the hang that it is in.
    is_struck: AtomicBool,
}

/// Timers and device threads do not go through a slot, so their messages are not counted.
fn is_counted(message: &impl Letter) -> bool {
    !matches!(message.edge().from(), Role::Timer | Role::Device)
}

impl Pulse {
    /// A message is on its way.
    pub fn sent(&self, message: &impl Letter) {
        self.sent.fetch_add(u64::from(is_counted(message)), Ordering::Relaxed);
    }

    /// It begins with a message.
    pub fn begin(&self, message: &impl Letter, now: Micros) {
        self.handled.fetch_add(u64::from(is_counted(message)), Ordering::Relaxed);
        self.edge.store(message.edge().number() as u8, Ordering::Relaxed);
        self.begin_work(now);
    }

    /// It begins with something that was not sent to it: word of a child, or its own start.
    pub fn begin_event(&self, now: Micros) {
        self.edge.store(Edge::ALL.len() as u8, Ordering::Relaxed);
        self.begin_work(now);
    }

    fn begin_work(&self, now: Micros) {
        self.expected.store(0, Ordering::Relaxed);
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

    /// A poll of its handler begins, on this thread.
    pub fn begin_poll(&self, thread: u64) {
        self.turn.fetch_add(1, Ordering::Relaxed);
        self.thread.store(thread, Ordering::Relaxed);
        self.is_woken.store(false, Ordering::Release);
        self.is_polled.store(true, Ordering::Release);
    }

    /// The poll has ended; the handler may not have.
    pub fn end_poll(&self) {
        self.is_polled.store(false, Ordering::Release);
    }

    /// The handler's event came.
    pub fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
    }

    /// From now on, what the handler is at takes long.
    pub fn declare(&self) {
        self.num_declared.fetch_add(1, Ordering::Relaxed);
    }

    /// One declaration fewer.
    pub fn take_back(&self) {
        self.num_declared.fetch_sub(1, Ordering::Relaxed);
    }

    /// The handler expects to take so long.
    pub fn expect(&self, time: Micros) {
        self.expected.store(time, Ordering::Relaxed);
    }

    /// What the handler expects to take.
    pub fn expected(&self) -> Micros {
        self.expected.load(Ordering::Relaxed)
    }

    /// The handler is made to hang.
    pub fn strike(&self) {
        self.is_struck.store(true, Ordering::Relaxed);
    }

    /// Whether its hang was ordered.
    pub fn is_struck(&self) -> bool {
        self.is_struck.load(Ordering::Relaxed)
    }

    /// The edge of the message that it is at; `None` for an event.
    pub fn edge(&self) -> Option<Edge> {
        Edge::ALL.get(usize::from(self.edge.load(Ordering::Relaxed))).copied()
    }

    /// The thread of the handler's last poll.
    pub fn thread(&self) -> u64 {
        self.thread.load(Ordering::Relaxed)
    }

    /// What the handler is at, if it is at a message.
    pub fn sight(&self, now: Micros) -> Option<Sight> {
        let busy_for = self.busy_for(now)?;
        let turn = self.turn.load(Ordering::Relaxed);
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
