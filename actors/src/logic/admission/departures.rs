//! The rate at which requests leave. From it follows when the engine will have room.

use std::collections::VecDeque;

use super::Tenant;
use crate::logic::request::ids::Micros;

/// Age of the oldest departures that count, in microseconds. Older ones say nothing about now.
const WINDOW: Micros = 30_000_000;
/// Maximum number of departures remembered.
const CAPACITY: usize = 256;
/// The least and the largest estimate, in microseconds.
pub(super) const WAIT: [Micros; 2] = [1_000_000, 60_000_000];

/// The end of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) at: Micros,
    pub(super) tenant: Option<Tenant>,
    pub(super) prompt_tokens: u64,
}

/// The last departures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Departures {
    /// Time since which requests are open.
    busy_since: Micros,
    recent: VecDeque<Departure>,
}

impl Departures {
    /// Begins a busy time with the first request after an idle time.
    pub(super) fn begin(&mut self, now: Micros) {
        self.busy_since = now;
        self.recent.clear();
    }

    pub(super) fn record(&mut self, departure: Departure) {
        if self.recent.len() == CAPACITY {
            let oldest = self.recent.pop_front();
            self.busy_since = oldest.map_or(self.busy_since, |oldest| oldest.at);
        }
        self.recent.push_back(departure);
    }

    /// Returns the estimated time until `amount` has left, in microseconds. It assumes the rate of
    /// the last half minute. `weigh` returns the part of the amount that one departure is. If none
    /// left, the estimate is as long again as the time that has passed.
    pub(super) fn wait(
        &self,
        now: Micros,
        amount: u64,
        weigh: impl Fn(&Departure) -> u64,
    ) -> Micros {
        let start = self.busy_since.max(now.saturating_sub(WINDOW));
        let elapsed = u128::from(now.saturating_sub(start));
        let left: u128 =
            self.recent.iter().filter(|d| d.at >= start).map(|d| u128::from(weigh(d))).sum();
        let wait = match left {
            0 => elapsed,
            _ => u128::from(amount) * elapsed / left,
        };
        Micros::try_from(wait).unwrap_or(Micros::MAX).clamp(WAIT[0], WAIT[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn wait(departures: &Departures, now: Micros, amount: u64) -> u64 {
        departures.wait(now, amount, |departure| departure.prompt_tokens) / SECOND
    }

    fn departure(at: Micros, prompt_tokens: u64) -> Departure {
        Departure { at, tenant: None, prompt_tokens }
    }

    #[test]
    fn the_rate_of_the_last_half_minute_goes_on() {
        let mut departures = Departures::default();
        departures.begin(0);
        for second in 1..=100 {
            departures.record(departure(second * SECOND, 2));
        }
        assert_eq!(wait(&departures, 100 * SECOND, 20), 9, "31 departures in 30 seconds");
        assert_eq!(wait(&departures, 125 * SECOND, 20), 50, "six in 30 seconds");
        assert_eq!(wait(&departures, 100 * SECOND, 1), 1, "at least");
        assert_eq!(wait(&departures, 100 * SECOND, 1_000), 60, "at most");
    }

    #[test]
    fn without_departures_the_estimate_is_as_long_as_the_time_so_far() {
        let mut departures = Departures::default();
        departures.begin(100 * SECOND);
        assert_eq!(wait(&departures, 100 * SECOND, 5), 1);
        assert_eq!(wait(&departures, 112 * SECOND, 5), 12);
        assert_eq!(wait(&departures, 1_000 * SECOND, 5), 30);
    }

    #[test]
    fn idle_time_does_not_count_as_slow_time() {
        let mut departures = Departures::default();
        departures.begin(0);
        departures.record(departure(SECOND, 1));
        departures.begin(20 * SECOND);
        departures.record(departure(22 * SECOND, 1));
        assert_eq!(wait(&departures, 22 * SECOND, 5), 10);
    }

    #[test]
    fn many_departures_are_a_short_time() {
        let mut departures = Departures::default();
        departures.begin(0);
        for milli in 0..10_000 {
            departures.record(departure(milli * 1_000, 1));
        }
        assert_eq!(departures.recent.len(), CAPACITY);
        assert_eq!(wait(&departures, 10 * SECOND, 5_000), 5);
    }
}
