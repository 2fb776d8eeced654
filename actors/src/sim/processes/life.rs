//! The life of one simulated process: whether it runs, and the faults of its link.

use std::{
    mem,
    task::{Context, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The state of a process that its link must know.
#[derive(Debug, Default)]
pub(super) struct Life {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    has_begun: bool,
    is_dead: bool,
    is_silent: bool,
    slow_until: Option<Instant>,
    delay: Duration,
    /// Places of the bits that change, among the next ones to the front and to the engine.
    flips: [Option<usize>; 2],
    /// The tasks that wait until the process speaks again, or ends.
    waiting: Vec<Waker>,
}

/// The state of a link for one attempt to use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// The process is dead.
    Closed,
    /// The process neither reads nor writes. The attempt is repeated when that changes.
    Silent,
    /// The process reads, and writes after this time.
    Open(Duration),
}

impl Life {
    pub(super) fn is_dead(&self) -> bool {
        self.state.lock().is_dead
    }

    /// Records that the actors of the process are about to start.
    pub(super) fn begin(&self) {
        self.state.lock().has_begun = true;
    }

    /// Returns whether the process lives and has actors.
    pub(super) fn serves(&self) -> bool {
        let state = self.state.lock();
        state.has_begun && !state.is_dead
    }

    /// Ends the life. Returns whether it had not ended.
    pub(super) fn end(&self) -> bool {
        let mut state = self.state.lock();
        let was_alive = !mem::replace(&mut state.is_dead, true);
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        was_alive
    }

    pub(super) fn set_silent(&self, is_silent: bool) {
        let mut state = self.state.lock();
        state.is_silent = is_silent;
        let waiting = mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(super) fn slow_down(&self, delay: Duration, time: Duration) {
        let mut state = self.state.lock();
        (state.delay, state.slow_until) = (delay, Some(Instant::now() + time));
    }

    /// Changes the bit at `place` among the next ones in a direction.
    pub(super) fn flip(&self, is_to_front: bool, place: usize) {
        self.state.lock().flips[usize::from(is_to_front)] = Some(place);
    }

    pub(super) fn gate(&self, context: &Context<'_>) -> Gate {
        let mut state = self.state.lock();
        if state.is_dead {
            Gate::Closed
        } else if state.is_silent {
            state.waiting.push(context.waker().clone());
            Gate::Silent
        } else if state.slow_until.is_some_and(|until| Instant::now() < until) {
            Gate::Open(state.delay)
        } else {
            Gate::Open(Duration::ZERO)
        }
    }

    /// Returns the place of the bit that changes, if it lies within the next bytes.
    pub(super) fn flip_within(&self, is_to_front: bool, num_bytes: usize) -> Option<usize> {
        let place = self.state.lock().flips[usize::from(is_to_front)];
        place.filter(|place| *place < 8 * num_bytes)
    }

    /// Records that bytes have passed.
    pub(super) fn passed(&self, is_to_front: bool, num_bytes: usize) {
        let place = &mut self.state.lock().flips[usize::from(is_to_front)];
        *place = place.and_then(|place| place.checked_sub(8 * num_bytes));
    }
}
