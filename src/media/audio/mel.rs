//! Log-mel spectrograms: HF `WhisperFeatureExtractor`, `GraniteSpeechFeatureExtractor`.
//!
//! A sound becomes windows of `n_fft` samples, `hop_length` apart, whose ends are mirrored. The
//! power of their spectra is summed over `num_bins` triangles, which are narrow at low frequencies.
//! Their formula is that of Slaney's Auditory Toolbox, or that of HTK. The logarithms are cut off 8
//! below their largest, and scaled.

use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};

/// The highest frequency of a triangle of Slaney's. It does not depend on the rate.
const HIGHEST: f64 = 8000.0;

/// Power below which the logarithm does not follow.
const FLOOR: f64 = 1e-10;

/// The form of a spectrogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MelConfig {
    /// Number of triangles.
    pub(crate) num_bins: usize,
    /// Samples a second.
    pub(crate) rate: u32,
    /// Samples of a window.
    pub(crate) n_fft: usize,
    /// Samples from one window to the next.
    pub(crate) hop_length: usize,
    /// Seconds to which a sound is cut, or filled with silence.
    pub(crate) seconds: usize,
}

impl MelConfig {
    /// Returns the number of windows of a spectrogram.
    pub(crate) fn num_windows(&self) -> usize {
        self.num_samples() / self.hop_length
    }

    /// Returns the number of samples of a spectrogram.
    pub(crate) fn num_samples(&self) -> usize {
        self.rate as usize * self.seconds
    }
}

/// Computes spectrograms of one form.
pub(crate) struct MelExtractor {
    config: MelConfig,
    /// The factors of a window's samples (Hann).
    window: Vec<f64>,
    triangles: Vec<Triangle>,
    fft: Arc<dyn RealToComplex<f64>>,
}

/// The weights of neighbouring frequencies in one bin.
struct Triangle {
    first: usize,
    weights: Vec<f64>,
}

impl MelExtractor {
    /// Returns an extractor of spectrograms with Slaney's triangles.
    pub(crate) fn new(config: MelConfig) -> Self {
        let triangles = triangles(&config, mel(HIGHEST), hertz, true);
        Self::with(config, config.n_fft, triangles)
    }

    /// Returns an extractor of spectrograms with the triangles of HTK, as torchaudio has them. The
    /// factors of a window are 0 but for `win_length` samples in its middle, at most `n_fft`.
    pub(crate) fn htk(config: MelConfig, win_length: usize) -> Self {
        let most = htk_mel(f64::from(config.rate / 2));
        Self::with(config, win_length, triangles(&config, most, htk_hertz, false))
    }

    fn with(config: MelConfig, win_length: usize, triangles: Vec<Triangle>) -> Self {
        let length = win_length as f64;
        let hann = |i: usize| 0.5 - 0.5 * (std::f64::consts::TAU * i as f64 / length).cos();
        let mut window = vec![0.0; config.n_fft];
        let before = config.n_fft.saturating_sub(win_length) / 2;
        let inner = window.iter_mut().skip(before).take(win_length);
        inner.enumerate().for_each(|(i, factor)| *factor = hann(i));
        Self {
            config,
            window,
            triangles,
            fft: RealFftPlanner::new().plan_fft_forward(config.n_fft),
        }
    }

    /// Returns the spectrogram's form.
    pub(crate) fn config(&self) -> &MelConfig {
        &self.config
    }

    /// Returns the spectrogram of samples, `[num_bins, num_windows]`.
    pub(crate) fn spectrogram(&self, samples: &[f32]) -> Vec<f32> {
        self.spectrogram_of(samples, self.config.num_samples())
    }

    /// Returns the spectrogram of a sound that is cut, or filled with silence, to `num_samples`:
    /// `[num_bins, num_samples / hop_length]`.
    pub(crate) fn spectrogram_of(&self, samples: &[f32], num_samples: usize) -> Vec<f32> {
        let num_windows = num_samples / self.config.hop_length;
        let samples = &samples[..samples.len().min(num_samples)];
        self.windows(samples, num_samples, num_windows)
    }

    /// Returns the spectrogram of a whole sound, with a window around its end: `[num_bins,
    /// samples / hop_length + 1]`. It has more samples than half of a window.
    pub(crate) fn spectrogram_to_end(&self, samples: &[f32]) -> Vec<f32> {
        self.windows(samples, samples.len(), samples.len() / self.config.hop_length + 1)
    }

    /// Returns the first windows of a sound that is filled with silence to `num_samples`.
    fn windows(&self, samples: &[f32], num_samples: usize, num_windows: usize) -> Vec<f32> {
        let num_bins = self.config.num_bins;
        let mut logs = vec![FLOOR.log10(); num_bins * num_windows];
        let (mut input, mut spectrum) = (self.fft.make_input_vec(), self.fft.make_output_vec());
        let mut powers = vec![0.0; spectrum.len()];
        for window in 0..num_windows {
            let is_silent = self.fill(&mut input, samples, num_samples, window);
            // The lengths are those of the plan, so it cannot fail.
            if is_silent || self.fft.process(&mut input, &mut spectrum).is_err() {
                continue;
            }
            for (power, value) in powers.iter_mut().zip(&spectrum) {
                *power = value.norm_sqr();
            }
            for (bin, triangle) in self.triangles.iter().enumerate() {
                logs[bin * num_windows + window] = triangle.sum(&powers).max(FLOOR).log10();
            }
        }
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        logs.into_iter().map(|log| ((log.max(most - 8.0) + 4.0) / 4.0) as f32).collect()
    }

