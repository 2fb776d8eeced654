//! The decision after the death of a supervisor's child: which children restart, after how long,
//! and when the supervisor gives up. These are Erlang's strategies and intensities, as data.

use std::{collections::VecDeque, ops::Range};

use crate::logic::request::ids::Micros;

/// Waits before the first, second, … restart within one window, in microseconds. The last one
/// repeats.
pub const BACK_OFF: [Micros; 4] = [0, 10_000, 100_000, 1_000_000];

/// The children that are replaced when one dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Only the dead one.
    OneForOne,
    /// The dead one and all that were started after it.
    RestForOne,
}

/// The restarts tolerated in a sliding window before the supervisor itself gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intensity {
    /// Restarts tolerated.
    pub max_restarts: usize,
    /// Length of the window.
    pub window: Micros,
}

impl Intensity {
    /// Returns an intensity of `max_restarts` in `seconds`.
    #[must_use]
    pub const fn new(max_restarts: usize, seconds: u64) -> Self {
        Self { max_restarts, window: seconds * 1_000_000 }
    }

    /// Replaces a dead child at once, however often.
    pub const UNLIMITED: Self = Self { max_restarts: usize::MAX, window: 0 };

    /// Returns an intensity with as many restarts in a window that is shorter by the factor
    /// `times`. Waits between restarts are shorter too.
    #[must_use]
    pub fn tolerating(self, times: f64) -> Self {
        Self { window: (self.window as f64 / times) as Micros, ..self }
    }
}

/// Waits before the first, second, … rebuild that follows one without progress, in microseconds.
pub const REBUILD_BACK_OFF: [Micros; 8] =
    [100_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000, 30_000_000, 30_000_000];

/// The last resort of the root supervisor: it rebuilds all its children from the ground state. It
/// gives up after the tolerated number of rebuilds in a row without progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastResort {
    max_fruitless: usize,
    num_fruitless: usize,
    /// Steps computed before the last rebuild.
    done_before: u64,
}

impl LastResort {
    /// Returns a last resort that tolerates `max_fruitless` rebuilds in a row without progress.
    /// With 0 there is no rebuild.
    #[must_use]
    pub const fn new(max_fruitless: usize) -> Self {
        Self { max_fruitless, num_fruitless: 0, done_before: 0 }
    }

    /// Decides after children died too often or did not start. Returns the time to wait before all
    /// are built again, in microseconds; `None` means to give up. `done` grows with each computed
    /// step.
    pub fn rebuild(&mut self, done: u64) -> Option<Micros> {
        if done > self.done_before {
            self.num_fruitless = 0;
        }
        self.done_before = done;
        if self.num_fruitless >= self.max_fruitless {
            return None;
        }
        let delay = REBUILD_BACK_OFF[self.num_fruitless.min(REBUILD_BACK_OFF.len() - 1)];
        self.num_fruitless += 1;
        Some(delay)
    }
}

/// The decision after a death.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Stop the children of this range in reverse, then start them in order, after a wait.
    Restart {
        /// Indices of the children, the dead one first.
        children: Range<usize>,
        /// Time to wait before.
        delay: Micros,
    },
    /// The intensity is exceeded: the supervisor fails in its turn.
    Escalate,
}

/// The restarts of one supervisor's children, each with a window of its own.
#[derive(Debug)]
pub struct RestartLog {
    strategy: Strategy,
    children: Vec<(Intensity, VecDeque<Micros>)>,
}

impl RestartLog {
    /// Returns a log for children with these intensities, in start order.
    pub fn new(strategy: Strategy, intensities: impl IntoIterator<Item = Intensity>) -> Self {
        let children = intensities.into_iter().map(|i| (i, VecDeque::new())).collect();
        Self { strategy, children }
    }

    /// Records that child `index` died at `now`, and returns the decision. An unknown index
    /// escalates.
    pub fn on_death(&mut self, index: usize, now: Micros) -> Decision {
        let count = self.children.len();
        let Some((intensity, deaths)) = self.children.get_mut(index) else {
            return Decision::Escalate;
        };
        while deaths.front().is_some_and(|&at| at + intensity.window <= now) {
            deaths.pop_front();
        }
        if deaths.len() >= intensity.max_restarts {
            return Decision::Escalate;
        }
        let delay = BACK_OFF[deaths.len().min(BACK_OFF.len() - 1)];
        deaths.push_back(now);
        let end = match self.strategy {
            Strategy::OneForOne => index + 1,
            Strategy::RestForOne => count,
        };
        Decision::Restart { children: index..end, delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(strategy: Strategy) -> RestartLog {
        RestartLog::new(strategy, [Intensity::new(3, 10); 3])
    }

    fn restart(children: Range<usize>, delay: Micros) -> Decision {
        Decision::Restart { children, delay }
    }

    #[test]
    fn one_for_one_replaces_only_the_dead() {
        assert_eq!(log(Strategy::OneForOne).on_death(1, 0), restart(1..2, 0));
    }

    #[test]
    fn rest_for_one_replaces_the_dead_and_the_later() {
        assert_eq!(log(Strategy::RestForOne).on_death(1, 0), restart(1..3, 0));
    }

    #[test]
    fn back_off_grows_and_the_intensity_escalates() {
        let mut log = log(Strategy::OneForOne);
        assert_eq!(log.on_death(0, 0), restart(0..1, 0));
        assert_eq!(log.on_death(0, 1), restart(0..1, 10_000));
        assert_eq!(log.on_death(0, 2), restart(0..1, 100_000));
        assert_eq!(log.on_death(1, 3), restart(1..2, 0), "another child has its own window");
        assert_eq!(log.on_death(0, 4), Decision::Escalate);
    }

    #[test]
    fn the_window_slides() {
        let mut log = log(Strategy::OneForOne);
        for at in [0, 1, 2] {
            log.on_death(0, at);
        }
        assert_eq!(log.on_death(0, 10_000_001), restart(0..1, 10_000), "the first two are out");
    }

    #[test]
    fn tolerance_shortens_the_window() {
        let intensity = Intensity::new(3, 60).tolerating(10.0);
        assert_eq!(intensity, Intensity { max_restarts: 3, window: 6_000_000 });
        let mut log = RestartLog::new(Strategy::OneForOne, [Intensity::UNLIMITED]);
        for _ in 0..1_000 {
            assert_eq!(log.on_death(0, 5), restart(0..1, 0));
        }
    }

    #[test]
    fn rebuilds_without_progress_wait_longer_and_are_limited() {
        let mut last_resort = LastResort::new(REBUILD_BACK_OFF.len());
        for delay in REBUILD_BACK_OFF {
            assert_eq!(last_resort.rebuild(7), Some(delay));
        }
        assert_eq!(last_resort.rebuild(7), None);
        assert_eq!(last_resort.rebuild(8), Some(REBUILD_BACK_OFF[0]), "a step was computed");
        for done in 9..1_000 {
            assert_eq!(last_resort.rebuild(done), Some(REBUILD_BACK_OFF[0]));
        }
        assert_eq!(LastResort::new(0).rebuild(9), None);
    }

    #[test]
    fn an_unknown_child_escalates() {
        assert_eq!(log(Strategy::OneForOne).on_death(7, 0), Decision::Escalate);
    }
}
