//! Pictures: files become RGB pixels, as `Image.open(…).convert("RGB")` of PIL makes them. The
//! orientation in a JPEG's EXIF data is not applied, because PIL does not apply it either.

use std::io::{Cursor, ErrorKind};

use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, Rgb, RgbImage,
    error::ImageFormatHint,
};
use playhouse_actors::{logic::request::media::Modality, ports::MediaError};

use super::jpeg;

/// The formats that are decoded.
const FORMATS: [ImageFormat; 5] =
    [ImageFormat::Bmp, ImageFormat::Gif, ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP];
/// Bytes of a pixel while it is decoded: four channels of 16 bits, and the finished pixel.
pub(super) const DECODED_PIXEL_BYTES: u64 = 8 + 3;
/// Memory for the parts of a file that are no pixels, for example its colour profile.
const OTHER_BYTES: u64 = 8 << 20;
/// The markers of a JPEG at the start of its pixels and at its end.
const JPEG_SCAN: u8 = 0xda;
const JPEG_END: u8 = 0xd9;
/// The bytes of a PNG that tell its bit depth and its type of colour.
const PNG_DEPTH: usize = 24;
const PNG_COLOR: usize = 25;

/// How pictures are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decoding {
    /// Largest number of pixels.
    pub(crate) pixels_max: u64,
    /// The colour behind transparent pixels.
    pub(crate) background: [u8; 3],
}

/// A picture whose header was read.
struct Opened<'a> {
    decoder: Box<dyn ImageDecoder + 'a>,
    transparency: Transparency,
}

/// How transparent pixels become opaque.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transparency {
    /// They show their own colour.
    None,
    /// They show the background, as much as they are transparent.
    Composed,
    /// They have one colour, and all pixels of this colour become white. PIL keeps this colour
    /// beside the pixels, and transformers reads it (`convert_to_rgb`).
    OneColor,
}

/// Returns the width and the height of a picture. It reads only the header.
///
/// # Errors
/// [`MediaError`] if the file is no picture, or has too many pixels.
pub(crate) fn size(file: &[u8], decoding: Decoding) -> Result<(u32, u32), MediaError> {
    match jpeg_header(file, decoding)? {
        Some(header) => Ok(header.size),
        None => Ok(open(file, decoding)?.decoder.dimensions()),
    }
}

/// Returns the most memory that decoding a picture takes. Returns zero for a file that is not
/// decoded, because its header is refused.
pub(crate) fn decoded_bytes(file: &[u8], decoding: Decoding) -> usize {
    let Ok(header) = jpeg_header(file, decoding) else { return 0 };
    let of_jpeg = header.map_or(0, |header| header.working_bytes);
    let Ok(Opened { decoder, .. }) = open(file, decoding) else { return of_jpeg };
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    let bytes = decoder.total_bytes().saturating_add(pixels.saturating_mul(3));
    usize::try_from(bytes).unwrap_or(usize::MAX).max(of_jpeg)
}

/// Returns the pixels of a picture; of an animation, those of its first frame.
///
/// # Errors
/// [`MediaError`] if the file is no picture, is broken, or has too many pixels.
pub(crate) fn picture(file: &[u8], decoding: Decoding) -> Result<RgbImage, MediaError> {
    if jpeg_header(file, decoding)?.is_some()
        && let Some(jpeg::Picture { width, height, rgb }) = jpeg::decoded(file)
        && let Some(image) = RgbImage::from_raw(width, height, rgb)
    {
        return Ok(image);
    }
    let Opened { decoder, transparency } = open(file, decoding)?;
    let decoded = DynamicImage::from_decoder(decoder).map_err(|error| refused(&error))?;
    Ok(match transparency {
        Transparency::Composed => rgb(decoded, Some(decoding.background)),
        Transparency::None => rgb(decoded, None),
        Transparency::OneColor => {
            let color = transparent_color(&decoded);
            let mut image = rgb(decoded, None);
            let is_of_color = |pixel: &&mut Rgb<u8>| Some(pixel.0) == color;
            image.pixels_mut().filter(is_of_color).for_each(|pixel| pixel.0 = [u8::MAX; 3]);
            image
        }
    })
}

/// Returns the format of a file, by its first bytes.
pub(super) fn format(file: &[u8]) -> Result<ImageFormat, MediaError> {
    let found = image::guess_format(file).ok().filter(|format| FORMATS.contains(format));
    found.ok_or_else(unknown)
}

/// Reads the header of a JPEG. `None` for other formats, and for a JPEG that the decoder here does
/// not read.
fn jpeg_header(file: &[u8], decoding: Decoding) -> Result<Option<jpeg::Header>, MediaError> {
    if format(file)? != ImageFormat::Jpeg {
        return Ok(None);
    }
    let Some(header) = jpeg::header(file) else { return Ok(None) };
    let (width, height) = header.size;
    check_pixels(Modality::Image, u64::from(width) * u64::from(height), decoding.pixels_max)?;
    match is_cut_jpeg(file) {
        true => Err(invalid("image file is truncated")),
        false => Ok(Some(header)),
    }
}

