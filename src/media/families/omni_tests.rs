//! Pixels, spectrograms and counts are those of transformers. `tests/fidelity/make_omni.py`
//! recorded them.

use std::path::PathBuf;
use std::sync::Arc;

use image::Rgb;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::media::audio::decode;
use crate::media::families::processor_for;

const MODELS: [&str; 4] =
    ["qwen2_5_omni", "qwen2_5_omni-thinker", "qwen3_omni", "qwen3_omni-thinker"];

fn is_later(model: &str) -> bool {
    model.starts_with("qwen3")
}

#[derive(Deserialize)]
struct Golden {
    images: Vec<Frames>,
    sounds: Vec<Sound>,
}

#[derive(Deserialize)]
struct Videos {
    videos: Vec<Frames>,
    prompts: Vec<Prompt>,
    /// The settings of the processor.
    #[serde(default)]
    kwargs: Map<String, Value>,
}

/// An image, or the frames of a video.
#[derive(Deserialize)]
struct Frames {
    frames: Option<u32>,
    height: u32,
    width: u32,
    fps: Option<f64>,
    shape: Vec<usize>,
    pixels: String,
    grid: [u32; 3],
    num_embeds: usize,
}

#[derive(Deserialize)]
struct Sound {
    /// Sounds of `speech`, one after the other.
    parts: Vec<String>,
    /// The samples of them that are taken.
    count: usize,
    shapes: Vec<Vec<usize>>,
    mels: Vec<Vec<f32>>,
    num_embeds: usize,
}

#[derive(Deserialize)]
struct Prompt {
    token_ids: Vec<u32>,
    positions: Vec<[u32; 3]>,
}

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity")
}

fn read<T: serde::de::DeserializeOwned>(model: &str, file: &str) -> T {
    let golden = std::fs::read(tests().join("omni").join(model).join(file)).unwrap();
    serde_json::from_slice(&golden).unwrap()
}

fn processor(model: &str) -> Arc<dyn FamilyProcessor> {
    processor_for(&tests().join("omni").join(model), |_| Vec::new()).unwrap().unwrap()
}

/// Draws an image by the formula of `make_vision.py`.
fn drawn(height: u32, width: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let channel = |c: u32| ((x * (c + 2) + y * 5 + x * y / 7 * (3 - c) + c * 40) % 256) as u8;
        Rgb([channel(0), channel(1), channel(2)])
    })
}

/// Draws a video by the same formula.
fn video(recorded: &Frames) -> Video {
    let &Frames { frames, height, width, fps, .. } = recorded;
    let count = frames.unwrap();
    let wide = drawn(height, width + 10 * count);
    let frame = |at| image::imageops::crop_imm(&wide, 10 * at, 0, width, height).to_image();
    let total = count as usize;
    Video { frames: (0..count).map(frame).collect(), indices: (0..total).collect(), total, fps }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_frames(processor: &dyn FamilyProcessor, media: &ProcessedMedia, recorded: &Frames) {
    // An image is recorded without the axis of frames.
    let num_frames = recorded.frames.map_or(&[1][..], |_| &[]);
    assert_eq!(media.tensors[0].shape, [num_frames, &recorded.shape].concat());
    assert_eq!(hex(&media.tensors[0].data), recorded.pixels);
    assert_eq!((media.grid, media.num_embeds), (Some(recorded.grid), recorded.num_embeds));
    let tokens = processor.tokens(media);
    assert_eq!(tokens.len(), media.num_embeds);
    assert!(tokens.iter().all(|token| [*token] == *processor.placeholder_tokens(media.modality)));
}

#[test]
fn images_are_those_of_transformers() {
    for model in MODELS {
        let processor = processor(model);
        for recorded in read::<Golden>(model, "golden.json").images {
            let image = drawn(recorded.height, recorded.width);
            let media = processor.image(&image, &Map::new()).unwrap();
            check_frames(&*processor, &media, &recorded);
        }
    }
}

#[test]
fn sounds_are_those_of_transformers() {
    for model in MODELS {
        let processor = processor(model);
        for sound in read::<Golden>(model, "golden.json").sounds {
            let read = |name: &String| {
                let file = std::fs::read(tests().join(format!("speech/{name}.wav"))).unwrap();
                decode(Arc::from(file), 16_000, 60).unwrap()
            };
            let samples: Vec<f32> = sound.parts.iter().flat_map(read).take(sound.count).collect();
            let media = processor.audio(&samples, &Map::new()).unwrap();
            assert_eq!(media.num_embeds, sound.num_embeds, "{model}: {:?}", sound.parts);
            assert!(media.num_embeds <= processor.max_item_embeds());
            assert_eq!(media.grid, None);
            let shapes: Vec<Vec<usize>> = media.tensors.iter().map(|it| it.shape.clone()).collect();
            assert_eq!(shapes, sound.shapes, "{model}: {:?}", sound.parts);
            for (tensor, expected) in media.tensors.iter().zip(&sound.mels) {
                let values = tensor.data.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x));
                let values: Vec<f32> = values.collect();
                assert_eq!(values.len(), expected.len());
                for (got, expected) in values.iter().zip(expected) {
                    assert!((got - expected).abs() <= 1e-4, "{model}: {got}, not {expected}");
                }
            }
            let tokens = processor.tokens(&media);
            assert_eq!(tokens, vec![440; sound.num_embeds]);
        }
        // One frame is no pair, and half of a transform is mirrored.
        let short = if is_later(model) { 200 } else { 320 };
        assert!(processor.audio(&vec![0.1; short], &Map::new()).is_err(), "{model}");
        assert!(processor.audio(&vec![0.1; short + 1], &Map::new()).is_ok(), "{model}");
    }
}

