//! Pictures: files become RGB pixels, as vLLM and transformers make them with PIL: turned by
//! `exif_transpose`, then over a background where they are transparent, or `convert("RGB")`.

use std::io::{Cursor, ErrorKind};

use image::{
    DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, Rgb, RgbImage,
    error::ImageFormatHint, metadata::Orientation,
};
use playhouse_actors::{logic::request::media::Modality, ports::MediaError};

/// The formats that are decoded.
const FORMATS: [ImageFormat; 5] =
    [ImageFormat::Bmp, ImageFormat::Gif, ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP];
/// The same, for errors.
const DECODED: &str = "PNG, JPEG, WebP, GIF and BMP";
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
    /// How its EXIF data turns it.
    orientation: Orientation,
}

/// How transparent pixels become opaque.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transparency {
    /// They show the background, as much as they are transparent.
    Composed,
    /// All pixels of this colour show the background. PIL compares it with pixels of eight bits.
    OneColor([u8; 3]),
    /// As [`Self::Composed`]. But without a transparent colour, pixels beside the first frame have
    /// the first colour of the palette.
    Gif,
}

/// Returns the width and the height of a picture, as it is shown. It reads only the header.
///
/// # Errors
/// [`MediaError`] if the file is no picture, or has too many pixels.
pub(crate) fn size(file: &[u8], decoding: Decoding) -> Result<(u32, u32), MediaError> {
    let Opened { decoder, orientation, .. } = open(file, decoding)?;
    let (width, height) = decoder.dimensions();
    let stands = matches!(
        orientation,
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    );
    Ok(if stands { (height, width) } else { (width, height) })
}

