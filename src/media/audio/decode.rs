//! From a file to samples: WAV, AIFF, CAF, FLAC, MP3, AAC, ALAC, Opus, and Vorbis in Ogg.
//!
//! A sound is decoded block by block, so the memory does not depend on its length. Channels are
//! averaged, and samples are resampled to the model's rate.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use playhouse_actors::{logic::request::media::Modality, ports::MediaError};
use symphonia::core::errors::Error;

use super::packets::{Codec, Opened, Packets};
use super::resample::Resampler;
use super::{invalid, opus};

/// The longest sound that is decoded as a whole.
pub(crate) const SECONDS_MAX: u32 = 3600;

/// Samples a second that a file may have.
const RATES: std::ops::RangeInclusive<u32> = 1_000..=384_000;

/// Channels that a file may have.
pub(super) const CHANNELS_MAX: usize = 64;

/// Frames of one packet: a WAV file has packets of about a thousand, and FLAC of 65,535 at most.
pub(super) const PACKET_FRAMES_MAX: usize = 1 << 17;

/// Packets before the first sample that may be broken. An MP3 stream that was cut out of another
/// begins with frames that lean on missing ones.
const BROKEN_PACKETS_MAX: usize = 3;

/// The share and the seconds by which a sound may be longer than its file says.
const LENGTH_SLACK: f64 = 0.02;
const LENGTH_SLACK_SECONDS: f64 = 1.0;

/// Samples for each byte of a file that does not say its length. Speech at 8 kbit/s has 16.
const SAMPLES_PER_BYTE_MAX: usize = 16;

/// Bytes of packets beside twice those of the file. A table may name the same bytes many times.
const PACKET_BYTES_SLACK: u64 = 1 << 20;

/// A sound that is being decoded.
pub(crate) struct Decoder {
    packets: Packets,
    codec: Codec,
    track: u32,
    rate: u32,
    resampler: Option<Resampler>,
    interleaved: Vec<f32>,
    /// Samples that may still be returned.
    left: u64,
    seconds_max: u32,
    num_broken: usize,
    /// Seconds that the file says it has.
    length: Option<f64>,
    /// Frames that the file says it has.
    announced: Option<u64>,
    num_frames: u64,
    /// Bytes of packets that may still be read, and one for each packet.
    packet_bytes_left: u64,
    is_at_end: bool,
}

impl Decoder {
    /// Opens a file. Its samples will have `rate`, and be `seconds_max` long at most.
    ///
    /// # Errors
    /// [`MediaError`] if its format is not known, or it says itself that it is longer.
    pub(crate) fn open(file: Arc<[u8]>, rate: u32, seconds_max: u32) -> Result<Self, MediaError> {
        guarded(|| Self::opened(file, rate, seconds_max))
    }

    fn opened(file: Arc<[u8]>, rate: u32, seconds_max: u32) -> Result<Self, MediaError> {
        let len = file.len() as u64;
        let Opened { packets, codec, track, announced, length } = Opened::of(file)?;
        if let Some(length) = length.filter(|length| *length > f64::from(seconds_max)) {
            return Err(too_long(length.ceil() as u64, seconds_max));
        }
        Ok(Self {
            packets,
            codec,
            track,
            rate,
            resampler: None,
            interleaved: Vec::new(),
            left: u64::from(seconds_max) * u64::from(rate),
            seconds_max,
            num_broken: 0,
            length,
            announced,
            num_frames: 0,
            packet_bytes_left: 2 * len + PACKET_BYTES_SLACK,
            is_at_end: false,
        })
    }