/// Reads the header. Nothing is allocated for pixels.
fn open(file: &[u8], decoding: Decoding) -> Result<Opened<'_>, MediaError> {
    let format = format(file)?;
    let mut reader = ImageReader::with_format(Cursor::new(file), format);
    let mut limits = Limits::default();
    let pixel_bytes = match format {
        // Its decoder counts all but the pixels. A small file may have a huge colour profile.
        ImageFormat::Png => 0,
        _ => decoding.pixels_max.saturating_mul(DECODED_PIXEL_BYTES),
    };
    limits.max_alloc = Some(pixel_bytes.saturating_add(OTHER_BYTES));
    reader.limits(limits);
    let decoder = reader.into_decoder().map_err(|error| refused(&error))?;
    let (width, height) = decoder.dimensions();
    check_pixels(Modality::Image, u64::from(width) * u64::from(height), decoding.pixels_max)?;
    if width == 0 || height == 0 {
        return Err(unknown());
    }
    // Its decoder would fill in the missing pixels.
    if format == ImageFormat::Jpeg && is_cut_jpeg(file) {
        return Err(invalid("image file is truncated"));
    }
    Ok(Opened { decoder: Box::new(decoder), transparency: transparency(format, file) })
}

/// Rejects more pixels than accepted.
pub(super) fn check_pixels(modality: Modality, size: u64, limit: u64) -> Result<(), MediaError> {
    match size <= limit {
        true => Ok(()),
        false => Err(MediaError::TooLarge { modality, size, unit: "pixels", limit }),
    }
}

/// Returns how PIL and transformers treat the file's transparency. PIL drops that of a palette with
/// several transparent colours.
fn transparency(format: ImageFormat, file: &[u8]) -> Transparency {
    let byte = |place: usize| file.get(place).copied();
    match (format, byte(PNG_COLOR), byte(PNG_DEPTH)) {
        (ImageFormat::Png, Some(6), _) | (ImageFormat::Png, Some(4), Some(16)) => {
            Transparency::Composed
        }
        // A grey or a colour of the file. PIL does not scale those of other depths.
        (ImageFormat::Png, Some(0 | 2), Some(8)) => Transparency::OneColor,
        (ImageFormat::Png, Some(3), _) if has_one_transparent_color(file) => Transparency::OneColor,
        (ImageFormat::Png, ..) => Transparency::None,
        (ImageFormat::Gif, ..) => Transparency::OneColor,
        _ => Transparency::Composed,
    }
}

/// Returns whether one colour of a PNG's palette is transparent, and all others are opaque.
fn has_one_transparent_color(file: &[u8]) -> bool {
    // Chunks follow the signature. Each has a length, a name, its data and a checksum.
    let mut rest = file.get(8..).unwrap_or_default();
    while let [a, b, c, d, n, a2, m, e, behind @ ..] = rest {
        let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        match &[*n, *a2, *m, *e] {
            b"tRNS" => {
                let alphas = behind.get(..len).unwrap_or_default();
                let is_plain = alphas.iter().all(|alpha| matches!(*alpha, 0 | u8::MAX));
                return is_plain && alphas.iter().filter(|alpha| **alpha == 0).count() == 1;
            }
            b"IDAT" => return false,
            _ => {}
        }
        rest = behind.get(len.saturating_add(4)..).unwrap_or_default();
    }
    false
}

/// Returns the colour of the transparent pixels.
fn transparent_color(decoded: &DynamicImage) -> Option<[u8; 3]> {
    match decoded {
        DynamicImage::ImageLumaA8(image) => {
            image.pixels().find(|pixel| pixel.0[1] == 0).map(|pixel| [pixel.0[0]; 3])
        }
        DynamicImage::ImageRgba8(image) => {
            let clear = image.pixels().find(|pixel| pixel.0[3] == 0);
            clear.map(|pixel| [pixel.0[0], pixel.0[1], pixel.0[2]])
        }
        _ => None,
    }
}

/// Returns whether the end of a JPEG is missing. The head consists of segments with lengths. A
/// smaller JPEG within one of them has an end of its own.
fn is_cut_jpeg(file: &[u8]) -> bool {
    let mut rest = file;
    loop {
        rest = match rest {
            [0xff, 0xff, ..] => &rest[1..],
            // Markers without a length, for example that of the beginning.
            [0xff, 0x01 | 0xd0..=0xd8, behind @ ..] => behind,
            [0xff, JPEG_SCAN, pixels @ ..] => {
                return !pixels.windows(2).any(|bytes| bytes == [0xff, JPEG_END]);
            }
            [0xff, _, high, low, ..] => {
                let len = usize::from(u16::from_be_bytes([*high, *low]));
                match rest.get(2 + len..) {
                    Some(behind) => behind,
                    None => return true,
                }
            }
            // The decoder reports what is wrong.
            [_, _, ..] => return false,
            _ => return true,
        };
    }
}

