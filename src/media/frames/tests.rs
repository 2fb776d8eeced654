//! Frames of animations and of lists.

use image::{Delay, Rgba, RgbaImage, codecs::gif::GifEncoder};

use super::*;

const DECODING: Decoding = Decoding { pixels_max: 10_000, background: [255; 3] };

/// Returns an animation whose frames have the greys `greys`.
fn gif(greys: impl IntoIterator<Item = u8>, side: u32) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = GifEncoder::new(&mut file);
    for grey in greys {
        let frame = RgbaImage::from_pixel(side, side, Rgba([grey, grey, grey, 255]));
        let delay = Delay::from_numer_denom_ms(10, 1);
        encoder.encode_frame(Frame::from_parts(frame, 0, 0, delay)).unwrap();
    }
    drop(encoder);
    file
}

fn greys(video: &Video) -> Vec<u8> {
    video.frames.iter().map(|frame| frame.get_pixel(0, 0).0[0]).collect()
}

fn some(wanted: usize) -> impl Fn(usize, Option<f64>) -> Result<Vec<usize>, MediaError> {
    move |total, _| Ok(sampled(total, wanted))
}

#[test]
fn frames_are_taken_from_the_first_to_the_last() {
    let file = gif((0..10).map(|index| index * 20), 4);
    let taken = |wanted| greys(&animation(&file, &some(wanted), DECODING).unwrap());
    assert_eq!(taken(4), [0, 60, 120, 180]);
    assert_eq!(taken(1), [0]);
    assert_eq!(taken(99).len(), 10);
    let list: Vec<Arc<[u8]>> = (0..3).map(|index| gif([index * 50], 4).into()).collect();
    assert_eq!(greys(&pictures(&list, &some(2), None, DECODING).unwrap()), [0, 100]);
    let video = animation(&file, &|_, _| Ok(vec![1, 4, 4]), DECODING).unwrap();
    assert_eq!((greys(&video), video.total), (vec![20, 80, 80], 10));
    // Each frame is shown for a hundredth of a second.
    assert!((video.fps.unwrap() - 100.0).abs() < 1e-6, "{:?}", video.fps);
}

/// The places are those of `numpy.linspace(0, 122, 15, dtype=int)`.
#[test]
fn places_are_those_of_numpy() {
    let places = [0, 8, 17, 26, 34, 43, 52, 60, 69, 78, 87, 95, 104, 113, 122];
    assert_eq!(sampled(123, 15), places);
    assert_eq!(sampled(10, 4), [0, 3, 6, 9]);
    assert_eq!(sampled(3, 2), [0, 2]);
}

#[test]
fn too_many_pixels_in_all_are_refused() {
    let file = gif(0..5, 60);
    let error = animation(&file, &some(5), DECODING).unwrap_err();
    assert_eq!(error.to_string(), "the video has 18000 pixels, and at most 10000 are accepted");
    assert!(animation(&file, &some(2), DECODING).is_ok());
    let decoding = Decoding { pixels_max: 400, ..DECODING };
    let long = gif((0..40).map(|_| 9), 20);
    assert!(animation(&long, &some(1), decoding).unwrap_err().to_string().contains("pixels"));
}

#[test]
fn other_files_are_no_videos() {
    for file in [&b"\0\0\0\x18ftypmp42"[..], b"", b"GIF89a"] {
        let error = animation(file, &some(4), DECODING).unwrap_err();
        assert!(error.to_string().starts_with("Failed to load video"), "{error}");
    }
    let film = animation(b"\0\0\0\x18ftypmp42", &some(4), DECODING).unwrap_err().to_string();
    assert!(film.contains("animated GIF and WebP files, and lists of pictures"), "{film}");
    let list = [gif([1], 4).into(), gif([1], 5).into()];
    assert!(pictures(&list, &some(4), None, DECODING).is_err());
    assert!(pictures(&[], &some(4), None, DECODING).is_err());
}
