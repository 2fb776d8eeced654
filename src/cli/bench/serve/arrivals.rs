//! The times at which requests are sent: at a rate, more or less regularly.

use rand::Rng;
use rand_distr::{Distribution as _, Gamma};

/// Requests a second, and how they bunch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rate {
    /// Above 0. Infinite sends all at once.
    pub(super) requests_per_s: f64,
    /// The shape of the gamma distribution of intervals, above 0. 1 is a Poisson process. Lower
    /// values give bursts, higher ones are more regular, and infinity is a metronome.
    pub(super) burstiness: f64,
}

/// Returns the seconds after the start at which each of `count` requests is sent, ascending.
///
/// As in vLLM, the times are stretched so that the last is `count / rate`. The rate is then the
/// requested one, whatever the seed.
pub(super) fn arrivals(rate: Rate, count: usize, rng: &mut impl Rng) -> Vec<f64> {
    let mean_interval = rate.requests_per_s.recip();
    // Of shape k and scale 1 / (k · rate), so that the mean is 1 / rate.
    let gamma = Gamma::new(rate.burstiness, mean_interval / rate.burstiness).ok();
    let mut at = 0.0;
    let mut times: Vec<f64> = (0..count)
        .map(|_| {
            at += match gamma {
                Some(gamma) if rate.burstiness.is_finite() => gamma.sample(rng),
                _ => mean_interval,
            };
            at
        })
        .collect();
    if at > 0.0 {
        let stretch = count as f64 * mean_interval / at;
        times.iter_mut().for_each(|time| *time *= stretch);
    }
    times
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::cli::bench::distribution::Distribution;

    fn intervals(requests_per_s: f64, burstiness: f64) -> Distribution {
        let rate = Rate { requests_per_s, burstiness };
        let times = arrivals(rate, 40_000, &mut StdRng::seed_from_u64(7));
        assert!(times.is_sorted());
        assert!((times[times.len() - 1] - 40_000.0 / requests_per_s).abs() < 1e-6);
        let before = std::iter::once(0.0).chain(times.iter().copied());
        Distribution::of(times.iter().zip(before).map(|(time, before)| time - before))
    }

    /// Quantiles of `scipy.stats.gamma(a=k, scale=1 / (k · rate))` for 10 requests a second.
    #[test]
    fn intervals_follow_the_gamma_distribution() {
        let expected = [
            (1.0, [(10.0, 0.010_536_1), (50.0, 0.069_314_7), (90.0, 0.230_258_5)]),
            (0.5, [(10.0, 0.001_579_1), (50.0, 0.045_493_6), (90.0, 0.270_554_3)]),
            (4.0, [(10.0, 0.043_619_2), (50.0, 0.091_801_5), (90.0, 0.167_019_6)]),
        ];
        for (burstiness, quantiles) in expected {
            let intervals = intervals(10.0, burstiness);
            for (percent, value) in quantiles {
                let is = intervals.percentile(percent);
                assert!((is / value - 1.0).abs() < 0.1, "{burstiness} {percent}: {is} {value}");
            }
            // The standard deviation is the mean over the root of the shape.
            let std = 0.1 / f64::sqrt(burstiness);
            assert!((intervals.std() / std - 1.0).abs() < 0.05, "{burstiness}");
        }
    }

    #[test]
    fn without_a_rate_all_are_sent_at_once_and_a_metronome_is_even() {
        let mut rng = StdRng::seed_from_u64(0);
        let all_at_once = Rate { requests_per_s: f64::INFINITY, burstiness: 1.0 };
        assert_eq!(arrivals(all_at_once, 3, &mut rng), [0.0; 3]);
        let even = Rate { requests_per_s: 4.0, burstiness: f64::INFINITY };
        assert_eq!(arrivals(even, 4, &mut rng), [0.25, 0.5, 0.75, 1.0]);
        assert!(arrivals(even, 0, &mut rng).is_empty());
    }
}
