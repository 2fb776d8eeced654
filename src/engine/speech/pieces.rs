//! A long sound as items that the model takes one by one.

use std::sync::Arc;

use super::Speech;
use crate::api::{MediaError, MediaSource, Modality, RawMedia};
use crate::media::audio::{Cutter, Decoder, Piece, Pieces, SECONDS_MAX, wav};

/// Seconds of a file that are decoded at once. The memory of a longer part is leased bit by bit.
const SECONDS_AT_ONCE: usize = 30;

/// A part of a sound, as the item of a prompt.
#[derive(Debug, Clone)]
pub struct SoundPiece {
    /// The item.
    pub media: RawMedia,
    /// Where it begins, in seconds.
    pub start: f64,
    /// Its length, in seconds.
    pub seconds: f64,
    /// Whether no other part follows.
    pub is_last: bool,
}

/// The parts of a sound, in order. They are decoded when they are asked for.
pub struct SoundPieces {
    pieces: Pieces,
    items: Items,
}

/// A sound whose samples arrive while it is heard. It is cut as a file with the same samples.
pub struct LiveSound {
    cutter: Cutter,
    items: Items,
    /// The samples so far.
    num_samples: usize,
    num_samples_max: usize,
}

/// A sound would be longer than any that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audio has more than {seconds_max} seconds, and no more are accepted")]
pub struct TooLong {
    /// The longest sound that is served.
    pub seconds_max: u32,
}

/// Makes pieces into items.
struct Items {
    rate: u32,
    num_samples: usize,
}

impl Items {
    fn item(&mut self, piece: &Piece) -> SoundPiece {
        let seconds = |samples: usize| samples as f64 / f64::from(self.rate);
        let (start, len) = (seconds(self.num_samples), piece.samples.len());
        self.num_samples += len;
        let media = RawMedia {
            modality: Modality::Audio,
            source: MediaSource::File(wav(&piece.samples, self.rate)),
            uuid: None,
            kwargs: serde_json::Map::new(),
        };
        SoundPiece { media, start, seconds: seconds(len), is_last: piece.is_last }
    }
}

impl Speech {
    /// Opens a file. It may be longer than the model takes at once.
    ///
    /// # Errors
    /// [`MediaError`] if its format is not known, or it is longer than any sound that is served.
    pub fn pieces(&self, file: Arc<[u8]>) -> Result<SoundPieces, MediaError> {
        let rate = self.sampling_rate();
        let decoder = Decoder::open(file, rate, SECONDS_MAX)?;
        let pieces = Pieces::new(decoder, rate, self.seconds_of_a_piece());
        Ok(SoundPieces { pieces, items: Items { rate, num_samples: 0 } })
    }

    /// Returns a sound without samples yet.
    #[must_use]
    pub fn live_sound(&self) -> LiveSound {
        LiveSound::new(self.sampling_rate(), self.seconds_of_a_live_piece())
    }
}

impl SoundPieces {
    /// Decodes about 30 seconds more, or those that the next part lacks. Returns the number of
    /// samples. This takes a while, so it belongs on a blocking thread.
    ///
    /// # Errors
    /// [`MediaError`] if the file is broken or too long.
    pub fn decode(&mut self) -> Result<usize, MediaError> {
        self.pieces.decode(SECONDS_AT_ONCE * self.items.rate as usize)
    }

    /// Cuts the next part. `None` after the last, and while samples are missing.
    pub fn next_piece(&mut self) -> Option<SoundPiece> {
        let piece = self.pieces.cut()?;
        Some(self.items.item(&piece))
    }
}

impl LiveSound {
    /// Returns a sound of `rate` samples a second, in parts of `seconds` at most.
    pub(crate) fn new(rate: u32, seconds: u32) -> Self {
        Self {
            cutter: Cutter::new(rate, seconds),
            items: Items { rate, num_samples: 0 },
            num_samples: 0,
            num_samples_max: SECONDS_MAX as usize * rate as usize,
        }
    }

    /// Adds samples at the model's rate.
    ///
    /// # Errors
    /// [`TooLong`] if the sound would become longer than any that is served. Nothing is added then.
    pub fn push(&mut self, samples: Vec<f32>) -> Result<(), TooLong> {
        let num_samples = self.num_samples + samples.len();
        if num_samples > self.num_samples_max {
            return Err(TooLong { seconds_max: SECONDS_MAX });
        }
        self.num_samples = num_samples;
        self.cutter.push(samples);
        Ok(())
    }

    /// Marks the samples so far as all of the sound.
    pub fn end(&mut self) {
        self.cutter.end();
    }

    /// Returns the number of samples that are in no part yet.
    #[must_use]
    pub fn num_waiting(&self) -> usize {
        self.num_samples - self.items.num_samples
    }

    /// Returns whether no further part can be cut before more samples arrive.
    #[must_use]
    pub fn needs_samples(&self) -> bool {
        self.cutter.needs_samples()
    }

    /// Cuts the next part. `None` after the last, and while samples are missing.
    pub fn next_piece(&mut self) -> Option<SoundPiece> {
        let piece = self.cutter.next()?;
        Some(self.items.item(&piece))
    }
}
