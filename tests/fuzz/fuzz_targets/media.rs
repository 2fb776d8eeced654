//! Files of pictures, videos, sounds and embeddings: each is decoded or refused in bounded memory.
//!
//! An input is a byte that picks the reader (`p`, `v`, `l`, `s`, `e`, `k`), and the file.
#![no_main]

// The modules are included. A dependency on the crate would build and instrument its tensors
// without need.
#[allow(dead_code, unused_imports, unreachable_pub, reason = "not all of it is used here")]
#[path = "../../../src/media/audio/mod.rs"]
mod audio;
#[allow(dead_code, unreachable_pub, reason = "not all of it is used here")]
#[path = "../../../src/media/decode.rs"]
mod decode;
#[allow(dead_code, unreachable_pub, reason = "not all of it is used here")]
#[path = "../../../src/media/embeds/file.rs"]
mod file;
#[allow(dead_code, unreachable_pub, reason = "not all of it is used here")]
#[path = "../../../src/media/frames.rs"]
mod frames;
#[allow(dead_code, unreachable_pub, reason = "not all of it is used here")]
#[path = "../../../src/torch_file/mod.rs"]
mod torch_file;

use std::sync::Arc;

use decode::Decoding;
use file::Elements;
use libfuzzer_sys::fuzz_target;

/// Small bounds, so that a run has many inputs.
const DECODING: Decoding = Decoding { pixels_max: 1 << 20, background: [255; 3] };
const RATE: u32 = 16_000;
const SECONDS_MAX: u32 = 30;

fuzz_target!(|data: &[u8]| {
    let Some((kind, file)) = data.split_first() else { return };
    let eight = |total, _| Ok(frames::sampled(total, 8));
    match kind {
        b'p' => {
            let announced = decode::decoded_bytes(file, DECODING);
            if let Ok(picture) = decode::picture(file, DECODING) {
                let pixels = u64::from(picture.width()) * u64::from(picture.height());
                assert!((1..=DECODING.pixels_max).contains(&pixels));
                assert!(announced >= picture.as_raw().len(), "less was leased than was decoded");
            }
        }
        b'v' => {
            if let Ok(video) = frames::animation(file, &eight, DECODING) {
                let frames = video.frames.iter();
                let pixels: usize = frames.map(|frame| frame.as_raw().len() / 3).sum();
                assert!(video.frames.len() <= 8 && pixels as u64 <= DECODING.pixels_max);
            }
        }
        b'l' => {
            let files: Vec<Arc<[u8]>> = file.split(|byte| *byte == b'|').map(Arc::from).collect();
            let _ = frames::pictures(&files, &eight, None, DECODING);
        }
        b's' => {
            let file: Arc<[u8]> = file.into();
            let leased = audio::decoded_bytes(&file, RATE);
            if let Ok(samples) = audio::decode(file, RATE, SECONDS_MAX) {
                assert!(4 * samples.len() <= leased, "less was leased than was decoded");
                assert!(samples.len() <= (SECONDS_MAX * RATE) as usize);
            }
        }
        b'e' => {
            if let Ok(tensor) = file::tensor(file) {
                let len = match &tensor.elements {
                    Elements::Floats(values) => values.len(),
                    Elements::Ints(values) => values.len(),
                };
                assert_eq!(tensor.shape.iter().product::<usize>(), len);
                assert!(len <= file.len(), "more numbers than bytes");
            }
        }
        b'k' => {
            let _ = torch_file::pickle::tensor(file);
            let _ = torch_file::pickle::tensors(file);
        }
        _ => {}
    }
});
