//! Pictures against PIL's results, and files that are refused.

use std::io::Cursor;

use image::{GrayAlphaImage, ImageBuffer, LumaA, Rgb, Rgba, RgbaImage};
use proptest::prelude::*;

use super::*;

const DECODING: Decoding = Decoding { pixels_max: 10_000, background: [255; 3] };

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, format).unwrap();
    file.into_inner()
}

fn pixels(file: &[u8]) -> Vec<[u8; 3]> {
    pixels_over(file, [255; 3])
}

fn pixels_over(file: &[u8], background: [u8; 3]) -> Vec<[u8; 3]> {
    let image = picture(file, Decoding { background, ..DECODING }).unwrap();
    image.pixels().map(|pixel| pixel.0).collect()
}

fn reason(file: &[u8]) -> String {
    picture(file, DECODING).unwrap_err().to_string()
}

/// Returns a PNG with this header and these scan lines. Its sums of check are right.
fn png(width: u32, height: u32, depth: u8, color: u8, more: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([depth, color, 0, 0, 0]);
    let chunks = [(&b"IHDR"[..], &header[..])];
    for (kind, data) in chunks.iter().chain(more).chain(&[(&b"IEND"[..], &b""[..])]) {
        file.extend((data.len() as u32).to_be_bytes());
        let body = [*kind, *data].concat();
        file.extend(&body);
        file.extend(crc(&body).to_be_bytes());
    }
    file
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    !crc
}

