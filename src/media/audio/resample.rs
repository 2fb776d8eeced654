//! Samples at another rate: an FFT of fixed blocks, with a filter against aliases.

use playhouse_actors::ports::MediaError;
use rubato::{
    Fft, FixedSync, Indexing, Resampler as _, audioadapter_buffers::owned::InterleavedOwned,
};

use super::invalid;

/// Samples of one block, about.
const BLOCK: usize = 1024;

/// Resamples a stream of samples of one channel.
pub(super) struct Resampler {
    fft: Fft<f32>,
    rates: [u32; 2],
    /// Samples that wait for a whole block.
    pending: Vec<f32>,
    /// Samples at the beginning of the output that come from before the sound.
    to_skip: usize,
    num_read: u64,
    num_written: u64,
}

impl Resampler {
    /// Returns a resampler from the rate `from` to the rate `to`.
    ///
    /// # Errors
    /// [`MediaError::Invalid`] for rates that cannot be converted.
    pub(super) fn new(from: u32, to: u32) -> Result<Self, MediaError> {
        let fft = Fft::new(from as usize, to as usize, BLOCK, 1, FixedSync::Both)
            .map_err(|error| invalid(error.to_string()))?;
        let to_skip = fft.output_delay();
        Ok(Self {
            fft,
            rates: [from, to],
            pending: Vec::new(),
            to_skip,
            num_read: 0,
            num_written: 0,
        })
    }

    /// Returns the rate that is read, and the rate that is written.
    pub(super) fn rates(&self) -> [u32; 2] {
        self.rates
    }

    /// Takes samples, and returns those that are complete.
    ///
    /// # Errors
    /// [`MediaError::Invalid`] with the resampler's error.
    pub(super) fn push(&mut self, samples: &[f32]) -> Result<Vec<f32>, MediaError> {
        self.num_read += samples.len() as u64;
        self.pending.extend_from_slice(samples);
        let (block, mut output) = (self.fft.input_frames_next(), Vec::new());
        let whole = self.pending.len() / block * block;
        let rest = self.pending.split_off(whole);
        for block in std::mem::replace(&mut self.pending, rest).chunks(block) {
            output.extend(self.block(block.to_vec(), None)?);
        }
        Ok(output)
    }

    /// Returns the last samples: so many that the output is as long as the input.
    ///
    /// # Errors
    /// As [`Resampler::push`].
    pub(super) fn finish(mut self) -> Result<Vec<f32>, MediaError> {
        let [from, to] = self.rates.map(u64::from);
        let num_output = (self.num_read * to).div_ceil(from);
        let mut output = Vec::new();
        let mut pending = std::mem::take(&mut self.pending);
        while self.num_written < num_output {
            let len = pending.len();
            pending.resize(self.fft.input_frames_next(), 0.0);
            output.extend(self.block(std::mem::take(&mut pending), Some(len))?);
        }
        output.truncate(output.len().saturating_sub((self.num_written - num_output) as usize));
        Ok(output)
    }

    /// Returns the output of one block, of which the first `len` samples are the sound's.
    fn block(&mut self, block: Vec<f32>, len: Option<usize>) -> Result<Vec<f32>, MediaError> {
        let frames = block.len();
        let indexing = Indexing { partial_len: len, ..Indexing::default() };
        let input = InterleavedOwned::new_from(block, 1, frames)
            .map_err(|error| invalid(error.to_string()))?;
        let output = self.fft.process(&input, Some(&indexing));
        let mut output = output.map_err(|error| invalid(error.to_string()))?.take_data();
        let skipped = self.to_skip.min(output.len());
        self.to_skip -= skipped;
        output.drain(..skipped);
        self.num_written += output.len() as u64;
        Ok(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resampled(from: u32, to: u32, blocks: usize) -> Vec<f32> {
        let tone = |i: u32| (std::f32::consts::TAU * 300.0 * i as f32 / from as f32).sin();
        let samples: Vec<f32> = (0..from).map(tone).collect();
        let mut resampler = Resampler::new(from, to).unwrap();
        let mut output = Vec::new();
        for block in samples.chunks(samples.len() / blocks) {
            output.extend(resampler.push(block).unwrap());
        }
        output.extend(resampler.finish().unwrap());
        output
    }

    #[test]
    fn a_tone_keeps_its_length_and_its_phase() {
        // A filter whose delay is no whole number of samples shifts the tone by less than one.
        for (from, to, most) in [
            (8_000, 16_000, 2e-3),
            (44_100, 16_000, 0.12),
            (48_000, 16_000, 2e-3),
            (11_025, 16_000, 0.12),
        ] {
            let output = resampled(from, to, 7);
            assert_eq!(output.len(), to as usize, "{from} to {to}");
            // The ends are between silence and the tone.
            for (i, got) in output.iter().enumerate().skip(2_000).take(12_000) {
                let exact = (std::f32::consts::TAU * 300.0 * i as f32 / to as f32).sin();
                assert!((got - exact).abs() < most, "{from} to {to}: [{i}] is {got}, not {exact}");
            }
        }
    }

    #[test]
    fn the_cut_of_the_input_does_not_matter() {
        assert_eq!(resampled(44_100, 16_000, 1), resampled(44_100, 16_000, 100));
    }
}
