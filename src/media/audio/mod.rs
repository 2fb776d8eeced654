//! Sounds: decoded to samples of one channel at the model's rate, cut into pieces, and turned into
//! mel spectrograms.

mod adts;
mod caf;
mod decode;
mod kaldi;
mod mel;
mod mp4;
mod opus;
mod packets;
mod resample;
mod riff;
mod split;
mod wav;
mod webm;

pub(crate) use decode::{Decoder, SECONDS_MAX, decode, decoded_bytes};
pub(crate) use kaldi::{KaldiConfig, KaldiExtractor};
pub(crate) use mel::{MelConfig, MelExtractor};
pub(crate) use split::{Cutter, Piece, Pieces};
pub(crate) use wav::wav;

use playhouse_actors::{logic::request::media::Modality, ports::MediaError};

/// Returns the error of a sound that is broken or not known.
fn invalid(reason: impl Into<String>) -> MediaError {
    MediaError::Invalid { modality: Modality::Audio, reason: reason.into() }
}