/// Returns data as one stored block of zlib.
fn stored(data: &[u8]) -> Vec<u8> {
    let len = data.len() as u16;
    let mut zlib = vec![0x78, 1, 1];
    zlib.extend(len.to_le_bytes());
    zlib.extend((!len).to_le_bytes());
    zlib.extend(data);
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in data {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    zlib.extend(((b << 16) | a).to_be_bytes());
    zlib
}

#[test]
fn every_format_comes_through() {
    let image = RgbImage::from_fn(5, 3, |x, y| Rgb([x as u8 * 50, y as u8 * 80, 7]));
    let whole: Vec<[u8; 3]> = image.pixels().map(|pixel| pixel.0).collect();
    let image = DynamicImage::ImageRgb8(image);
    for format in [ImageFormat::Png, ImageFormat::Bmp, ImageFormat::WebP, ImageFormat::Gif] {
        assert_eq!(pixels(&encoded(&image, format)), whole, "{format:?}");
    }
    let jpeg = encoded(&image, ImageFormat::Jpeg);
    assert_eq!(size(&jpeg, DECODING), Ok((5, 3)));
    assert_eq!(pixels(&jpeg).len(), 15);
}

/// The values are those of Pillow 13 and of vLLM's composition on white.
#[test]
fn other_pixels_become_rgb_as_pil_makes_them() {
    let idat = |data: &[u8]| stored(&[&[0], data].concat());
    let rgba = RgbaImage::from_pixel(1, 1, Rgba([10, 20, 30, 128]));
    let file = encoded(&rgba.into(), ImageFormat::Png);
    assert_eq!(pixels(&file), [[132, 137, 142]]);
    assert_eq!(pixels_over(&file, [9, 8, 7]), [[10, 14, 19]]);
    let greys = GrayAlphaImage::from_fn(2, 1, |x, _| LumaA([10, [0, 128][x as usize]]));
    let file = encoded(&greys.into(), ImageFormat::Png);
    assert_eq!(pixels(&file), [[255; 3], [132; 3]]);
    assert_eq!(pixels_over(&file, [9, 8, 7]), [[9, 8, 7], [10, 9, 9]]);
    let deep = idat(&[10, 7, 0, 7, 10, 7, 128, 7]);
    assert_eq!(pixels(&png(2, 1, 16, 4, &[(b"IDAT", &deep)])), [[255; 3], [132; 3]]);
    let grey: ImageBuffer<_, Vec<u16>> =
        ImageBuffer::from_fn(3, 1, |x, _| image::Luma([[5, 255, 256][x as usize]]));
    let file = encoded(&DynamicImage::ImageLuma16(grey), ImageFormat::Png);
    assert_eq!(pixels(&file), [[5; 3], [255; 3], [255; 3]]);
    let deep = idat(&[0x12, 0x34, 0xff, 0xff, 0, 0xff]);
    assert_eq!(pixels(&png(1, 1, 16, 2, &[(b"IDAT", &deep)])), [[18, 255, 0]]);
    let two_bits = idat(&[0x1b]);
    let file = png(4, 1, 2, 0, &[(b"IDAT", &two_bits)]);
    assert_eq!(pixels(&file), [[0; 3], [85; 3], [170; 3], [255; 3]]);
    let palette = [1, 2, 3, 4, 5, 6];
    let file =
        png(2, 1, 8, 3, &[(b"PLTE", &palette), (b"tRNS", &[0, 128]), (b"IDAT", &idat(&[0, 1]))]);
    assert_eq!(pixels(&file), [[255; 3], [129, 130, 130]]);
    assert_eq!(pixels_over(&file, [9, 8, 7]), [[9, 8, 7], [6; 3]]);
}

/// The values are those of vLLM's composition of the pictures of Pillow 13.
#[test]
fn a_transparent_colour_shows_the_background() {
    let idat = |data: &[u8]| stored(&[&[0], data].concat());
    let palette = [1, 2, 3, 4, 5, 6, 1, 2, 3];
    let rows = idat(&[0, 1, 2]);
    let of = |alphas: &[u8]| {
        pixels(&png(3, 1, 8, 3, &[(b"PLTE", &palette), (b"tRNS", alphas), (b"IDAT", &rows)]))
    };
    let white = [255; 3];
    assert_eq!(of(&[0]), [white, [4, 5, 6], [1, 2, 3]], "another entry has the same colour");
    assert_eq!(of(&[255, 0]), [[1, 2, 3], white, [1, 2, 3]]);
    assert_eq!(of(&[0, 0]), [white, white, [1, 2, 3]]);
    let greys = idat(&[7, 8]);
    let file = png(2, 1, 8, 0, &[(b"tRNS", &[0, 8]), (b"IDAT", &greys)]);
    assert_eq!(pixels(&file), [[7; 3], white]);
    assert_eq!(pixels_over(&file, [9, 8, 7]), [[7; 3], [9, 8, 7]]);
    let colors = idat(&[1, 2, 3, 4, 5, 6]);
    let file = png(2, 1, 8, 2, &[(b"tRNS", &[0, 1, 0, 2, 0, 3]), (b"IDAT", &colors)]);
    assert_eq!(pixels_over(&file, [9, 8, 7]), [[9, 8, 7], [4, 5, 6]]);
    // Greys of one bit, of two, and of 16. Those of two bits are compared before they are scaled.
    let bits = idat(&[0x40]);
    let of = |grey: u8| pixels(&png(2, 1, 1, 0, &[(b"tRNS", &[0, grey]), (b"IDAT", &bits)]));
    assert_eq!((of(0), of(1)), (vec![white, white], vec![[0; 3], white]));
    let file = png(4, 1, 2, 0, &[(b"tRNS", &[0, 1]), (b"IDAT", &idat(&[0x1b]))]);
    assert_eq!(pixels(&file), [[0; 3], [85; 3], [170; 3], white]);
    let deep = idat(&[0, 0, 0, 1, 2, 0]);
    let of = |grey: u8| pixels(&png(3, 1, 16, 0, &[(b"tRNS", &[0, grey]), (b"IDAT", &deep)]));
    assert_eq!(of(0), [white, [1; 3], white]);
    assert_eq!(of(1), [[0; 3], white, white]);
}

/// Returns a GIF of 3 x 1 pixels with the colours 1, 2, 3 and 4. Its one frame has a pixel in the
/// middle.
fn gif(pixel: u8, transparent: Option<u8>) -> Vec<u8> {
    let mut file = b"GIF89a\x03\0\x01\0\x81\0\0".to_vec();
    file.extend((1..=4).flat_map(|color| [color; 3]));
    if let Some(index) = transparent {
        file.extend([0x21, 0xf9, 4, 1, 0, 0, index, 0]);
    }
    file.extend(*b"\x2c\x01\0\0\0\x01\0\x01\0\0");
    // Three codes of three bits: a clear one, the pixel, and the end.
    let codes = 4 | u16::from(pixel) << 3 | 5 << 6;
    let [low, high] = codes.to_le_bytes();
    file.extend([2, 2, low, high, 0, 0x3b]);
    file
}

/// The values are those of Pillow 13 and transformers 5.24.
#[test]
fn the_first_frame_of_a_gif_may_be_smaller_than_the_picture() {
    let white = [255; 3];
    assert_eq!(pixels(&gif(2, None)), [[1; 3], [3; 3], [1; 3]], "the first colour is around it");
    assert_eq!(pixels(&gif(2, Some(3))), [white, [3; 3], white]);
    assert_eq!(pixels(&gif(2, Some(2))), [white; 3]);
    assert_eq!(pixels(&gif(2, Some(4))), [white, [3; 3], white], "beyond the palette");
    let under = [9, 8, 7];
    assert_eq!(pixels_over(&gif(2, Some(3)), under), [under, [3; 3], under]);
    assert_eq!(pixels_over(&gif(2, None), under), [[1; 3], [3; 3], [1; 3]]);
    let mut cut = gif(2, None);
    cut.truncate(20);
    assert!(picture(&cut, DECODING).is_err());
}

/// The values are those of `exif_transpose` of Pillow 13.
#[test]
fn exif_data_turns_a_picture() {
    let rows = stored(&[0, 1, 2, 3, 0, 4, 5, 6]);
    for (orientation, sides, greys) in [
        (0, (3, 2), [1, 2, 3, 4, 5, 6]),
        (1, (3, 2), [1, 2, 3, 4, 5, 6]),
        (2, (3, 2), [3, 2, 1, 6, 5, 4]),
        (3, (3, 2), [6, 5, 4, 3, 2, 1]),
        (4, (3, 2), [4, 5, 6, 1, 2, 3]),
        (5, (2, 3), [1, 4, 2, 5, 3, 6]),
        (6, (2, 3), [4, 1, 5, 2, 6, 3]),
        (7, (2, 3), [6, 3, 5, 2, 4, 1]),
        (8, (2, 3), [3, 6, 2, 5, 1, 4]),
        (9, (3, 2), [1, 2, 3, 4, 5, 6]),
    ] {
        // One entry: the tag, the type of two bytes, one value.
        let mut exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
        exif.extend([orientation, 0, 0, 0, 0, 0, 0]);
        let file = png(3, 2, 8, 0, &[(b"eXIf", &exif), (b"IDAT", &rows)]);
        assert_eq!(size(&file, DECODING), Ok(sides), "{orientation}");
        assert_eq!(picture(&file, DECODING).unwrap().dimensions(), sides, "{orientation}");
        assert_eq!(pixels(&file), greys.map(|grey| [grey; 3]), "{orientation}");
        // A picture that is turned is there twice.
        let bytes = if (2..=8).contains(&orientation) { 36 } else { 24 };
        assert_eq!(decoded_bytes(&file, DECODING), bytes, "{orientation}");
    }
    let broken = png(3, 2, 8, 0, &[(b"eXIf", b"MM"), (b"IDAT", &rows)]);
    assert_eq!(size(&broken, DECODING), Ok((3, 2)));
    let exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let named = png(3, 2, 8, 0, &[(b"eXIf", exif), (b"IDAT", &rows)]);
    assert_eq!(pixels(&named), [4, 1, 5, 2, 6, 3].map(|grey| [grey; 3]));
    // The same of a JPEG, whose segment follows its beginning.
    let image = RgbImage::from_fn(16, 8, |x, _| Rgb([if x < 8 { 0 } else { 255 }; 3]));
    let jpeg = encoded(&image.into(), ImageFormat::Jpeg);
    let exif =
        b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let turned = picture(&[&jpeg[..2], exif, &jpeg[2..]].concat(), DECODING).unwrap();
    assert_eq!(turned.dimensions(), (8, 16));
    assert!(turned.get_pixel(4, 2).0[0] < 50 && turned.get_pixel(4, 13).0[0] > 200);
}

#[test]
fn a_picture_of_too_many_pixels_is_refused_by_its_header() {
    // Its pixels are missing, and the limit is checked all the same.
    let bomb = png(10_000, 10_000, 8, 2, &[(b"IDAT", &stored(&[0]))]);
    let error = picture(&bomb, DECODING).unwrap_err();
    assert_eq!(error.to_string(), "the image has 100000000 pixels, and at most 10000 are accepted");
    assert_eq!(decoded_bytes(&bomb, DECODING), 0);
    let largest = png(u32::MAX >> 1, u32::MAX >> 1, 8, 2, &[(b"IDAT", &stored(&[0]))]);
    assert!(picture(&largest, DECODING).is_err());
}

#[test]
fn a_huge_colour_profile_is_not_unpacked() {
    // Stored blocks of zlib, whose content is larger than the limit.
    let mut zlib = vec![0x78, 1];
    for _ in 0..160 {
        zlib.extend([0, 0xff, 0xff, 0, 0]);
        zlib.extend([0; 65_535]);
    }
    let profile = [&b"x\0\0"[..], &zlib].concat();
    let file = png(1, 1, 8, 2, &[(b"iCCP", &profile), (b"IDAT", &stored(&[0, 1, 2, 3]))]);
    // The profile is refused or ignored. The pixels do not need it.
    if let Ok(image) = picture(&file, DECODING) {
        assert_eq!(image.get_pixel(0, 0).0, [1, 2, 3]);
    }
}

#[test]
fn wrong_files_are_refused_in_pils_words() {
    let unknown = "Failed to load image: cannot identify image file <_io.BytesIO object>";
    for file in [&b""[..], b"hello, this is no image", b"\x89PNG", b"%PDF-1.7", b"PK\x03\x04"] {
        assert_eq!(reason(file), unknown);
    }
    for (file, name) in [
        (&b"II*\0\x08\0\0\0"[..], "TIFF"),
        (b"\0\0\0\x20ftypavif\0\0\0\0", "AVIF"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0", "HEIC"),
        (b"<svg xmlns=", "SVG"),
    ] {
        let decoded = "PNG, JPEG, WebP, GIF and BMP are decoded";
        assert_eq!(reason(file), format!("Failed to load image: it is {name}; {decoded}"));
    }
    let noise = RgbImage::from_fn(64, 64, |x, y| Rgb([(x * 7 + y * 13) as u8; 3]));
    let image = DynamicImage::ImageRgb8(noise);
    for format in FORMATS {
        let file = encoded(&image, format);
        assert!(picture(&file, DECODING).is_ok());
        let cut = reason(&file[..file.len() / 2]);
        assert!(cut.starts_with("Failed to load image: "), "{format:?}: {cut}");
    }
    let jpeg = encoded(&image, ImageFormat::Jpeg);
    assert_eq!(reason(&jpeg[..jpeg.len() - 2]), "Failed to load image: image file is truncated");
    // A segment with a whole picture, and a film behind the picture.
    let segment = [&[0xff, 0xe1][..], &(jpeg.len() as u16 + 2).to_be_bytes(), &jpeg].concat();
    let with_thumbnail = [&jpeg[..2], &segment, &jpeg[2..]].concat();
    assert!(picture(&[&with_thumbnail[..], &[0xff, JPEG_SCAN, 7]].concat(), DECODING).is_ok());
    let cut = &with_thumbnail[..with_thumbnail.len() - 9];
    assert_eq!(reason(cut), "Failed to load image: image file is truncated");
    let png = encoded(&image, ImageFormat::Png);
    assert_eq!(reason(&png[..png.len() / 2]), "Failed to load image: image file is truncated");
}

#[test]
fn the_memory_of_decoding_is_known_before() {
    let rgba = RgbaImage::new(10, 10);
    assert_eq!(decoded_bytes(&encoded(&rgba.into(), ImageFormat::Png), DECODING), 700);
    assert_eq!(decoded_bytes(b"no image", DECODING), 0);
}

proptest! {
    /// Damaged files are refused or decoded, and nothing panics.
    #[test]
    fn damaged_files_do_no_harm(
        format in 0..FORMATS.len(),
        changes in prop::collection::vec((0..600_usize, any::<u8>()), 0..6),
        len in 0..700_usize,
    ) {
        let image = RgbImage::from_fn(9, 7, |x, y| Rgb([x as u8 * 20, y as u8 * 30, 9]));
        let mut file = encoded(&DynamicImage::ImageRgb8(image), FORMATS[format]);
        for (place, value) in changes {
            let place = place % file.len();
            file[place] = value;
        }
        file.truncate(len);
        let _ = picture(&file, DECODING);
        let _ = decoded_bytes(&file, DECODING);
        let all = |total, _| Ok((0..total).collect());
        let _ = super::super::frames::animation(&file, &all, DECODING);
    }
}