    /// Fills a window. Returns whether it is silent.
    fn fill(&self, input: &mut [f64], samples: &[f32], num_samples: usize, window: usize) -> bool {
        let last = num_samples as i64 - 1;
        let start = (window * self.config.hop_length) as i64 - (self.config.n_fft / 2) as i64;
        let mut is_silent = true;
        for (i, (value, factor)) in input.iter_mut().zip(&self.window).enumerate() {
            let at = (start + i as i64).abs();
            let at = if at > last { 2 * last - at } else { at };
            let sample = usize::try_from(at).ok().and_then(|at| samples.get(at));
            let sample = sample.copied().unwrap_or_default();
            is_silent &= sample == 0.0;
            *value = f64::from(sample) * factor;
        }
        is_silent
    }
}

impl Triangle {
    fn sum(&self, powers: &[f64]) -> f64 {
        let powers = powers.iter().skip(self.first);
        self.weights.iter().zip(powers).map(|(weight, power)| weight * power).sum()
    }
}

/// Returns the bins' triangles. Their borders are equally far apart in mels, from 0 to `most`. The
/// function `hertz` turns mels into frequencies. All have the same area, or the same height.
fn triangles(
    config: &MelConfig,
    most: f64,
    hertz: fn(f64) -> f64,
    has_same_area: bool,
) -> Vec<Triangle> {
    let num_points = config.num_bins + 2;
    let points: Vec<f64> =
        (0..num_points).map(|i| hertz(most * i as f64 / (num_points - 1) as f64)).collect();
    let num_frequencies = config.n_fft / 2 + 1;
    let nyquist = f64::from(config.rate / 2);
    let frequency = |i: usize| nyquist * i as f64 / (num_frequencies - 1) as f64;
    let triangle = |points: &[f64]| {
        let [left, top, right] = [points[0], points[1], points[2]];
        let weight = |i: usize| {
            let up = (frequency(i) - left) / (top - left);
            let down = (right - frequency(i)) / (right - top);
            let height = up.min(down).max(0.0);
            if has_same_area { height * 2.0 / (right - left) } else { height }
        };
        let weights: Vec<f64> = (0..num_frequencies).map(weight).collect();
        let first = weights.iter().position(|weight| *weight > 0.0).unwrap_or_default();
        let end = weights.iter().rposition(|weight| *weight > 0.0).map_or(first, |last| last + 1);
        Triangle { first, weights: weights[first..end].to_vec() }
    };
    points.windows(3).map(triangle).collect()
}

/// The frequency from which on mels grow with the logarithm, and its mel.
const KNEE: [f64; 2] = [1000.0, 15.0];

/// Returns the logarithm's factor: 27 mels for each factor of 6.4.
fn steps() -> f64 {
    27.0 / 6.4f64.ln()
}

fn mel(hertz: f64) -> f64 {
    let [knee, at_knee] = KNEE;
    match hertz >= knee {
        true => at_knee + (hertz / knee).ln() * steps(),
        false => 3.0 * hertz / 200.0,
    }
}

fn hertz(mel: f64) -> f64 {
    let [knee, at_knee] = KNEE;
    match mel >= at_knee {
        true => knee * ((mel - at_knee) / steps()).exp(),
        false => 200.0 * mel / 3.0,
    }
}

/// The frequency at which HTK's mels turn from linear to logarithmic, and their factor for each
/// power of ten.
const HTK: [f64; 2] = [700.0, 2595.0];

fn htk_mel(hertz: f64) -> f64 {
    let [knee, steps] = HTK;
    steps * (1.0 + hertz / knee).log10()
}

fn htk_hertz(mel: f64) -> f64 {
    let [knee, steps] = HTK;
    knee * (10f64.powf(mel / steps) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: MelConfig =
        MelConfig { num_bins: 80, rate: 16_000, n_fft: 400, hop_length: 160, seconds: 30 };

    #[test]
    fn silence_is_flat() {
        let mel = MelExtractor::new(CONFIG).spectrogram(&[]);
        assert_eq!(mel.len(), 80 * 3000);
        assert!(mel.iter().all(|value| *value == -1.5));
    }

    #[test]
    fn a_shorter_window_is_in_the_middle() {
        let extractor = MelExtractor::htk(CONFIG, 398);
        let [first, last] = [&extractor.window[..2], &extractor.window[399..]];
        assert_eq!((first, last), (&[0.0, 0.0][..], &[0.0][..]));
        assert_eq!(extractor.window[200], 1.0);
        assert_eq!(extractor.spectrogram_to_end(&[0.1; 320]).len(), 80 * 3);
    }

    #[test]
    fn mels_and_hertz_are_inverse() {
        for frequency in [0.0, 40.0, 999.0, 1000.0, 1234.5, 8000.0] {
            assert!((hertz(mel(frequency)) - frequency).abs() < 1e-9, "{frequency}");
            assert!((htk_hertz(htk_mel(frequency)) - frequency).abs() < 1e-9, "{frequency}");
        }
    }
}
