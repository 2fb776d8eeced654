//! A prediction of the next step's time, from the steps before it.
//!
//! A step has a fixed cost (reading the weights) and a cost for each of its tokens. Model and
//! machine decide which of the two counts, so the larger prediction is used. A prediction that is
//! too long finds a hang late. One that is too short gives up a step that would have ended.

use crate::logic::request::ids::Micros;

/// Weight of a new measurement.
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
    /// Records that a step of `tokens` tokens took `took` microseconds.
    pub fn learn(&mut self, tokens: usize, took: Micros) {
        let now = Measured { per_token: took as f64 / tokens.max(1) as f64, per_step: took as f64 };
        self.measured = Some(self.measured.map_or(now, |old| Measured {
            per_token: old.per_token + WEIGHT * (now.per_token - old.per_token),
            per_step: old.per_step + WEIGHT * (now.per_step - old.per_step),
        }));
    }

    /// Returns the predicted time of a step of `tokens` tokens, in microseconds; `None` before the
    /// first was measured.
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