/// The positions are those of the model, 25 or 13 a second. A second of each video has two frames
/// for Qwen2.5-Omni, and one for Qwen3-Omni.
#[test]
fn videos_are_those_of_transformers() {
    for model in MODELS {
        let processor = processor(model);
        let per_second = if model == "qwen3_omni" { 13 } else { 25 };
        let Videos { videos, prompts, kwargs: own } = read(model, "videos.json");
        for (recorded, prompt) in videos.iter().zip(prompts) {
            let video = video(recorded);
            let media = processor.video(&video, &own).unwrap();
            check_frames(&*processor, &media, recorded);
            let token = processor.placeholder_tokens(Modality::Video)[0];
            let of_tokens = prompt.token_ids.iter().zip(&prompt.positions);
            let times = of_tokens.filter(|(id, _)| **id == token).map(|(_, [time, ..])| *time);
            let mut times: Vec<u32> = times.collect();
            times.dedup();
            let relative: Vec<usize> = times.iter().map(|it| (it - times[0]) as usize).collect();
            assert_eq!(media.tensors[1].shape, relative, "{model}");
            let kwargs = |value: Value| {
                let mut kwargs = own.clone();
                kwargs.extend(value.as_object().unwrap().clone());
                kwargs
            };
            let media = processor.video(&video, &kwargs(json!({ "fps": 4.0 }))).unwrap();
            let half: Vec<usize> =
                (0..relative.len()).map(|frame| frame * per_second / 2).collect();
            assert_eq!(media.tensors[1].shape, half, "{model}");
            if relative.len() > 1 {
                let slow = processor.video(&video, &kwargs(json!({ "fps": 1e-9 })));
                let why = slow.unwrap_err().to_string();
                assert!(why.contains("too far from each other"), "{why}");
            }
            let heard = processor.video(&video, &kwargs(json!({ "use_audio_in_video": true })));
            let why = heard.unwrap_err().to_string();
            assert!(why.contains("`use_audio_in_video` is true; expected false"), "{why}");
        }
    }
}

#[test]
fn texts_of_places_are_those_of_the_tokenizer() {
    let processor = processor(MODELS[0]);
    let all = [Modality::Image, Modality::Video, Modality::Audio];
    assert_eq!(processor.modalities(), all);
    let texts = all.map(|modality| processor.numbered_placeholder(modality, 1));
    assert_eq!(
        texts,
        [
            "<|vision_bos|><|IMAGE|><|vision_eos|>",
            "<|vision_bos|><|VIDEO|><|vision_eos|>",
            "Audio 2: <|audio_bos|><|AUDIO|><|audio_eos|>"
        ]
    );
    let tokens = all.map(|modality| processor.placeholder_tokens(modality).to_vec());
    assert_eq!(tokens, [vec![443], vec![444], vec![440]]);
    assert!(!processor.is_placeholder(441) && processor.is_placeholder(440));
    let later = self::processor(MODELS[2]);
    assert_eq!(later.modalities(), all);
    assert_eq!((processor.sound_seconds(), later.sound_seconds()), (None, Some(2_400)));
    let texts = all.map(|modality| later.numbered_placeholder(modality, 1));
    assert_eq!(
        texts,
        [
            "<|vision_start|><|image_pad|><|vision_end|>",
            "<|vision_start|><|video_pad|><|vision_end|>",
            "<|audio_start|><|audio_pad|><|audio_end|>"
        ]
    );
}

/// HF `Qwen3OmniMoeProcessor` gives the limits of videos, whatever the files of the model say.
#[test]
fn small_videos_grow_for_qwen3_omni() {
    let processor = processor("qwen3_omni");
    let Videos { videos, .. } = read("qwen3_omni", "videos.json");
    let media = processor.video(&video(&videos[0]), &Map::new()).unwrap();
    // A frame has at least 128 squares of 32 pixels.
    assert_eq!(media.tensors[0].shape, [4, 384, 352, 3]);
}
