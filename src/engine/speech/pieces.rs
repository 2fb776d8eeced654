//! A long sound as items that the model takes one by one.

use std::sync::Arc;

use super::Speech;
use crate::api::{MediaError, MediaSource, Modality, RawMedia};
use crate::media::audio::{Decoder, Pieces, SECONDS_MAX, wav};

/// A part of a sound, as the item of a prompt.
#[derive(Debug, Clone)]
pub struct SoundPiece {
    /// The item.
    pub media: RawMedia,
    /// Where it begins, in seconds.
    pub start: f64,
    /// Its length, in seconds.
    pub seconds: f64,
}

/// The parts of a sound, in order. They are decoded when they are asked for.
pub struct SoundPieces {
    pieces: Pieces,
    rate: u32,
    num_samples: usize,
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
        Ok(SoundPieces { pieces, rate, num_samples: 0 })
    }
}

impl SoundPieces {
    /// Decodes the next part. This takes a while, so it belongs on a blocking thread.
    ///
    /// # Errors
    /// [`MediaError`] if the file is broken or too long.
    pub fn next_piece(&mut self) -> Result<Option<SoundPiece>, MediaError> {
        let Some(piece) = self.pieces.next()? else { return Ok(None) };
        let seconds = |samples: usize| samples as f64 / f64::from(self.rate);
        let (start, len) = (seconds(self.num_samples), piece.samples.len());
        self.num_samples += len;
        let media = RawMedia {
            modality: Modality::Audio,
            source: MediaSource::File(wav(&piece.samples, self.rate)),
            uuid: None,
            kwargs: serde_json::Map::new(),
        };
        Ok(Some(SoundPiece { media, start, seconds: seconds(len) }))
    }
}
