//! Videos: animations and lists of pictures become frames.
//!
//! An animation is decoded twice: once to count its frames, then to keep the wanted ones. So only
//! these are in memory.

use std::{io::Cursor, sync::Arc};

use image::{
    AnimationDecoder, Frame, ImageDecoder, ImageFormat, ImageResult, Limits, Rgb, RgbImage,
    codecs::{gif::GifDecoder, webp::WebPDecoder},
};
use playhouse_actors::{logic::request::media::Modality, ports::MediaError};

use super::decode::{
    DECODED_PIXEL_BYTES, Decoding, check_pixels, composed, format, picture, refused, size,
};

/// Frames that a video has at most.
pub(crate) const FRAMES_MAX: usize = 768;
/// Frames that are taken of a video if the client does not say.
pub(crate) const FRAMES_DEFAULT: usize = 32;
/// The pixels of all frames that are decoded, in pixels of the largest picture.
const DECODED_PICTURES_MAX: u64 = 16;

/// Why a file of another format is refused.
const NO_ANIMATION: &str =
    "only animated GIF and WebP files, and lists of pictures, are decoded as videos";

/// The frames of a video that are processed.
#[derive(Debug, Clone)]
pub(crate) struct Video {
    pub(crate) frames: Vec<RgbImage>,
    /// The place of each among all frames.
    pub(crate) indices: Vec<usize>,
    /// The number of all frames.
    pub(crate) total: usize,
    /// All frames a second, if the file or the client says so.
    pub(crate) fps: Option<f64>,
}

/// Chooses the frames that are processed: from the number of all frames, and from how many of them
/// a second has, if that is known. Returns their places in order.
pub(crate) type Choose<'a> = &'a dyn Fn(usize, Option<f64>) -> Result<Vec<usize>, MediaError>;

/// Returns the frames of an animation that `choose` chooses.
///
/// # Errors
/// [`MediaError`] if the file is no picture or animation, is broken, or too large.
pub(crate) fn animation(
    file: &[u8],
    choose: Choose<'_>,
    decoding: Decoding,
) -> Result<Video, MediaError> {
    if !matches!(format(file), Ok(ImageFormat::Gif | ImageFormat::WebP)) {
        return Err(invalid(NO_ANIMATION));
    }
    let (width, height) = size(file, decoding).map_err(of_video)?;
    let pixels = u64::from(width) * u64::from(height);
    let (mut count, mut seconds) = (0_u64, 0.0);
    for frame in open(file, decoding)? {
        let frame = frame.map_err(|error| of_video(refused(&error)))?;
        let (numerator, denominator) = frame.delay().numer_denom_ms();
        seconds += f64::from(numerator) / f64::from(denominator.max(1)) / 1000.0;
        count += 1;
        let most = decoding.pixels_max.saturating_mul(DECODED_PICTURES_MAX);
        check_pixels(Modality::Video, count.saturating_mul(pixels), most)?;
    }
    let total = count as usize;
    if total == 0 {
        return Err(invalid("the video has no frame"));
    }
    let fps = (seconds > 0.0).then_some(total as f64 / seconds);
    let kept = choose(total, fps)?;
    check_pixels(Modality::Video, pixels * kept.len() as u64, decoding.pixels_max)?;
    let mut frames = Vec::with_capacity(kept.len());
    for (index, frame) in open(file, decoding)?.enumerate() {
        let frame = frame.map_err(|error| of_video(refused(&error)))?;
        let count = kept.iter().filter(|kept| **kept == index).count();
        if count > 0 {
            frames.extend(std::iter::repeat_n(opaque(&frame, decoding), count));
        }
    }
    video(frames, kept, total, fps)
}

fn video(
    frames: Vec<RgbImage>,
    indices: Vec<usize>,
    total: usize,
    fps: Option<f64>,
) -> Result<Video, MediaError> {
    match !frames.is_empty() && frames.len() == indices.len() {
        true => Ok(Video { frames, indices, total, fps }),
        false => Err(invalid("the video has no frame")),
    }
}