    /// Returns the next samples, or nothing at the end of the sound.
    ///
    /// # Errors
    /// [`MediaError`] if the file is broken, is longer than allowed, or has no samples.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<f32>>, MediaError> {
        while !self.is_at_end {
            let samples = match guarded(|| self.decoded())? {
                Some(samples) => samples,
                None => {
                    self.is_at_end = true;
                    if self.num_frames == 0 {
                        return Err(invalid("the file has no samples"));
                    }
                    self.resampler.take().map(Resampler::finish).transpose()?.unwrap_or_default()
                }
            };
            if samples.is_empty() {
                continue;
            }
            let Some(left) = self.left.checked_sub(samples.len() as u64) else {
                return Err(too_long(u64::from(self.seconds_max) + 1, self.seconds_max));
            };
            self.left = left;
            return Ok(Some(samples));
        }
        Ok(None)
    }

    /// Returns the samples of the next packet at the model's rate, which may be none.
    fn decoded(&mut self) -> Result<Option<Vec<f32>>, MediaError> {
        let packet = match &mut self.packets {
            Packets::WebM(webm) => webm.next_packet()?,
            Packets::Other(format) => match format.next_packet() {
                Ok(packet) => packet,
                Err(Error::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    match self.is_truncated() {
                        true => return Err(invalid("the file is truncated")),
                        false => None,
                    }
                }
                Err(error) => return Err(invalid(error.to_string())),
            },
        };
        let Some(packet) = packet else { return Ok(None) };
        let left = self.packet_bytes_left.checked_sub(packet.data.len() as u64 + 1);
        self.packet_bytes_left = left.ok_or_else(|| invalid("it has more packets than bytes"))?;
        if packet.track_id != self.track {
            return Ok(Some(Vec::new()));
        }
        let decoder = match &mut self.codec {
            Codec::Opus(decoder) => {
                decoder.decode(&packet, &mut self.interleaved)?;
                let channels = decoder.channels();
                self.num_frames += (self.interleaved.len() / channels) as u64;
                let mono = averaged(&self.interleaved, channels);
                return self.at_rate(mono, opus::RATE).map(Some);
            }
            Codec::Other(decoder) => decoder,
        };
        let buffer = match decoder.decode(&packet) {
            Ok(buffer) => buffer,
            Err(Error::DecodeError(_))
                if self.num_frames == 0 && self.num_broken < BROKEN_PACKETS_MAX =>
            {
                self.num_broken += 1;
                return Ok(Some(Vec::new()));
            }
            Err(error) => return Err(invalid(error.to_string())),
        };
        let (rate, channels) = (buffer.spec().rate(), buffer.num_planes());
        if !RATES.contains(&rate) {
            let (least, most) = (RATES.start(), RATES.end());
            let why = format!("{rate} samples a second; {least} to {most} are accepted");
            return Err(invalid(why));
        }
        if !(1..=CHANNELS_MAX).contains(&channels) || buffer.frames() > PACKET_FRAMES_MAX {
            let frames = buffer.frames();
            return Err(invalid(format!("a packet of {channels} channels and {frames} frames")));
        }
        buffer.copy_to_vec_interleaved(&mut self.interleaved);
        self.num_frames += buffer.frames() as u64;
        let mono = averaged(&self.interleaved, channels);
        self.at_rate(mono, rate).map(Some)
    }

    /// Returns the most samples that a file of `len` bytes may have, by its header. A few silent
    /// bytes can become hours, so a file that does not say its length has a bound, too.
    fn samples_max(&self, len: usize) -> usize {
        let most = self.seconds_max as usize * self.rate as usize;
        let said = match self.length {
            // Some formats say only about their length.
            Some(seconds) => {
                let slack = seconds * LENGTH_SLACK + LENGTH_SLACK_SECONDS;
                ((seconds + slack) * f64::from(self.rate)) as usize
            }
            None => len.saturating_mul(SAMPLES_PER_BYTE_MAX),
        };
        said.min(most)
    }

    /// Returns whether the file ends before the length that it announced. Some announce none, and
    /// some only about their length.
    fn is_truncated(&self) -> bool {
        self.announced.is_some_and(|announced| self.num_frames < announced - announced / 100)
    }

    /// Returns samples of the rate `rate` at the model's rate, as far as they are complete.
    fn at_rate(&mut self, mono: Vec<f32>, rate: u32) -> Result<Vec<f32>, MediaError> {
        if rate == self.rate && self.resampler.is_none() {
            return Ok(mono);
        }
        // The rate may change in the middle of a file.
        if self.resampler.as_ref().is_some_and(|resampler| resampler.rates() != [rate, self.rate]) {
            let mut rest = self.resampler.take().map(Resampler::finish).transpose()?;
            let rest = rest.get_or_insert_default();
            rest.extend(self.at_rate(mono, rate)?);
            return Ok(std::mem::take(rest));
        }
        let resampler = match &mut self.resampler {
            Some(resampler) => resampler,
            none => none.insert(Resampler::new(rate, self.rate)?),
        };
        resampler.push(&mono)
    }
}

/// Returns the result of reading a file. The decoders panic on some files: a size in a header may
/// overflow. Such a file is broken, and no other request is harmed.
fn guarded<T>(read: impl FnOnce() -> Result<T, MediaError>) -> Result<T, MediaError> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(invalid("the file is broken in a way that stops the decoder")))
}

/// Returns all samples of a file, at `rate`.
///
/// # Errors
/// [`MediaError`] if the file is broken, of an unknown format, or longer than `seconds_max`.
pub(crate) fn decode(file: Arc<[u8]>, rate: u32, seconds_max: u32) -> Result<Vec<f32>, MediaError> {
    let len = file.len();
    let mut decoder = Decoder::open(file, rate, seconds_max)?;
    let most = decoder.samples_max(len);
    let mut samples = Vec::new();
    while let Some(more) = decoder.next()? {
        if samples.len() + more.len() > most {
            return Err(invalid("the file has more samples than its header says"));
        }
        samples.extend(more);
    }
    Ok(samples)
}

/// Returns the largest size of a file's samples at `rate`, by its header. A file with more is
/// refused by [`decode`].
pub(crate) fn decoded_bytes(file: &Arc<[u8]>, rate: u32) -> usize {
    let Ok(decoder) = Decoder::open(Arc::clone(file), rate, SECONDS_MAX) else { return 0 };
    decoder.samples_max(file.len()).saturating_mul(size_of::<f32>())
}

fn too_long(size: u64, limit: u32) -> MediaError {
    let limit = u64::from(limit);
    MediaError::TooLarge { modality: Modality::Audio, size, unit: "seconds", limit }
}

/// Returns the mean of the channels of each frame.
fn averaged(interleaved: &[f32], channels: usize) -> Vec<f32> {
    if channels == 1 {
        return interleaved.to_vec();
    }
    let mean = |frame: &[f32]| frame.iter().sum::<f32>() / channels as f32;
    interleaved.chunks_exact(channels).map(mean).collect()
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
