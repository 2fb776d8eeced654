//! Opens a file: finds its format, its first track of sound, and the decoder of that track.

use std::sync::Arc;

use playhouse_actors::ports::MediaError;
use symphonia::core::{
    audio::Channels,
    codecs::audio::{
        AudioCodecParameters, AudioDecoder, AudioDecoderOptions, well_known::CODEC_ID_OPUS,
    },
    common::Limit,
    formats::{
        FormatOptions, FormatReader, TrackType,
        probe::{Hint, Probe},
        well_known::FORMAT_ID_ADTS,
    },
    io::MediaSourceStream,
    meta::MetadataOptions,
};
use symphonia::default::formats::{
    AdtsReader, AiffReader, CafReader, FlacReader, IsoMp4Reader, MpaReader, OggReader, WavReader,
};

use super::decode::{CHANNELS_MAX, PACKET_FRAMES_MAX};
use super::mp4::Plan;
use super::opus::{self, Head, OpusDecoder};
use super::riff::{Patched, tags_end};
use super::webm::{self, WebM};
use super::{adts, caf, invalid};

/// Bytes of a tag or a picture in the file.
const TAG_BYTES_MAX: usize = 1 << 20;

/// The formats that are decoded, for errors.
const DECODED: &str =
    "WAV, AIFF, CAF, FLAC, MP3, AAC, M4A, Opus in WebM, and Opus and Vorbis in Ogg";

/// The packets of a file.
pub(super) enum Packets {
    WebM(WebM),
    Other(Box<dyn FormatReader>),
}

/// The decoder of a track.
pub(super) enum Codec {
    Opus(Box<OpusDecoder>),
    Other(Box<dyn AudioDecoder>),
}

/// A file whose first track of sound can be decoded.
pub(super) struct Opened {
    pub(super) packets: Packets,
    pub(super) codec: Codec,
    pub(super) track: u32,
    /// Frames that the file says it has.
    pub(super) announced: Option<u64>,
    /// Seconds that the file says it has.
    pub(super) length: Option<f64>,
}

impl Opened {
    /// Opens a file.
    ///
    /// # Errors
    /// [`MediaError`] if its format or codec is not known, or its head is broken.
    pub(super) fn of(file: Arc<[u8]>) -> Result<Self, MediaError> {
        let begin = tags_end(&file);
        let rest = &file[begin..];
        // The decoders may find the beginning of an MP3 stream somewhere in the file.
        if let Some(other) = other_format(rest) {
            return Err(invalid(format!("it is {other}; {DECODED} are decoded")));
        }
        if rest.starts_with(webm::MAGIC) {
            return Self::of_webm(WebM::open(Arc::clone(&file), begin)?);
        }
        let boxes = Plan::of(rest);
        if boxes.is_some() && begin > 0 {
            return Err(invalid("it is MP4 with other bytes before it"));
        }
        if boxes.as_ref().is_some_and(Plan::is_too_large) || caf::is_too_large(rest) {
            return Err(invalid("its tables of samples are too large"));
        }
        let num_samples_of_adts = adts::num_samples(rest);
        let formats = formats(boxes.is_some(), rest.starts_with(caf::MAGIC));
        let file = Patched::new(file, boxes.map(|plan| plan.patches));
        let stream = MediaSourceStream::new(Box::new(file), Default::default());
        let limit = Limit::Maximum(TAG_BYTES_MAX);
        let meta = MetadataOptions::default().limit_tag_bytes(limit).limit_visual_bytes(limit);
        let format = formats
            .probe(&Hint::new(), stream, FormatOptions::default(), meta)
            .map_err(|error| invalid(format!("cannot identify the sound's format: {error}")))?;
        let track = format.default_track(TrackType::Audio);
        let track = track.ok_or_else(|| invalid("the file has no sound"))?;
        let params = track.codec_params.as_ref().and_then(|params| params.audio());
        let params = params.ok_or_else(|| invalid("the codec of the sound is not known"))?;
        check_sizes(params)?;
        let id = track.id;
        if params.codec == CODEC_ID_OPUS {
            let head = Head::read(params.extra_data.as_deref().unwrap_or_default())?;
            let decoder = OpusDecoder::new(&head, track.time_base)?;
            // An MP4 file in fragments says 0.
            let said = track.duration.filter(|duration| duration.get() > 0);
            let frames = said.map(|said| opus::frames(said.get(), track.time_base));
            return Ok(Self {
                codec: Codec::Opus(Box::new(decoder)),
                track: id,
                announced: frames.map(|frames| frames.saturating_sub(u64::from(head.pre_skip))),
                length: length(frames, Some(opus::RATE)),
                packets: Packets::Other(format),
            });
        }
        let (announced, said) = match format.format_info().format {
            // The decoder guesses.
            FORMAT_ID_ADTS => (None, num_samples_of_adts),
            // An MP4 file in fragments says 0.
            _ => (track.num_frames, track.num_frames.filter(|frames| *frames > 0)),
        };
        let decoder = symphonia::default::get_codecs()
            .make_audio_decoder(params, &AudioDecoderOptions::default())
            .map_err(|error| invalid(error.to_string()))?;
        let (codec, length) = (Codec::Other(decoder), length(said, params.sample_rate));
        Ok(Self { packets: Packets::Other(format), codec, track: id, announced, length })
    }

