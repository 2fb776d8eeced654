//! A circuit breaker. When the engine fails more often than is tolerated, new requests are refused
//! at once. From time to time it sends one request of its own, the canary. When the canary is
//! served, requests are admitted again.

use std::time::Duration;

use crate::logic::request::ids::Micros;

/// Waits before the first, second, … canary after the breaker opened, in microseconds. The last one
/// repeats.
pub const BACK_OFF: [Micros; 6] =
    [1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000, 30_000_000];
/// The least wait of a refused client, in microseconds. It is also the wait while a canary runs,
/// because its answer may come at any moment.
const SHORTEST_WAIT: Micros = 1_000_000;

/// The state of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// Requests are admitted.
    Closed,
    /// Requests are refused.
    Open,
    /// Requests are refused, and a canary runs.
    HalfOpen,
}

impl BreakerState {
    /// Returns the word for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Admits requests while the engine works.
#[derive(Debug, Clone)]
pub struct Breaker {
    phase: Phase,
    /// Number of canaries that failed since it opened.
    num_failed: usize,
    canary_limit: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Closed,
    Open { until: Micros },
    HalfOpen { since: Micros },
}

impl Breaker {
    /// Returns a closed breaker. A canary that takes `canary_limit` microseconds has failed.
    #[must_use]
    pub fn new(canary_limit: Micros) -> Self {
        Self { phase: Phase::Closed, num_failed: 0, canary_limit }
    }

    /// Opens the breaker, because the engine failed too often. It has no effect while the breaker
    /// is open. A running canary has failed.
    pub fn trip(&mut self, now: Micros) {
        match self.at(now).phase {
            Phase::Closed => {
                self.num_failed = 0;
                self.open(now);
            }
            Phase::Open { .. } => {}
            Phase::HalfOpen { .. } => self.canary_failed(now),
        }
    }

    /// Checks whether new requests are admitted.
    ///
    /// # Errors
    /// The time to wait before the next try.
    pub fn admits(&self, now: Micros) -> Result<(), Duration> {
        let wait = match self.at(now).phase {
            Phase::Closed => return Ok(()),
            Phase::Open { until } => until.saturating_sub(now).max(SHORTEST_WAIT),
            Phase::HalfOpen { .. } => SHORTEST_WAIT,
        };
        Err(Duration::from_micros(wait))
    }

    /// Returns whether a canary is to be sent now. After it returns true, the canary counts as
    /// running.
    pub fn canary_due(&mut self, now: Micros) -> bool {
        *self = self.at(now);
        let is_due = matches!(self.phase, Phase::Open { until } if until <= now);
        if is_due {
            self.phase = Phase::HalfOpen { since: now };
        }
        is_due
    }

    /// Closes the breaker, because the canary was served. Ignored when none runs: its answer came
    /// too late.
    pub fn canary_succeeded(&mut self, now: Micros) {
        *self = self.at(now);
        if let Phase::HalfOpen { .. } = self.phase {
            self.phase = Phase::Closed;
        }
    }

    /// Records that the canary was not served, so the next one waits longer. Ignored when none
    /// runs.
    pub fn canary_failed(&mut self, now: Micros) {
        *self = self.at(now);
        if let Phase::HalfOpen { .. } = self.phase {
            self.num_failed += 1;
            self.open(now);
        }
    }

