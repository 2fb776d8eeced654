//! Figures about many measurements.

use std::time::Duration;

use serde_json::{Value, json};

/// The median, the 99th percentile and the maximum, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Summary {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Summary {
    /// Returns the summary. Without measurements, all figures are 0.
    pub(super) fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<_> = durations.into_iter().map(milliseconds).collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            p50: quantile(&sorted, 0.5),
            p99: quantile(&sorted, 0.99),
            max: quantile(&sorted, 1.0),
        }
    }

    pub(super) fn to_json(self) -> Value {
        json!({"p50": rounded(self.p50), "p99": rounded(self.p99), "max": rounded(self.max)})
    }
}

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Rounds milliseconds to microseconds, because further digits are noise.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Returns the smallest measurement that at least this share of all measurements does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_measurements() {
        let summary = Summary::of((1..=200).rev().map(Duration::from_millis));
        assert_eq!(summary, Summary { p50: 100.0, p99: 198.0, max: 200.0 });
        let one = Summary::of([Duration::from_millis(7)]);
        assert_eq!(one, Summary { p50: 7.0, p99: 7.0, max: 7.0 });
        assert_eq!(Summary::of([]), Summary::default());
    }
}