    fn of_webm(webm: WebM) -> Result<Self, MediaError> {
        let head = Head::read(webm.head())?;
        let codec = Codec::Opus(Box::new(OpusDecoder::new(&head, None)?));
        let frames = webm.num_frames().saturating_sub(u64::from(head.pre_skip));
        Ok(Self {
            packets: Packets::WebM(webm),
            codec,
            track: webm::TRACK,
            announced: Some(frames),
            length: length(Some(frames), Some(opus::RATE)),
        })
    }
}

/// Returns the formats that are looked for. MP4 and CAF files are known by their first bytes, and
/// looked for nowhere else: the decoder would read tables that were not checked.
fn formats(is_mp4: bool, is_caf: bool) -> Probe {
    let mut formats = Probe::default();
    match (is_mp4, is_caf) {
        (true, _) => formats.register_format::<IsoMp4Reader<'_>>(),
        (false, true) => formats.register_format::<CafReader<'_>>(),
        (false, false) => {
            formats.register_format::<AdtsReader<'_>>();
            formats.register_format::<AiffReader<'_>>();
            formats.register_format::<FlacReader<'_>>();
            formats.register_format::<MpaReader<'_>>();
            formats.register_format::<OggReader<'_>>();
            formats.register_format::<WavReader<'_>>();
        }
    }
    formats
}

/// Checks the sizes that a decoder allocates before the first packet.
fn check_sizes(params: &AudioCodecParameters) -> Result<(), MediaError> {
    let channels = params.channels.as_ref().map_or(0, Channels::count);
    let frames = params.max_frames_per_packet.unwrap_or(0);
    if channels > CHANNELS_MAX || frames > PACKET_FRAMES_MAX as u64 {
        return Err(invalid(format!("a packet of {channels} channels and {frames} frames")));
    }
    Ok(())
}

/// Returns the name of a format that is known and not decoded, by the first bytes of a file.
fn other_format(file: &[u8]) -> Option<&'static str> {
    const CODEC_AT: usize = 28;
    let is_at = |at: usize, bytes: &[u8]| file.get(at..).is_some_and(|it| it.starts_with(bytes));
    match file {
        [b'#', b'!', b'A', b'M', b'R', ..] => Some("AMR"),
        [0x30, 0x26, 0xb2, 0x75, ..] => Some("WMA"),
        [b'O', b'g', b'g', b'S', ..] if is_at(CODEC_AT, b"Speex") => Some("Speex in Ogg"),
        _ => None,
    }
}

/// Returns the length of a sound in seconds, if both numbers are known.
fn length(num_frames: Option<u64>, rate: Option<u32>) -> Option<f64> {
    Some(num_frames? as f64 / f64::from(rate.filter(|rate| *rate > 0)?))
}