/// Returns the pictures of a list that `choose` chooses as frames. All must have the size of the
/// first.
///
/// # Errors
/// [`MediaError`] if one is broken, or if all are too large together.
pub(crate) fn pictures(
    files: &[Arc<[u8]>],
    choose: Choose<'_>,
    fps: Option<f64>,
    decoding: Decoding,
) -> Result<Video, MediaError> {
    if files.is_empty() {
        return Err(invalid("the video has no frame"));
    }
    let total = files.len();
    let kept = choose(total, fps)?;
    let mut pixels = 0;
    let mut first = None;
    for file in kept.iter().filter_map(|&place| files.get(place)) {
        let (width, height) = size(file, decoding).map_err(of_video)?;
        if *first.get_or_insert((width, height)) != (width, height) {
            return Err(invalid("the frames have different sizes"));
        }
        pixels += u64::from(width) * u64::from(height);
        check_pixels(Modality::Video, pixels, decoding.pixels_max)?;
    }
    let files = kept.iter().filter_map(|&place| files.get(place));
    let frames: Result<Vec<RgbImage>, MediaError> =
        files.map(|file| picture(file, decoding).map_err(of_video)).collect();
    video(frames?, kept, total, fps)
}

/// Returns the places of `wanted` of `count` frames, at most [`FRAMES_MAX`]: the first, the last,
/// and those at equal distances between them, rounded as by `linspace` of numpy. Returns all places
/// if there are no more than wanted.
pub(crate) fn sampled(count: usize, wanted: usize) -> Vec<usize> {
    let wanted = wanted.clamp(1, FRAMES_MAX);
    if count <= wanted {
        return (0..count).collect();
    }
    if wanted == 1 {
        return vec![0];
    }
    // In floats, which are sometimes less than the exact place.
    let step = (count - 1) as f64 / (wanted - 1) as f64;
    (0..wanted - 1).map(|index| (index as f64 * step) as usize).chain([count - 1]).collect()
}

type FrameResults<'a> = Box<dyn Iterator<Item = ImageResult<Frame>> + 'a>;

/// Returns the frames of an animation, as they are shown.
fn open(file: &[u8], decoding: Decoding) -> Result<FrameResults<'_>, MediaError> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(decoding.pixels_max.saturating_mul(DECODED_PIXEL_BYTES));
    let refused = |error| of_video(refused(&error));
    match format(file).map_err(of_video)? {
        ImageFormat::Gif => {
            let mut decoder = GifDecoder::new(Cursor::new(file)).map_err(refused)?;
            decoder.set_limits(limits).map_err(refused)?;
            Ok(Box::new(decoder.into_frames()))
        }
        ImageFormat::WebP => {
            let mut decoder = WebPDecoder::new(Cursor::new(file)).map_err(refused)?;
            decoder.set_limits(limits).map_err(refused)?;
            if !decoder.has_animation() {
                return Err(invalid("the file is a picture, not an animation"));
            }
            Ok(Box::new(decoder.into_frames()))
        }
        _ => Err(invalid(NO_ANIMATION)),
    }
}

/// Returns a frame over the background.
fn opaque(frame: &Frame, decoding: Decoding) -> RgbImage {
    let buffer = frame.buffer();
    let mut rgb = RgbImage::new(buffer.width(), buffer.height());
    for (to, from) in rgb.pixels_mut().zip(buffer.pixels()) {
        let [r, g, b, alpha] = from.0;
        *to = Rgb(composed([r, g, b], alpha, Some(decoding.background)));
    }
    rgb
}

fn invalid(reason: &str) -> MediaError {
    MediaError::Invalid { modality: Modality::Video, reason: reason.to_owned() }
}

/// Returns the error of a picture as that of a video.
fn of_video(error: MediaError) -> MediaError {
    match error {
        MediaError::Invalid { reason, .. } => {
            MediaError::Invalid { modality: Modality::Video, reason }
        }
        MediaError::TooLarge { size, unit, limit, .. } => {
            MediaError::TooLarge { modality: Modality::Video, size, unit, limit }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
