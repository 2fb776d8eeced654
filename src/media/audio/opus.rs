//! Opus (RFC 6716), whose packets are in Ogg (RFC 7845), WebM or MP4.

use playhouse_actors::ports::MediaError;
use ropus::OpusMSDecoder;
use symphonia::core::{
    packet::Packet,
    units::{Duration, TimeBase},
};

use super::invalid;

/// Samples a second of all decoded sounds.
pub(super) const RATE: u32 = 48_000;

/// Frames of the longest packet, which has 120 ms.
const PACKET_FRAMES_MAX: usize = 5_760;

/// Frames that are decoded and left out behind what packets say to have. Only the last packet is
/// longer than it says, so a file with more would take time without an end of its sound.
const BEHIND_MAX: usize = 60 * RATE as usize;

/// Channels of a stream. More have no order that is known.
const CHANNELS_MAX: usize = 8;

/// The head of a stream: `OpusHead` of RFC 7845, section 5.1. MP4 files have the same fields in
/// another byte order.
#[derive(Debug, PartialEq)]
pub(super) struct Head {
    channels: usize,
    /// Frames before the sound.
    pub(super) pre_skip: u16,
    /// The gain in 1/256 dB.
    gain: i16,
    num_streams: u8,
    /// Streams of two channels, which come first.
    num_coupled: u8,
    /// The channel of the streams that becomes each channel of the sound. 255 is silence.
    mapping: Vec<u8>,
    is_of_mp4: bool,
}

impl Head {
    /// Reads the head of a stream.
    ///
    /// # Errors
    /// [`MediaError`] if it is broken, or the channels are in an order that is not known.
    pub(super) fn read(head: &[u8]) -> Result<Self, MediaError> {
        const FIXED: usize = 19;
        let broken = || invalid("the head of its Opus stream is broken");
        let fixed = head.first_chunk::<FIXED>().filter(|fixed| fixed.starts_with(b"OpusHead"));
        let &[.., version, channels, s0, s1, _, _, _, _, g0, g1, family] =
            fixed.ok_or_else(broken)?;
        // The reader of MP4 files puts the name before their head. Only theirs has version 0.
        let is_of_mp4 = version == 0;
        let (pre_skip, gain) = match is_of_mp4 {
            true => (u16::from_be_bytes([s0, s1]), i16::from_be_bytes([g0, g1])),
            false => (u16::from_le_bytes([s0, s1]), i16::from_le_bytes([g0, g1])),
        };
        let count = usize::from(channels);
        let (num_streams, num_coupled, mapping) = match family {
            0 if (1..=2).contains(&count) => (1, channels - 1, (0..channels).collect()),
            1 if (1..=CHANNELS_MAX).contains(&count) => {
                let &[num_streams, num_coupled] = head
                    .get(FIXED..)
                    .and_then(|rest| rest.first_chunk::<2>())
                    .ok_or_else(broken)?;
                let mapping = head.get(FIXED + 2..FIXED + 2 + count).ok_or_else(broken)?;
                (num_streams, num_coupled, mapping.to_vec())
            }
            _ => {
                let why = format!("Opus of {channels} channels, mapped by family {family}");
                return Err(invalid(why));
            }
        };
        if usize::from(num_streams) > CHANNELS_MAX {
            return Err(broken());
        }
        Ok(Self { channels: count, pre_skip, gain, num_streams, num_coupled, mapping, is_of_mp4 })
    }
}

/// The decoder of a stream.
pub(super) struct OpusDecoder {
    decoder: OpusMSDecoder,
    channels: usize,
    /// Frames that are still left out.
    skip: usize,
    /// Frames behind what packets said that may still be left out.
    behind_left: usize,
    /// Whether packets are longer than their duration, where the sound ends before them.
    ends_by_duration: bool,
    /// The unit of durations.
    time_base: Option<TimeBase>,
    pcm: Vec<i16>,
}

