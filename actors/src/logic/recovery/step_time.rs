//! How long the next step will take, from those before it.
//!
//! A step costs something for itself (reading the weights) and something for each of its tokens.
//! Which of the two counts differs by model and machine, so the larger guess is taken: too long is
//! a hang found late, too short a step given up that would have been done.

use crate::logic::request::ids::Micros;

/// How much a new measurement weighs.
const WEIGHT: f64 = 0.2;

/// Smoothed times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepTime {
    measured: Option<Measured>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Measured {
    per_token: f64,
    per_step: f64,
}

impl StepTime {
    /// A step of so many tokens took so long.
    pub fn learn(&mut self, tokens: usize, took: Micros) {
        let now = Measured { per_token: took as f64 / tokens.max(1) as f64, per_step: took as f64 };
        self.measured = Some(self.measured.map_or(now, |old| Measured {
            per_token: old.per_token + WEIGHT * (now.per_token - old.per_token),
            per_step: old.per_step + WEIGHT * (now.per_step - old.per_step),
        }));
    }

    /// What a step of so many tokens will take; `None` before the first was measured.
    #[must_use]
    pub fn predict(&self, tokens: usize) -> Option<Micros> {
        let Measured { per_token, per_step } = self.measured?;
        Some((per_token * tokens as f64).max(per_step) as Micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_known_before_the_first_step() {
        assert_eq!(StepTime::default().predict(1), None);
    }

    #[test]
    fn a_decode_after_a_prefill_is_not_expected_to_take_no_time() {
        let mut time = StepTime::default();
        time.learn(2_048, 4_000_000);
        assert_eq!(time.predict(1), Some(4_000_000), "it may be the weights that cost");
        assert_eq!(time.predict(4_096), Some(8_000_000));
    }

    #[test]
    fn a_slow_decode_is_expected_to_stay_slow() {
        let mut time = StepTime::default();
        time.learn(2_048, 4_000_000);
        for _ in 0..50 {
            time.learn(1, 3_000_000);
        }
        assert!(time.predict(1).unwrap() >= 2_990_000);
    }

    #[test]
    fn it_forgets() {
        let mut time = StepTime::default();
        time.learn(1, 1_000_000);
        for _ in 0..100 {
            time.learn(1, 1_000);
        }
        assert!(time.predict(1).unwrap() < 1_100);
    }
}