    /// Returns the state at `now`.
    #[must_use]
    pub fn state(&self, now: Micros) -> BreakerState {
        match self.at(now).phase {
            Phase::Closed => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    fn open(&mut self, now: Micros) {
        let wait = BACK_OFF[self.num_failed.min(BACK_OFF.len() - 1)];
        self.phase = Phase::Open { until: now.saturating_add(wait) };
    }

    /// Returns the breaker at `now`. A running canary may have exceeded its limit; then it failed
    /// at the limit, however late this is noticed.
    fn at(&self, now: Micros) -> Self {
        let mut breaker = self.clone();
        if let Phase::HalfOpen { since } = self.phase {
            let end = since.saturating_add(self.canary_limit);
            if end <= now {
                breaker.num_failed += 1;
                breaker.open(end);
            }
        }
        breaker
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Micros = 1_000_000;
    const LIMIT: Micros = 5 * SECOND;

    fn tripped_at(now: Micros) -> Breaker {
        let mut breaker = Breaker::new(LIMIT);
        breaker.trip(now);
        breaker
    }

    fn wait(breaker: &Breaker, now: Micros) -> u64 {
        breaker.admits(now).unwrap_err().as_secs()
    }

    #[test]
    fn it_admits_until_it_is_tripped() {
        let breaker = Breaker::new(LIMIT);
        assert_eq!((breaker.admits(0), breaker.state(0)), (Ok(()), BreakerState::Closed));
        let breaker = tripped_at(10);
        assert_eq!((wait(&breaker, 10), breaker.state(10)), (1, BreakerState::Open));
    }

    #[test]
    fn one_canary_is_due_after_the_wait_and_closes_it() {
        let mut breaker = tripped_at(0);
        assert!(!breaker.canary_due(SECOND - 1));
        assert!(breaker.canary_due(SECOND));
        assert!(!breaker.canary_due(SECOND), "one at a time");
        assert_eq!(breaker.state(SECOND), BreakerState::HalfOpen);
        assert_eq!(wait(&breaker, SECOND), 1);
        breaker.canary_succeeded(SECOND + 1);
        assert_eq!(breaker.admits(SECOND + 1), Ok(()));
    }

    #[test]
    fn each_failed_canary_makes_the_wait_longer_up_to_half_a_minute() {
        let mut breaker = tripped_at(0);
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = wait(&breaker, now);
            waits.push(wait);
            now += wait * SECOND;
            assert!(breaker.canary_due(now));
            breaker.canary_failed(now);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        breaker.canary_due(now + 30 * SECOND);
        breaker.canary_succeeded(now + 30 * SECOND);
        breaker.trip(now + 31 * SECOND);
        assert_eq!(wait(&breaker, now + 31 * SECOND), 1, "it begins anew");
    }

    #[test]
    fn a_canary_without_an_answer_has_failed() {
        let mut breaker = tripped_at(0);
        assert!(breaker.canary_due(SECOND));
        let end = SECOND + LIMIT;
        assert_eq!(breaker.state(end - 1), BreakerState::HalfOpen);
        assert_eq!((breaker.state(end), wait(&breaker, end)), (BreakerState::Open, 2));
        breaker.canary_succeeded(end);
        assert_eq!(breaker.state(end), BreakerState::Open, "too late");
        assert!(breaker.canary_due(end + 2 * SECOND));
    }

    #[test]
    fn trips_while_it_is_open_do_not_add_up() {
        let mut breaker = tripped_at(0);
        breaker.trip(SECOND / 2);
        assert!(breaker.canary_due(SECOND));
        breaker.trip(SECOND);
        assert_eq!(wait(&breaker, SECOND), 2, "but they fail the canary");
    }

    #[test]
    fn unexpected_answers_change_nothing() {
        let mut breaker = tripped_at(0);
        breaker.canary_succeeded(1);
        breaker.canary_failed(1);
        assert_eq!((breaker.state(1), wait(&breaker, 1)), (BreakerState::Open, 1));
        let mut breaker = Breaker::new(LIMIT);
        breaker.canary_failed(1);
        assert_eq!(breaker.admits(1), Ok(()));
    }

    proptest! {
        /// Only a canary closes it, one canary runs at a time, and none waits for more than half a
        /// minute after the last.
        #[test]
        fn it_never_stays_open_for_ever(
            ops in prop::collection::vec((0..4u8, 0..40 * SECOND), 0..60),
        ) {
            let (mut breaker, mut now) = (Breaker::new(LIMIT), 0);
            let mut under_way_since = None;
            for (op, pause) in ops {
                now += pause;
                let before = breaker.state(now);
                match op {
                    0 => breaker.trip(now),
                    1 => {
                        if breaker.canary_due(now) {
                            prop_assert!(under_way_since.is_none_or(|at| at + LIMIT <= now));
                            under_way_since = Some(now);
                        }
                    }
                    2 => breaker.canary_failed(now),
                    _ => breaker.canary_succeeded(now),
                }
                let after = breaker.state(now);
                if after != BreakerState::HalfOpen {
                    under_way_since = None;
                }
                prop_assert_eq!(after == BreakerState::Closed, breaker.admits(now).is_ok());
                if before != BreakerState::Closed && after == BreakerState::Closed {
                    prop_assert!(op == 3 && before == BreakerState::HalfOpen);
                }
                if after == BreakerState::Open {
                    prop_assert!(breaker.clone().canary_due(now + BACK_OFF[BACK_OFF.len() - 1]));
                }
            }
        }
    }
}
