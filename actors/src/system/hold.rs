//! The operator's hold on the engine: a pause, and a sleep, which releases the memory of the KV
//! cache. Its lock is held for a few instructions only, so async threads may take it at any time.

use std::pin::pin;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::logic::scheduler::PauseState;

/// The operator's hold on one system. It outlives every actor.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    state: Mutex<State>,
    /// Notified at the end of each release of memory.
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The pause that schedulers keep to.
    pause: PauseState,
    /// The pause that begins when the current release has ended. Until then, a step would find a KV
    /// cache that is released in part.
    next: Option<PauseState>,
    /// Number of pauses and resumptions so far.
    number: u64,
    is_releasing: bool,
    is_asleep: bool,
}

/// The answer to a caller that wants to release the memory of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MayRelease {
    /// The caller may release it, and must report the end.
    Yes,
    /// Another release is under way.
    Later,
    /// The engine was paused again, or resumed, since the caller's pause.
    Superseded,
}

impl State {
    fn keep_to(&mut self, pause: PauseState) {
        self.pause = pause;
        if pause == PauseState::Unpaused {
            self.is_asleep = false;
        }
    }
}

impl Hold {
    /// Returns the pause that schedulers keep to now.
    pub(crate) fn in_force(&self) -> PauseState {
        self.state.lock().pause
    }

    /// Returns the pause that was set last. It is in force when no memory is being released.
    pub(crate) fn wanted(&self) -> PauseState {
        let state = self.state.lock();
        state.next.unwrap_or(state.pause)
    }

    /// Returns the number of pauses and resumptions so far.
    pub(crate) fn number(&self) -> u64 {
        self.state.lock().number
    }

    /// Returns whether the memory of the KV cache is released.
    pub(crate) fn is_asleep(&self) -> bool {
        self.state.lock().is_asleep
    }

    /// Sets a pause, if `holds` accepts the number of pauses and resumptions before it. Returns the
    /// new number.
    pub(crate) fn set_if(&self, pause: PauseState, holds: impl FnOnce(u64) -> bool) -> Option<u64> {
        let mut state = self.state.lock();
        if !holds(state.number) {
            return None;
        }
        state.number += 1;
        match state.is_releasing {
            true => state.next = Some(pause),
            false => state.keep_to(pause),
        }
        Some(state.number)
    }

    /// Begins to release the memory of the KV cache, for the pause of this number. Pauses that are
    /// set meanwhile wait for [`Hold::end_release`].
    pub(crate) fn begin_release(&self, number: u64) -> MayRelease {
        let mut state = self.state.lock();
        if state.number != number {
            MayRelease::Superseded
        } else if state.is_releasing {
            MayRelease::Later
        } else {
            state.is_releasing = true;
            MayRelease::Yes
        }
    }

    /// Ends the release. Returns whether another pause is in force now.
    pub(crate) fn end_release(&self, is_released: bool) -> bool {
        let mut state = self.state.lock();
        state.is_releasing = false;
        state.is_asleep |= is_released;
        let next = state.next.take();
        if let Some(pause) = next {
            state.keep_to(pause);
        }
        drop(state);
        self.released.notify_waiters();
        next.is_some()
    }

    /// Completes when no memory is being released.
    pub(crate) async fn at_rest(&self) {
        loop {
            let mut released = pin!(self.released.notified());
            released.as_mut().enable();
            let is_releasing = self.state.lock().is_releasing;
            if !is_releasing {
                return;
            }
            released.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paused(hold: &Hold) -> u64 {
        hold.set_if(PauseState::PausedAll, |_| true).unwrap()
    }

    #[test]
    fn a_resumption_waits_for_the_end_of_a_release() {
        let hold = Hold::default();
        let number = paused(&hold);
        assert_eq!(hold.begin_release(number), MayRelease::Yes);
        assert_eq!(hold.set_if(PauseState::Unpaused, |_| true), Some(number + 1));
        assert_eq!(hold.in_force(), PauseState::PausedAll, "half of the cache is released");
        assert_eq!(hold.wanted(), PauseState::Unpaused);
        assert!(hold.end_release(true), "the scheduler has to learn of it");
        assert_eq!((hold.in_force(), hold.is_asleep()), (PauseState::Unpaused, false));
    }

    #[test]
    fn a_release_that_fails_leaves_the_engine_awake() {
        let hold = Hold::default();
        let number = paused(&hold);
        assert_eq!(hold.begin_release(number), MayRelease::Yes);
        assert!(!hold.end_release(false));
        assert_eq!((hold.in_force(), hold.is_asleep()), (PauseState::PausedAll, false));
    }

    #[test]
    fn one_release_at_a_time_and_none_for_an_older_pause() {
        let hold = Hold::default();
        let first = paused(&hold);
        assert_eq!(hold.begin_release(first), MayRelease::Yes);
        let second = paused(&hold);
        assert_eq!(hold.begin_release(first), MayRelease::Superseded);
        assert_eq!(hold.begin_release(second), MayRelease::Later);
        assert!(hold.end_release(true));
        assert_eq!(hold.begin_release(second), MayRelease::Yes);
        assert!(!hold.end_release(true));
        assert!(hold.is_asleep());
    }

    #[tokio::test]
    async fn a_caller_can_wait_for_the_end_of_a_release() {
        let hold = Hold::default();
        hold.at_rest().await;
        let number = paused(&hold);
        assert_eq!(hold.begin_release(number), MayRelease::Yes);
        let end = async {
            tokio::task::yield_now().await;
            hold.end_release(true)
        };
        let ((), _) = tokio::join!(hold.at_rest(), end);
        assert!(hold.is_asleep());
    }
}