/// Returns pixels of three bytes. Of 16 bits the upper eight stay. Greys of 16 bits above 255 are
/// white, as PIL makes them.
fn rgb(decoded: DynamicImage, background: Option<[u8; 3]>) -> RgbImage {
    let high = |channel: u16| (channel >> 8) as u8;
    match decoded {
        DynamicImage::ImageRgb8(image) => image,
        DynamicImage::ImageLuma8(image) => mapped(&image, |grey| [grey.0[0]; 3]),
        DynamicImage::ImageLumaA8(image) => mapped(&image, |pixel| {
            let [grey, alpha] = pixel.0;
            composed([grey; 3], alpha, background)
        }),
        DynamicImage::ImageRgba8(image) => mapped(&image, |pixel| {
            let [r, g, b, alpha] = pixel.0;
            composed([r, g, b], alpha, background)
        }),
        DynamicImage::ImageLuma16(image) => {
            mapped(&image, |grey| [u8::try_from(grey.0[0]).unwrap_or(u8::MAX); 3])
        }
        DynamicImage::ImageLumaA16(image) => mapped(&image, |pixel| {
            let [grey, alpha] = pixel.0.map(high);
            composed([grey; 3], alpha, background)
        }),
        DynamicImage::ImageRgb16(image) => mapped(&image, |pixel| pixel.0.map(high)),
        DynamicImage::ImageRgba16(image) => mapped(&image, |pixel| {
            let [r, g, b, alpha] = pixel.0.map(high);
            composed([r, g, b], alpha, background)
        }),
        other => other.to_rgb8(),
    }
}

/// Returns the picture of `image` with each pixel as `map` makes it.
fn mapped<P, S>(image: &image::ImageBuffer<P, S>, map: impl Fn(&P) -> [u8; 3]) -> RgbImage
where
    P: image::Pixel,
    S: std::ops::Deref<Target = [P::Subpixel]>,
{
    let mut rgb = RgbImage::new(image.width(), image.height());
    rgb.pixels_mut().zip(image.pixels()).for_each(|(to, from)| *to = Rgb(map(from)));
    rgb
}

/// Returns the colour of a pixel over a background, rounded as PIL's `paste` does. Without a
/// background, the pixel is opaque.
pub(super) fn composed(color: [u8; 3], alpha: u8, background: Option<[u8; 3]>) -> [u8; 3] {
    let Some(background) = background.filter(|_| alpha < u8::MAX) else { return color };
    let alpha = u32::from(alpha);
    std::array::from_fn(|channel| {
        let (over, under) = (u32::from(color[channel]), u32::from(background[channel]));
        let sum = over * alpha + under * (255 - alpha) + 128;
        // Division by 255, rounded to the nearest.
        (((sum >> 8) + sum) >> 8) as u8
    })
}

/// Returns the error of a file that no decoder knows, in PIL's words.
fn unknown() -> MediaError {
    invalid("cannot identify image file <_io.BytesIO object>")
}

fn invalid(reason: impl Into<String>) -> MediaError {
    MediaError::Invalid { modality: Modality::Image, reason: reason.into() }
}

/// Returns the client's error for a decoder's.
pub(super) fn refused(error: &ImageError) -> MediaError {
    match error {
        ImageError::IoError(io) if io.kind() == ErrorKind::UnexpectedEof => {
            invalid("image file is truncated")
        }
        ImageError::Decoding(decoding) if is_cut(decoding) => invalid("image file is truncated"),
        ImageError::Decoding(_) | ImageError::IoError(_) => {
            invalid(format!("broken data stream when reading image file: {error}"))
        }
        ImageError::Unsupported(unsupported) => match unsupported.format_hint() {
            ImageFormatHint::Unknown => unknown(),
            _ => invalid(format!("{unsupported}")),
        },
        ImageError::Limits(limits) => invalid(format!("{limits}")),
        _ => invalid(error.to_string()),
    }
}

/// Returns whether a decoder ran out of bytes.
fn is_cut(error: &image::error::DecodingError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == ErrorKind::UnexpectedEof) {
            return true;
        }
        cause = error.source();
    }
    let text = error.to_string();
    ["unexpected end of file", "unexpected EOF", "UnexpectedEof", "No more bytes"]
        .iter()
        .any(|words| text.to_lowercase().contains(&words.to_lowercase()))
}

#[cfg(test)]
mod tests;
