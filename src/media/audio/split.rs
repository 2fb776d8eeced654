//! Cuts a long sound into pieces that the model takes, where it is quietest.

use std::collections::VecDeque;

use playhouse_actors::ports::MediaError;

use super::Decoder;

/// Samples over which the loudness is measured.
const WINDOW: usize = 1600;

/// A piece of a sound.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    /// Its samples, of one channel.
    pub(crate) samples: Vec<f32>,
    /// Whether it is the last.
    pub(crate) is_last: bool,
}

/// Cuts samples that arrive bit by bit.
pub(crate) struct Cutter {
    rate: usize,
    /// The longest piece, in samples.
    piece: usize,
    pending: VecDeque<f32>,
    is_at_end: bool,
    has_ended: bool,
}

impl Cutter {
    /// Returns a cutter of a sound of `rate` samples a second. A piece has `seconds` at most. If a
    /// piece is not the last, it ends within its last second, and within its second half.
    pub(crate) fn new(rate: u32, seconds: u32) -> Self {
        let (rate, piece) = (rate as usize, rate as usize * seconds as usize);
        Self { rate, piece, pending: VecDeque::new(), is_at_end: false, has_ended: false }
    }

    /// Adds samples.
    pub(crate) fn push(&mut self, samples: Vec<f32>) {
        self.pending.extend(samples);
    }

    /// Marks the samples so far as all of the sound.
    pub(crate) fn end(&mut self) {
        self.is_at_end = true;
    }

    /// Returns whether no further piece can be cut before more samples arrive.
    pub(crate) fn needs_samples(&self) -> bool {
        !self.is_at_end && self.pending.len() <= self.piece
    }

    /// Returns the next piece. `None` after the last, and while samples are missing.
    pub(crate) fn next(&mut self) -> Option<Piece> {
        if self.has_ended || self.needs_samples() {
            return None;
        }
        if self.pending.len() <= self.piece {
            self.has_ended = true;
            let samples = std::mem::take(&mut self.pending).into();
            return Some(Piece { samples, is_last: true });
        }
        let from = self.piece - self.rate.min(self.piece / 2);
        let last: Vec<f32> = self.pending.range(from..self.piece).copied().collect();
        let cut = (from + quietest(&last)).max(1);
        let samples = self.pending.drain(..cut).collect();
        Some(Piece { samples, is_last: false })
    }
}

/// The pieces of a sound in a file, in order.
pub(crate) struct Pieces {
    decoder: Decoder,
    cutter: Cutter,
}

impl Pieces {
    /// Returns the pieces of a sound of `rate` samples a second, each of `seconds` at most.
    pub(crate) fn new(decoder: Decoder, rate: u32, seconds: u32) -> Self {
        Self { decoder, cutter: Cutter::new(rate, seconds) }
    }

    /// Decodes the samples that the next piece lacks, at once not many more than `most`. Returns
    /// their number.
    ///
    /// # Errors
    /// As [`Decoder::next`].
    pub(crate) fn decode(&mut self, most: usize) -> Result<usize, MediaError> {
        let mut count = 0;
        while self.cutter.needs_samples() && count < most {
            match self.decoder.next()? {
                Some(samples) => {
                    count += samples.len();
                    self.cutter.push(samples);
                }
                None => self.cutter.end(),
            }
        }
        Ok(count)
    }

    /// Returns the next piece. `None` after the last, and while samples are missing.
    pub(crate) fn cut(&mut self) -> Option<Piece> {
        self.cutter.next()
    }
}

/// Returns the beginning of the quietest window. The rest after the last whole window is not one.
fn quietest(samples: &[f32]) -> usize {
    let (mut least, mut at) = (f64::INFINITY, 0);
    for start in (0..samples.len().saturating_sub(WINDOW)).step_by(WINDOW) {
        let window = &samples[start..start + WINDOW];
        let energy: f64 = window.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        if energy < least {
            (least, at) = (energy, start);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::wav;
    use super::*;

    fn pieces(samples: &[f32], rate: u32, seconds: u32) -> Vec<Piece> {
        let decoder = Decoder::open(wav(samples, rate), rate, 3600).unwrap();
        let mut pieces = Pieces::new(decoder, rate, seconds);
        let mut all = Vec::new();
        while all.last().is_none_or(|piece: &Piece| !piece.is_last) {
            assert!(pieces.decode(1000).unwrap() < 1000 + rate as usize);
            all.extend(pieces.cut());
        }
        assert!(pieces.cut().is_none());
        all
    }

    #[test]
    fn a_sound_is_cut_where_its_last_second_is_quietest() {
        let mut samples = vec![0.5; 60_000];
        // The fourth window of the second that ends a piece of two seconds.
        samples[16_000 + 3 * 1600..16_000 + 4 * 1600].fill(0.1);
        let lens: Vec<usize> =
            pieces(&samples, 16_000, 2).iter().map(|piece| piece.samples.len()).collect();
        let first = 16_000 + 3 * 1600;
        assert_eq!(lens, [first, 16_000, 60_000 - first - 16_000]);
        let joined: Vec<f32> =
            pieces(&samples, 16_000, 2).into_iter().flat_map(|piece| piece.samples).collect();
        assert_eq!(joined, samples);
    }

    #[test]
    fn pieces_of_a_second_have_half_of_it_at_least() {
        let lens: Vec<usize> =
            pieces(&[0.0; 40_000], 16_000, 1).iter().map(|piece| piece.samples.len()).collect();
        assert_eq!(lens, [8_000, 8_000, 8_000, 16_000]);
    }

    #[test]
    fn a_short_sound_is_one_piece() {
        let all = pieces(&[0.25; 32_000], 16_000, 2);
        assert_eq!(all, [Piece { samples: vec![0.25; 32_000], is_last: true }]);
    }

    #[test]
    fn samples_that_arrive_bit_by_bit_are_cut_at_the_same_places() {
        let samples: Vec<f32> = (0..70_001).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut cutter = Cutter::new(16_000, 2);
        let mut all = Vec::new();
        for part in samples.chunks(777) {
            cutter.push(part.to_vec());
            all.extend(std::iter::from_fn(|| cutter.next()));
        }
        assert!(cutter.next().is_none(), "the rest may be less than a piece");
        cutter.end();
        all.extend(std::iter::from_fn(|| cutter.next()));
        assert_eq!(all, pieces(&samples, 16_000, 2));
    }
}
