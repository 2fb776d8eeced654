//! Decides whether an engine process lives, by its signs of life and by the system's report on it.

use crate::logic::{
    planted::{Bug, planted},
    request::ids::Micros,
};

/// Time that a process may be stopped by a signal. A shell stops and continues a whole job, so the
/// front may see its process stopped for a moment.
pub const STOPPED_MAX: Micros = 50_000;

/// The end of a process's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It lives, as far as anything is known.
    Alive,
    /// A signal has stopped it.
    Stopped,
    /// It gave no sign of life for the limit.
    Silent,
}

/// The signs of life of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Time without a sign of life after which a process is dead.
    limit: Micros,
    /// Longest time that one look may add. A front that did not run has not listened.
    look_max: Micros,
    looked: Micros,
    silent_for: Micros,
    /// Time since the first look that saw the process stopped. `None`: the last look did not.
    stopped_for: Option<Micros>,
}

impl Heartbeat {
    /// Returns the state of a process that began at `now`. It is looked at every `period`.
    #[must_use]
    pub fn new(now: Micros, limit: Micros, period: Micros) -> Self {
        Self { limit, look_max: 2 * period, looked: now, silent_for: 0, stopped_for: None }
    }

    /// Records a sign of life.
    pub fn beat(&mut self) {
        self.silent_for = 0;
    }

    /// Looks at `now`. `is_stopped` is the system's report.
    pub fn look(&mut self, now: Micros, is_stopped: bool) -> Verdict {
        let passed = now.saturating_sub(self.looked).min(self.look_max);
        self.looked = now;
        self.silent_for += passed;
        // A stop may have begun just before the first look at it.
        let stopped_for = self.stopped_for.map_or(0, |before| before + passed);
        self.stopped_for = is_stopped.then_some(stopped_for);
        if self.stopped_for >= Some(STOPPED_MAX) {
            Verdict::Stopped
        } else if self.silent_for >= self.limit && !planted(Bug::DeafToSilence) {
            Verdict::Silent
        } else {
            Verdict::Alive
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Micros = 25_000;
    const LIMIT: Micros = 500_000;

    fn looks(heartbeat: &mut Heartbeat, count: u64, is_stopped: bool) -> Vec<Verdict> {
        let from = heartbeat.looked;
        (1..=count).map(|look| heartbeat.look(from + look * PERIOD, is_stopped)).collect()
    }

    #[test]
    fn silence_up_to_the_limit_is_life() {
        let mut heartbeat = Heartbeat::new(0, LIMIT, PERIOD);
        assert_eq!(looks(&mut heartbeat, 19, false), [Verdict::Alive; 19]);
        heartbeat.beat();
        assert_eq!(looks(&mut heartbeat, 19, false), [Verdict::Alive; 19]);
        assert_eq!(looks(&mut heartbeat, 1, false), [Verdict::Silent]);
    }

    #[test]
    fn a_stopped_process_is_found_before_the_limit() {
        let mut heartbeat = Heartbeat::new(0, LIMIT, PERIOD);
        let expected = [Verdict::Alive, Verdict::Alive, Verdict::Stopped];
        assert_eq!(looks(&mut heartbeat, 3, true), expected);
    }

    #[test]
    fn a_process_that_is_continued_in_time_lives() {
        let mut heartbeat = Heartbeat::new(0, LIMIT, PERIOD);
        for _ in 0..5 {
            assert_eq!(looks(&mut heartbeat, 2, true), [Verdict::Alive; 2]);
            assert_eq!(looks(&mut heartbeat, 1, false), [Verdict::Alive]);
            heartbeat.beat();
        }
    }

    #[test]
    fn a_front_that_did_not_run_blames_no_process() {
        let mut heartbeat = Heartbeat::new(0, LIMIT, PERIOD);
        assert_eq!(heartbeat.look(60 * LIMIT, false), Verdict::Alive);
        assert_eq!(heartbeat.look(120 * LIMIT, true), Verdict::Alive);
    }
}