/// Returns the most memory that decoding a picture takes. Returns zero for a file that is not
/// decoded, because its header is refused.
pub(crate) fn decoded_bytes(file: &[u8], decoding: Decoding) -> usize {
    let Ok(Opened { decoder, orientation, .. }) = open(file, decoding) else { return 0 };
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    let finished = pixels.saturating_mul(3);
    let before = match orientation {
        Orientation::NoTransforms => decoder.total_bytes(),
        // A picture that is turned is there twice.
        _ => decoder.total_bytes().max(finished),
    };
    let bytes = before.saturating_add(finished);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns the pixels of a picture; of an animation, those of its first frame.
///
/// # Errors
/// [`MediaError`] if the file is no picture, is broken, or has too many pixels.
pub(crate) fn picture(file: &[u8], decoding: Decoding) -> Result<RgbImage, MediaError> {
    let Opened { decoder, transparency, orientation } = open(file, decoding)?;
    let decoded = DynamicImage::from_decoder(decoder).map_err(|error| refused(&error))?;
    let background = decoding.background;
    let image = match transparency {
        Transparency::Composed => rgb(decoded, Some(background)),
        Transparency::OneColor(color) => without_color(rgb(decoded, None), color, background),
        Transparency::Gif => match gif_colors(file) {
            Some((fill, false)) => rgb(filled(decoded, fill), None),
            _ => rgb(decoded, Some(background)),
        },
    };
    let mut image = DynamicImage::ImageRgb8(image);
    image.apply_orientation(orientation);
    Ok(image.into_rgb8())
}

/// Returns the format of a file, by its first bytes.
pub(super) fn format(file: &[u8]) -> Result<ImageFormat, MediaError> {
    let found = image::guess_format(file).ok().filter(|format| FORMATS.contains(format));
    found.ok_or_else(|| match other_format(file) {
        Some(name) => invalid(format!("it is {name}; {DECODED} are decoded")),
        None => unknown(),
    })
}

/// Returns the name of a format that is known and not decoded, by the first bytes of a file.
fn other_format(file: &[u8]) -> Option<&'static str> {
    match file {
        [b'I', b'I', b'*', 0, ..] | [b'M', b'M', 0, b'*', ..] => Some("TIFF"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'a', b'v', b'i', b'f' | b's', ..] => Some("AVIF"),
        [_, _, _, _, b'f', b't', b'y', b'p', b'h', b'e', b'i' | b'v', ..]
        | [_, _, _, _, b'f', b't', b'y', b'p', b'm', b'i' | b's', b'f', b'1', ..] => Some("HEIC"),
        [0xff, 0x0a, ..] | [0, 0, 0, 0x0c, b'J', b'X', b'L', b' ', ..] => Some("JPEG XL"),
        [0, 0, 1, 0, ..] => Some("an icon (ICO)"),
        [b'<', b's', b'v', b'g', ..] | [b'<', b'?', b'x', b'm', b'l', ..] => Some("SVG"),
        _ => None,
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
    let mut decoder = reader.into_decoder().map_err(|error| refused(&error))?;
    let (width, height) = decoder.dimensions();
    check_pixels(Modality::Image, u64::from(width) * u64::from(height), decoding.pixels_max)?;
    if width == 0 || height == 0 {
        return Err(unknown());
    }
    // Its decoder would fill in the missing pixels.
    if format == ImageFormat::Jpeg && is_cut_jpeg(file) {
        return Err(invalid("image file is truncated"));
    }
    // Broken EXIF data turns nothing.
    let exif = decoder.exif_metadata().ok().flatten().unwrap_or_default();
    // Some programs keep the name that it has in a JPEG.
    let exif = exif.strip_prefix(b"Exif\0\0").unwrap_or(&exif);
    let orientation = Orientation::from_exif_chunk(exif).unwrap_or(Orientation::NoTransforms);
    let transparency = transparency(format, file);
    Ok(Opened { decoder: Box::new(decoder), transparency, orientation })
}

/// Rejects more pixels than accepted.
pub(super) fn check_pixels(modality: Modality, size: u64, limit: u64) -> Result<(), MediaError> {
    match size <= limit {
        true => Ok(()),
        false => Err(MediaError::TooLarge { modality, size, unit: "pixels", limit }),
    }
}

/// Returns how PIL treats the file's transparency.
fn transparency(format: ImageFormat, file: &[u8]) -> Transparency {
    let byte = |place: usize| file.get(place).copied();
    let chunk = if format == ImageFormat::Png { png_transparency(file) } else { None };
    match (format, byte(PNG_COLOR), chunk) {
        // A grey or a colour of the file. PIL does not scale it, and compares its last bytes.
        (ImageFormat::Png, Some(0), Some([high, low])) => match byte(PNG_DEPTH) {
            Some(1) if (*high, *low) != (0, 0) => Transparency::OneColor([u8::MAX; 3]),
            _ => Transparency::OneColor([*low; 3]),
        },
        (ImageFormat::Png, Some(2), Some([_, r, _, g, _, b])) => {
            Transparency::OneColor([*r, *g, *b])
        }
        (ImageFormat::Gif, ..) => Transparency::Gif,
        _ => Transparency::Composed,
    }
}

/// Returns the content of a PNG's chunk of transparency, if it has one.
fn png_transparency(file: &[u8]) -> Option<&[u8]> {
    // Chunks follow the signature. Each has a length, a name, its data and a checksum.
    let mut rest = file.get(8..)?;
    while let [a, b, c, d, n, a2, m, e, behind @ ..] = rest {
        let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        match &[*n, *a2, *m, *e] {
            b"tRNS" => return behind.get(..len),
            b"IDAT" => return None,
            _ => {}
        }
        rest = behind.get(len.saturating_add(4)..)?;
    }
    None
}

/// Returns the first colour of a GIF's first frame, and whether one of its colours is transparent.
fn gif_colors(file: &[u8]) -> Option<([u8; 3], bool)> {
    const SIGNATURE: usize = 6;
    let palette = |flags: u8, at: usize| {
        let len = if flags & 0x80 == 0 { 0 } else { 3 << (1 + (flags & 7)) };
        Some((file.get(at..at + len)?.as_chunks::<3>().0, at + len))
    };
    let screen = file.get(SIGNATURE..SIGNATURE + 7)?;
    let (mut colors, mut at) = palette(screen[4], SIGNATURE + 7)?;
    let mut transparent = false;
    loop {
        match *file.get(at..)? {
            // An extension, with blocks that tell their length. The last one is empty.
            [0x21, label, len, flags, ..] => {
                transparent |= label == 0xf9 && len == 4 && flags & 1 == 1;
                at += 2;
                loop {
                    let len = usize::from(*file.get(at)?);
                    at += 1 + len;
                    if len == 0 {
                        break;
                    }
                }
            }
            [0x2c, _, _, _, _, _, _, _, _, flags, ..] => {
                let (own, _) = palette(flags, at + 10)?;
                if !own.is_empty() {
                    colors = own;
                }
                return Some((*colors.first()?, transparent));
            }
            _ => return None,
        }
    }
}

/// Returns a picture whose pixels without a colour have that of `fill`.
fn filled(decoded: DynamicImage, fill: [u8; 3]) -> DynamicImage {
    let [r, g, b] = fill;
    let mut image = decoded.into_rgba8();
    let clear = image.pixels_mut().filter(|pixel| pixel.0[3] == 0);
    clear.for_each(|pixel| pixel.0 = [r, g, b, 0]);
    DynamicImage::ImageRgba8(image)
}

/// Returns a picture whose pixels of this colour show the background.
fn without_color(mut image: RgbImage, color: [u8; 3], background: [u8; 3]) -> RgbImage {
    let of_color = image.pixels_mut().filter(|pixel| pixel.0 == color);
    of_color.for_each(|pixel| pixel.0 = background);
    image
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
        // Greys with a transparent one among them, which PIL reads as the greys alone.
        DynamicImage::ImageLumaA16(image) if background.is_none() => {
            mapped(&image, |pixel| [u8::try_from(pixel.0[0]).unwrap_or(u8::MAX); 3])
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
