//! A histogram of times. Its buckets grow with their values: eight of equal width for each power of
//! two. So a bucket is at most an eighth wider than its lower bound.

use crate::logic::request::ids::Micros;

/// Buckets for each power of two.
const PER_OCTAVE: u64 = 8;
/// Longer times count as this one: an hour and eleven minutes.
const MICROS_MAX: Micros = u32::MAX as Micros;
/// Number of buckets.
pub const NUM_BUCKETS: usize = bucket_of(MICROS_MAX) + 1;

/// Returns the bucket that counts `micros`.
#[must_use]
pub const fn bucket_of(micros: Micros) -> usize {
    let micros = if micros > MICROS_MAX { MICROS_MAX } else { micros };
    if micros < PER_OCTAVE {
        return micros as usize;
    }
    let (octave, octave_of_first) = (micros.ilog2(), PER_OCTAVE.ilog2());
    let within = (micros >> (octave - octave_of_first)) - PER_OCTAVE;
    ((octave - octave_of_first + 1) as u64 * PER_OCTAVE + within) as usize
}

/// Returns the middle of a bucket, in microseconds.
fn middle_of(bucket: usize) -> Micros {
    let (row, within) = (bucket as u64 / PER_OCTAVE, bucket as u64 % PER_OCTAVE);
    match row.checked_sub(1) {
        None => within,
        Some(shift) => ((PER_OCTAVE + within) << shift) + ((1 << shift) / 2),
    }
}

/// Counts by bucket, and the sum of all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latencies {
    /// Counts of the buckets, at most [`NUM_BUCKETS`].
    pub counts: Vec<u64>,
    /// Sum of all times, in microseconds.
    pub sum: Micros,
}

impl Latencies {
    /// Returns the counts added since `earlier`, a former state of the same counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bucket: usize| earlier.counts.get(bucket).copied().unwrap_or(0);
        let counts = self.counts.iter().enumerate();
        let counts = counts.map(|(bucket, count)| count.saturating_sub(before(bucket))).collect();
        Self { counts, sum: self.sum.saturating_sub(earlier.sum) }
    }

    /// Returns the number of times counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns their mean in microseconds; `None` if there are none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        match self.count() {
            0 => None,
            count => Some(self.sum as f64 / count as f64),
        }
    }

    /// Returns the time within which a share `q` in `[0, 1]` ended, in microseconds. The error is
    /// at most a sixteenth. `None`: there are no times.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Micros> {
        let rank = (q * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let reached = |count: &u64| {
            seen += count;
            seen >= rank
        };
        self.counts.iter().position(reached).map(middle_of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(micros: &[Micros]) -> Latencies {
        let mut latencies = Latencies { counts: vec![0; NUM_BUCKETS], sum: 0 };
        for &one in micros {
            latencies.counts[bucket_of(one)] += 1;
            latencies.sum += one;
        }
        latencies
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut last = 0;
        for micros in 0..100_000 {
            let bucket = bucket_of(micros);
            assert!(bucket == last || bucket == last + 1, "{micros}");
            last = bucket;
        }
        assert_eq!(bucket_of(MICROS_MAX), NUM_BUCKETS - 1);
        assert_eq!(bucket_of(Micros::MAX), NUM_BUCKETS - 1);
    }

    #[test]
    fn nothing_counted_has_no_quantile() {
        assert_eq!(counted(&[]).quantile(0.5), None);
        assert_eq!(counted(&[]).mean(), None);
        assert_eq!(Latencies::default().quantile(0.99), None);
    }

    #[test]
    fn only_what_is_new_counts() {
        let (before, after) = (counted(&[10, 10]), counted(&[10, 10, 3_000, 4]));
        let news = after.since(&before);
        assert_eq!((news.count(), news.sum), (2, 3_004));
        assert_eq!(news.quantile(0.0), Some(4));
        assert_eq!(after.since(&Latencies::default()), after);
    }

    proptest! {
        #[test]
        fn a_quantile_is_that_of_the_sorted_values(
            mut values in prop::collection::vec(0_u64..u64::from(u32::MAX), 1..60),
            q in 0.0..=1.0_f64,
        ) {
            let found = counted(&values).quantile(q).unwrap() as f64;
            values.sort_unstable();
            let rank = (q * values.len() as f64).ceil().max(1.0) as usize;
            let exact = values[rank - 1] as f64;
            prop_assert!((found - exact).abs() <= exact / 16.0 + 0.5, "{found} for {exact}");
        }
    }
}