impl OpusDecoder {
    /// Returns the decoder of a stream with this head. Its packets have durations in this unit, or
    /// in frames.
    ///
    /// # Errors
    /// [`MediaError`] if the numbers of its streams and channels contradict each other.
    pub(super) fn new(head: &Head, time_base: Option<TimeBase>) -> Result<Self, MediaError> {
        let (streams, coupled) = (i32::from(head.num_streams), i32::from(head.num_coupled));
        let channels = head.channels;
        let mut decoder =
            OpusMSDecoder::new(RATE as i32, channels as i32, streams, coupled, &head.mapping)
                .map_err(|_| invalid("the head of its Opus stream contradicts itself"))?;
        decoder.set_gain(i32::from(head.gain));
        Ok(Self {
            decoder,
            channels,
            skip: usize::from(head.pre_skip),
            behind_left: BEHIND_MAX,
            ends_by_duration: head.is_of_mp4,
            time_base,
            pcm: vec![0; PACKET_FRAMES_MAX * channels],
        })
    }

    /// Decodes a packet to `interleaved`, without the frames before the sound and behind it.
    ///
    /// # Errors
    /// [`MediaError`] if the packet is broken.
    pub(super) fn decode(
        &mut self,
        packet: &Packet,
        interleaved: &mut Vec<f32>,
    ) -> Result<(), MediaError> {
        let broken = || invalid("a packet of Opus is broken");
        let len = i32::try_from(packet.data.len()).map_err(|_| broken())?;
        // The decoder would fill a gap.
        if len == 0 {
            return Err(broken());
        }
        let most = PACKET_FRAMES_MAX as i32;
        let frames = self.decoder.decode(Some(&packet.data), len, &mut self.pcm, most, false);
        let frames = frames.ok().and_then(|frames| usize::try_from(frames).ok());
        let frames = frames.ok_or_else(broken)?;
        let behind = match self.ends_by_duration {
            true => frames.saturating_sub(self.frames_in(packet.dur)),
            false => self.frames_in(packet.trim_end),
        };
        let end = frames.saturating_sub(behind);
        let left = self.behind_left.checked_sub(frames - end);
        self.behind_left = left.ok_or_else(|| invalid("its packets of Opus have no length"))?;
        let begin = self.skip.min(end);
        self.skip -= self.skip.min(frames);
        let pcm = self.pcm.get(begin * self.channels..end * self.channels).unwrap_or_default();
        interleaved.clear();
        interleaved.extend(pcm.iter().map(|sample| f32::from(*sample) / 32_768.0));
        Ok(())
    }

    pub(super) fn channels(&self) -> usize {
        self.channels
    }

    fn frames_in(&self, duration: Duration) -> usize {
        usize::try_from(frames(duration.get(), self.time_base)).unwrap_or(usize::MAX)
    }
}

/// Returns the frames in a duration of this unit. Without a unit, it is in frames.
pub(super) fn frames(duration: u64, time_base: Option<TimeBase>) -> u64 {
    let Some(unit) = time_base else { return duration };
    let units = u128::from(duration) * u128::from(unit.numer.get()) * u128::from(RATE);
    u64::try_from(units / u128::from(unit.denom.get())).unwrap_or(u64::MAX)
}

/// Returns the frames of a packet, by its first bytes (RFC 6716, section 3.1). `None` if it is
/// broken.
pub(super) fn num_frames(packet: &[u8]) -> Option<usize> {
    /// A millisecond.
    const MS: usize = RATE as usize / 1000;
    let (first, rest) = packet.split_first()?;
    let config = usize::from(first >> 3);
    let size = match config {
        0..12 => [10, 20, 40, 60].map(|ms| ms * MS)[config % 4],
        12..16 => [10, 20].map(|ms| ms * MS)[config % 2],
        _ => (5 * MS / 2) << (config % 4),
    };
    let count = match first & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => usize::from(rest.first()? & 63),
    };
    Some(count * size).filter(|frames| (1..=PACKET_FRAMES_MAX).contains(frames))
}

#[cfg(test)]
#[path = "opus_tests.rs"]
mod tests;
