//! Mean, spread and percentiles of many measurements, as numpy computes them.

/// Measurements, sorted. Without any, every figure is 0.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Distribution {
    sorted: Vec<f64>,
}

impl Distribution {
    /// Returns the distribution of `values`, in any order and unit.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self { sorted }
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len().max(1) as f64
    }

    /// Returns the standard deviation of the values themselves, not an estimate for a population
    /// (`numpy.std`).
    pub(crate) fn std(&self) -> f64 {
        let mean = self.mean();
        let squares = self.sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (squares / self.sorted.len().max(1) as f64).sqrt()
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// Returns a percentile, interpolated linearly between two measurements (`numpy.percentile`).
    /// `percent` is in `0..=100`.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let Some(last) = self.sorted.len().checked_sub(1) else { return 0.0 };
        let place = percent / 100.0 * last as f64;
        let below = (place.floor() as usize).min(last);
        let above = (below + 1).min(last);
        let (low, high) = (self.sorted[below], self.sorted[above]);
        low + (high - low) * (place - below as f64)
    }
}

/// Returns the name of a percentile: `99`, `99.9`.
pub(crate) fn percentile_name(percent: f64) -> String {
    format!("{percent}")
}

/// Parses percentiles: numbers from 0 to 100, separated by commas.
pub(crate) fn parse_percentiles(text: &str) -> Result<Vec<f64>, String> {
    let parse = |word: &str| {
        let percent = word.trim().parse::<f64>().ok();
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        percent.ok_or_else(|| format!("{word:?} is no percentile: give numbers of 0 to 100"))
    };
    text.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `numpy.percentile([15.0, 20.0, 35.0, 40.0, 50.0, 1.5], [0, 10, 50, 90, 99, 100])` and
    /// further percentiles, numpy 2.
    #[test]
    fn figures_are_numpys() {
        let values = Distribution::of([15.0, 20.0, 35.0, 40.0, 50.0, 1.5]);
        let expected =
            [(0.0, 1.5), (10.0, 8.25), (50.0, 27.5), (90.0, 45.0), (99.0, 49.5), (100.0, 50.0)];
        for (percent, value) in expected {
            assert!((values.percentile(percent) - value).abs() < 1e-9, "{percent}");
        }
        assert!((values.mean() - 26.916_666_666_666_668).abs() < 1e-12);
        assert!((values.std() - 16.356_488_688_658_768).abs() < 1e-12);
        assert_eq!(values.median(), 27.5);
    }

    #[test]
    fn few_values_have_figures_too() {
        let none = Distribution::default();
        assert_eq!((none.mean(), none.std(), none.percentile(99.0)), (0.0, 0.0, 0.0));
        let one = Distribution::of([7.0]);
        assert_eq!((one.mean(), one.std(), one.percentile(99.0)), (7.0, 0.0, 7.0));
    }

    #[test]
    fn percentiles_are_read_and_named() {
        assert_eq!(parse_percentiles("25, 99,99.9").unwrap(), [25.0, 99.0, 99.9]);
        assert_eq!([25.0, 99.9].map(percentile_name), ["25", "99.9"]);
        assert!(parse_percentiles("101").unwrap_err().contains("\"101\" is no percentile"));
        assert!(parse_percentiles("").is_err());
    }
}
