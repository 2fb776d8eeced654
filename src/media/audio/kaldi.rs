//! Log-mel spectrograms of Phi-4-multimodal: HF `Phi4MultimodalFeatureExtractor`.
//!
//! A sound becomes windows of `win_length` samples, `hop_length` apart. Samples behind the last
//! whole window are not read. In each window, a part of the sample before is subtracted from each
//! sample (pre-emphasis). The power of the spectrum is summed over triangles, which have the same
//! width on Kaldi's scale of mels. The logarithm of each sum is taken.

use std::f64::consts::TAU;
use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};

/// The form of a spectrogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KaldiConfig {
    /// Number of triangles.
    pub(crate) num_bins: usize,
    /// Samples a second.
    pub(crate) rate: u32,
    /// Samples of a window, which is filled with zeros.
    pub(crate) n_fft: usize,
    /// Samples of a window that are read. At most `n_fft`, and at least 2.
    pub(crate) win_length: usize,
    /// Samples from one window to the next.
    pub(crate) hop_length: usize,
    /// The part of the sample before.
    pub(crate) preemphasis: f32,
    /// The lowest frequency of the first triangle, and the highest one of the last.
    pub(crate) frequencies: [f64; 2],
}

impl KaldiConfig {
    /// Returns the number of windows of a sound.
    pub(crate) fn num_windows(&self, num_samples: usize) -> usize {
        match num_samples.checked_sub(self.win_length) {
            Some(rest) => rest / self.hop_length + 1,
            None => 0,
        }
    }
}

/// Computes spectrograms of one form.
pub(crate) struct KaldiExtractor {
    config: KaldiConfig,
    /// The factors of a window's samples (Hamming).
    window: Vec<f64>,
    /// The weights of all frequencies in each bin.
    triangles: Vec<Vec<f64>>,
    fft: Arc<dyn RealToComplex<f64>>,
}

/// The size of samples that the pre-emphasis of 16 bits expects.
const AMPLITUDE: f32 = 32_768.0;
/// Power below which the logarithm does not follow.
const FLOOR: f64 = 1.0;

impl KaldiExtractor {
    /// Returns an extractor of spectrograms.
    pub(crate) fn new(config: KaldiConfig) -> Self {
        let last = (config.win_length.max(2) - 1) as f64;
        let hamming = |at: usize| 0.54 - 0.46 * (TAU * at as f64 / last).cos();
        Self {
            config,
            window: (0..config.win_length).map(hamming).collect(),
            triangles: triangles(&config),
            fft: RealFftPlanner::new().plan_fft_forward(config.n_fft),
        }
    }

    /// Returns the spectrogram's form.
    pub(crate) fn config(&self) -> &KaldiConfig {
        &self.config
    }

    /// Returns the spectrogram of samples, `[num_windows, num_bins]`.
    pub(crate) fn spectrogram(&self, samples: &[f32]) -> Vec<f32> {
        let KaldiConfig { num_bins, win_length, hop_length, preemphasis, .. } = self.config;
        let num_windows = self.config.num_windows(samples.len());
        let (mut input, mut spectrum) = (self.fft.make_input_vec(), self.fft.make_output_vec());
        let mut powers = vec![0.0; spectrum.len()];
        let mut logs = Vec::with_capacity(num_windows * num_bins);
        for window in 0..num_windows {
            let samples = &samples[window * hop_length..][..win_length];
            let before = samples.first().into_iter().chain(samples);
            input.fill(0.0);
            for (((value, factor), sample), before) in
                input.iter_mut().zip(&self.window).zip(samples).zip(before)
            {
                let emphasized = (sample - preemphasis * before) * AMPLITUDE;
                *value = f64::from(emphasized) * factor;
            }
            // The lengths are those of the plan, so it cannot fail.
            if self.fft.process(&mut input, &mut spectrum).is_err() {
                continue;
            }
            for (power, value) in powers.iter_mut().zip(&spectrum) {
                *power = value.norm_sqr();
            }
            logs.extend(self.triangles.iter().map(|weights| {
                let sum: f64 = weights.iter().zip(&powers).map(|(w, power)| w * power).sum();
                sum.max(FLOOR).ln() as f32
            }));
        }
        logs
    }
}

/// Returns the bins' triangles, whose borders are equally far apart in mels.
fn triangles(config: &KaldiConfig) -> Vec<Vec<f64>> {
    let [least, most] = config.frequencies.map(mel);
    let step = (most - least) / (config.num_bins + 1) as f64;
    let num_frequencies = config.n_fft / 2 + 1;
    let width = f64::from(config.rate) / config.n_fft as f64;
    let triangle = |bin: usize| {
        let left = least + step * bin as f64;
        let weight = |frequency: usize| {
            let at = (mel(width * frequency as f64) - left) / step;
            at.min(2.0 - at).max(0.0)
        };
        (0..num_frequencies).map(weight).collect()
    };
    (0..config.num_bins).map(triangle).collect()
}

/// Returns a frequency on Kaldi's scale.
fn mel(hertz: f64) -> f64 {
    1127.0 * (1.0 + hertz / 700.0).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: KaldiConfig = KaldiConfig {
        num_bins: 80,
        rate: 16_000,
        n_fft: 512,
        win_length: 400,
        hop_length: 160,
        preemphasis: 0.97,
        frequencies: [0.0, 7_690.0],
    };

    #[test]
    fn windows_are_whole() {
        let counts = [399, 400, 559, 560, 16_000].map(|len| CONFIG.num_windows(len));
        assert_eq!(counts, [0, 1, 1, 2, 98]);
    }

    #[test]
    fn silence_is_the_floor() {
        let mel = KaldiExtractor::new(CONFIG).spectrogram(&[0.0; 600]);
        assert_eq!(mel, vec![0.0; 2 * 80]);
    }

    #[test]
    fn triangles_end_below_the_highest_frequency() {
        let triangles = triangles(&CONFIG);
        let last = triangles[79].iter().rposition(|weight| *weight > 0.0).unwrap();
        assert!((245..247).contains(&last), "{last}");
        assert_eq!(triangles[0][0], 0.0);
    }
}
