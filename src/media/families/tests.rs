//! The processors against transformers, pixel by pixel: on the images that
//! `tests/fidelity/make_vision.py`, `make_gemma4.py`, `make_aria.py`, `make_dots_ocr.py` and
//! `make_molmo2.py` drew and recorded. Against Pillow on those of `make_kimi.py`,
//! `make_internvl_chat.py`, `make_phi3_v.py` and `make_deepseek_ocr.py`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::{Rgb, RgbImage};
use playhouse_actors::{
    logic::request::media::{MediaTensor, Modality},
    ports::ReadyMedia,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::processor_for;
use crate::media::expand::expanded;
use crate::media::frames::Video;
use crate::media::processor::FamilyProcessor;

mod settings;

#[derive(Deserialize)]
struct Golden {
    images: Vec<Recorded>,
    /// The tokens of some texts.
    texts: BTreeMap<String, Vec<u32>>,
    #[serde(default)]
    joined: Vec<Joined>,
}

/// A text with images whose tokens join those beside them.
#[derive(Deserialize)]
struct Joined {
    token_ids: Vec<u32>,
    expanded: Vec<u32>,
}

impl Golden {
    fn read(model: &Path) -> Self {
        let golden = std::fs::read(model.join("golden.json")).unwrap();
        serde_json::from_slice(&golden).unwrap()
    }

    fn processor(&self, model: &Path) -> Arc<dyn FamilyProcessor> {
        let texts = self.texts.clone();
        processor_for(model, move |text| texts[text].clone()).unwrap().unwrap()
    }
}

#[derive(Deserialize)]
struct Recorded {
    height: u32,
    width: u32,
    shape: Vec<usize>,
    pixels: String,
    grid: Option<[u32; 3]>,
    tiles: Option<Vec<usize>>,
    /// The whole image in the size of a tile, scaled.
    #[serde(default)]
    whole: Vec<f32>,
    /// Tiles of another size than the first tensor.
    #[serde(default)]
    local: Option<Local>,
    num_embeds: usize,
    tokens: Vec<u32>,
}

#[derive(Deserialize)]
struct Local {
    shape: Vec<usize>,
    pixels: String,
}

fn models() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/vision");
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Draws an image by the formula of `make_vision.py`.
fn drawn(height: u32, width: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let channel = |c: u32| ((x * (c + 2) + y * 5 + x * y / 7 * (3 - c) + c * 40) % 256) as u8;
        Rgb([channel(0), channel(1), channel(2)])
    })
}

#[test]
fn processed_images_are_those_of_transformers() {
    for model in models() {
        let golden = Golden::read(&model);
        let processor = golden.processor(&model);
        let placeholder = processor.placeholder_tokens(Modality::Image)[0];
        for recorded in golden.images {
            let name = format!("{} of {} x {}", model.display(), recorded.height, recorded.width);
            let image = drawn(recorded.height, recorded.width);
            let item = processor.image(&image, &Map::new()).unwrap();
            assert_eq!(item.tensors[0].shape, recorded.shape, "{name}");
            let hex: String =
                item.tensors[0].data.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(hex == recorded.pixels, "{name}: other pixels");
            assert_eq!(
                (item.num_embeds, item.grid),
                (recorded.num_embeds, recorded.grid),
                "{name}"
            );
            assert!(item.num_embeds <= processor.max_item_embeds(), "{name}");
            if let Some(tiles) = recorded.tiles {
                assert_eq!(item.tensors[1].shape, tiles, "{name}");
            }
            if !recorded.whole.is_empty() {
                let values = item.tensors[2].data.as_chunks::<4>().0.iter();
                let values = values.map(|value| f32::from_le_bytes(*value));
                assert_eq!(values.len(), recorded.whole.len(), "{name}");
                for (found, expected) in values.zip(&recorded.whole) {
                    assert!((found - expected).abs() <= 1e-5, "{name}: {found}, not {expected}");
                }
            }
            if let Some(local) = recorded.local {
                assert_eq!(item.tensors[2].shape, local.shape, "{name}");
                let bytes = item.tensors[2].data.iter();
                let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
                assert!(hex == local.pixels, "{name}: other pixels of tiles");
            }
            let tokens = processor.tokens(&item);
            assert_eq!(tokens, recorded.tokens, "{name}");
            let count = tokens.iter().filter(|token| processor.is_placeholder(**token)).count();
            assert_eq!(count, item.num_embeds, "{name}");
            // Elsewhere, other tokens take its place.
            if processor.is_placeholder(placeholder) {
                assert!(tokens.contains(&placeholder), "{name}");
            }
        }
    }
}

/// The content of `videos.json`.
#[derive(Deserialize)]
struct Videos {
    videos: Vec<RecordedVideo>,
    texts: BTreeMap<String, Vec<u32>>,
    /// Videos of which only the chosen frames are recorded.
    #[serde(default)]
    lengths: Vec<Length>,
}

#[derive(Deserialize)]
struct Length {
    frames: usize,
    fps: f64,
    indices: Vec<usize>,
}

#[derive(Deserialize)]
struct RecordedVideo {
    frames: usize,
    height: u32,
    width: u32,
    fps: Option<f64>,
    /// The frames that are processed.
    indices: Vec<usize>,
    shape: Vec<usize>,
    pixels: String,
    grid: Option<[u32; 3]>,
    num_embeds: usize,
    tokens: Vec<u32>,
}

/// Draws a video by the formula of `make_vision.py`.
fn drawn_video(recorded: &RecordedVideo, indices: Vec<usize>) -> Video {
    let RecordedVideo { frames, height, width, fps, .. } = *recorded;
    let wide = drawn(height, width + 10 * frames as u32);
    let frame =
        |at: &usize| image::imageops::crop_imm(&wide, 10 * *at as u32, 0, width, height).to_image();
    Video { frames: indices.iter().map(frame).collect(), indices, total: frames, fps }
}

#[test]
fn processed_videos_are_those_of_transformers() {
    let mut num_videos = 0;
    for model in models() {
        let Ok(golden) = std::fs::read(model.join("videos.json")) else { continue };
        let Videos { videos, texts, lengths } = serde_json::from_slice(&golden).unwrap();
        let encode = move |text: &str| texts[text].clone();
        let processor = processor_for(&model, encode).unwrap().unwrap();
        for Length { frames, fps, indices } in lengths {
            let chosen = processor.chosen_frames(frames, Some(fps), &Map::new()).unwrap();
            assert_eq!(chosen, indices, "{}: {frames} frames at {fps}", model.display());
        }
        for recorded in videos {
            let name = format!("{}: {} frames", model.display(), recorded.frames);
            let none = Map::new();
            let chosen = processor.chosen_frames(recorded.frames, recorded.fps, &none).unwrap();
            assert_eq!(chosen, recorded.indices, "{name}");
            let video = drawn_video(&recorded, chosen);
            let item = processor.video(&video, &none).unwrap();
            // Frames may have tensors of their own. Other tensors have fewer axes or no elements.
            let frames = item.tensors.iter();
            let frames = frames.filter(|it| it.shape.len() == 4 && !it.data.is_empty());
            let frames: Vec<&MediaTensor> = frames.collect();
            let mut shape = frames[0].shape.clone();
            shape[0] = frames.iter().map(|frame| frame.shape[0]).sum();
            assert_eq!(shape, recorded.shape, "{name}");
            let bytes = frames.iter().flat_map(|frame| frame.data.iter());
            let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            assert!(hex == recorded.pixels, "{name}: other pixels");
            assert_eq!((item.num_embeds, item.grid), (recorded.num_embeds, recorded.grid));
            assert_eq!(processor.tokens(&item), recorded.tokens, "{name}");
            for part in processor.parts(&Arc::new(item)) {
                assert!(part.num_embeds <= processor.max_item_embeds(), "{name}");
            }
            num_videos += 1;
        }
    }
    assert!(num_videos > 12, "{num_videos}");
}

/// Its images are served.
#[test]
fn frames_of_another_size_than_tiles_are_refused() {
    let model = models().into_iter().find(|model| model.ends_with("internvl")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "preprocessor_config.json"] {
        std::fs::copy(model.join(file), folder.path().join(file)).unwrap();
    }
    // The default of HF `InternVLVideoProcessor`.
    let videos = json!({ "size": { "height": 384, "width": 384 } }).to_string();
    std::fs::write(folder.path().join("video_preprocessor_config.json"), videos).unwrap();
    let processor = processor_for(folder.path(), |_| vec![7]).unwrap().unwrap();
    assert!(processor.image(&drawn(9, 9), &Map::new()).is_ok());
    for refused in [
        processor.chosen_frames(4, None, &Map::new()).map(drop),
        processor.video(&squares(2, 16), &Map::new()).map(drop),
    ] {
        let why = refused.unwrap_err().to_string();
        assert!(why.starts_with("Failed to load video: the model's processor of videos: `size`"));
        assert!(why.ends_with("expected 32 x 32, the tower's image_size"), "{why}");
    }
}

/// Its frames are chosen in another way than those of Gemma 4, and have no times.
#[test]
fn videos_of_embedding_gemma_2_are_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder.join("tests/fidelity/pictures/embedding_gemma2");
    let processor = processor_for(&folder, |_| vec![7]).unwrap().unwrap();
    let why = processor.chosen_frames(20, Some(1.0), &Map::new()).unwrap_err().to_string();
    assert!(why.ends_with("videos of EmbeddingGemma 2 are not supported"), "{why}");
    assert!(processor.image(&drawn(9, 9), &Map::new()).is_ok());
}

#[test]
fn clients_may_ask_for_other_frames() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/vision");
    let chosen = |model: &str, kwargs: serde_json::Value| {
        let processor = processor_for(&folder.join(model), |_| vec![7]).unwrap().unwrap();
        let chosen = processor.chosen_frames(20, Some(10.0), kwargs.as_object().unwrap());
        chosen.map_err(|error| error.to_string())
    };
    // The numbers come from transformers.
    assert_eq!(chosen("qwen3_vl", json!({ "fps": 3 })), Ok(vec![0, 4, 8, 11, 15, 19]));
    assert_eq!(chosen("qwen3_vl", json!({ "num_frames": 3 })), Ok(vec![0, 10, 19]));
    assert_eq!(chosen("qwen2_vl", json!({ "fps": 2 })), Ok(vec![0, 5, 10, 15]));
    assert_eq!(chosen("qwen2_vl", json!({ "num_frames": 6 })), Ok(vec![0, 3, 6, 10, 13, 16]));
    let all = json!({ "do_sample_frames": false });
    assert_eq!(chosen("qwen3_vl", all), Ok((0..20).collect()));
    for kwargs in [json!({ "fps": 0 }), json!({ "num_frames": "3" }), json!({ "fps": "x" })] {
        assert!(chosen("qwen3_vl", kwargs).unwrap_err().starts_with("mm_processor_kwargs: "));
    }
    assert!(chosen("qwen2_vl", json!({ "num_frames": 40 })).is_err());
    assert_eq!(chosen("internvl", json!({ "fps": 2 })), Ok(vec![2, 7, 12, 17]));
    assert_eq!(chosen("internvl", json!({ "num_frames": 3 })), Ok(vec![3, 10, 16]));
    assert_eq!(chosen("internvl", json!({})), Ok((0..20).collect()));
    for kwargs in [json!({ "num_frames": 21 }), json!({ "fps": 0.1 }), json!({ "fps": "x" })] {
        assert!(chosen("internvl", kwargs).is_err());
    }
    assert_eq!(chosen("gemma4", json!({ "num_frames": 4 })), Ok(vec![0, 5, 10, 15]));
    assert_eq!(chosen("gemma4", json!({ "num_frames": 21 })), Ok((0..20).collect()));
    assert_eq!(chosen("glm4v", json!({ "fps": 2 })), Ok(vec![0, 5, 10, 15]));
    assert_eq!(chosen("glm4v", json!({ "do_sample_frames": false })), Ok((0..20).collect()));
    assert!(chosen("glm4v", json!({ "fps": "x" })).unwrap_err().contains("`fps`"));
    assert!(chosen("glm4v", json!({ "fps": 1e300 })).is_err());
}

#[test]
fn line_feeds_beside_images_are_joined_as_in_transformers() {
    let mut num_texts = 0;
    for model in models() {
        let golden = Golden::read(&model);
        let processor = golden.processor(&model);
        for joined in &golden.joined {
            let begin = processor.placeholder_tokens(Modality::Image)[0];
            let count = joined.token_ids.iter().filter(|token| **token == begin).count();
            let item = |index: usize| ReadyMedia {
                identifier: index.to_string().into(),
                media: Arc::new(processor.image(&drawn(9, 9), &Map::new()).unwrap()),
            };
            let items: Vec<ReadyMedia> = (0..count).map(item).collect();
            let prompt = expanded(&*processor, &joined.token_ids, &items).unwrap();
            assert_eq!(prompt.tokens, joined.expanded, "{}", model.display());
            for item in prompt.features {
                let tokens = &prompt.tokens[item.offset..item.offset + item.length];
                assert!(tokens.iter().all(|token| processor.is_placeholder(*token)));
                assert_eq!(prompt.tokens[item.offset - 1], begin);
            }
            num_texts += 1;
        }
    }
    assert!(num_texts > 4, "{num_texts}");
}

#[test]
fn videos_of_glm_without_a_rate_are_refused() {
    let model = models().into_iter().find(|model| model.ends_with("glm4v")).unwrap();
    let processor = processor_for(&model, |_| Vec::new()).unwrap().unwrap();
    let refused = processor.chosen_frames(4, None, &Map::new()).unwrap_err().to_string();
    assert!(refused.contains("`fps` in media_io_kwargs"), "{refused}");
    let whole = json!({ "do_sample_frames": false });
    let whole = processor.chosen_frames(4, None, whole.as_object().unwrap());
    assert_eq!(whole.unwrap_err().to_string(), refused);
    // The frames of a longer list are chosen before the family sees them.
    let video = squares(33, 16);
    let long = processor.video(&Video { fps: None, ..video }, &Map::new());
    assert_eq!(long.unwrap_err().to_string(), refused);
}

/// Returns a video of black frames.
fn squares(count: usize, side: u32) -> Video {
    let frames = vec![RgbImage::new(side, side); count];
    Video { frames, indices: (0..count).collect(), total: count, fps: Some(2.0) }
}

#[test]
fn videos_of_glm_have_a_limit_of_embeddings() {
    let model = models().into_iter().find(|model| model.ends_with("glm4v")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(model.join("config.json"), folder.path().join("config.json")).unwrap();
    // As the published folders, whose squares have 28 pixels on a side.
    let fields = json!({ "image_processor_type": "Glm4vImageProcessor" });
    std::fs::write(folder.path().join("preprocessor_config.json"), fields.to_string()).unwrap();
    let processor = processor_for(folder.path(), |_| Vec::new()).unwrap().unwrap();
    assert_eq!(processor.max_item_embeds(), 16_384);
    let video = squares(2, 129 * 28);
    let embeds = |kwargs: Value| {
        let item = processor.video(&video, kwargs.as_object().unwrap());
        item.map(|item| item.num_embeds).map_err(|error| error.to_string())
    };
    let refused = "the video has 16641 embeddings, and at most 16384 are accepted";
    assert_eq!(embeds(json!({})), Err(refused.to_owned()));
    assert_eq!(embeds(json!({ "size": { "longest_edge": 200_000 } })), Ok(121));
}

/// The content of `pan_and_scan.json`.
#[derive(Deserialize)]
struct Crops {
    kwargs: Map<String, Value>,
    items: Vec<Cropped>,
    images: Vec<Part>,
    joined: Vec<Joined>,
}

#[derive(Deserialize)]
struct Cropped {
    height: u32,
    width: u32,
    /// The image and its crops.
    parts: Vec<usize>,
    tokens: Vec<u32>,
}

#[derive(Deserialize)]
struct Part {
    shape: Vec<usize>,
    pixels: String,
    num_embeds: usize,
}

#[test]
fn crops_are_those_of_transformers() {
    let mut num_crops = 0;
    for model in models() {
        let Ok(crops) = std::fs::read(model.join("pan_and_scan.json")) else { continue };
        let crops: Crops = serde_json::from_slice(&crops).unwrap();
        let processor = Golden::read(&model).processor(&model);
        for item in crops.items {
            let name = format!("{} of {} x {}", model.display(), item.height, item.width);
            let image = drawn(item.height, item.width);
            let found = Arc::new(processor.image(&image, &crops.kwargs).unwrap());
            assert_eq!(processor.tokens(&found), item.tokens, "{name}");
            let parts = processor.parts(&found);
            assert_eq!(parts.len(), item.parts.len(), "{name}");
            for (part, expected) in parts.iter().zip(item.parts) {
                let expected = &crops.images[expected];
                assert_eq!(part.tensors[0].shape, expected.shape, "{name}");
                let bytes = part.tensors[0].data.iter();
                let hex: String = bytes.map(|byte| format!("{byte:02x}")).collect();
                assert!(hex == expected.pixels, "{name}: other pixels");
                assert_eq!(part.num_embeds, expected.num_embeds, "{name}");
                assert!(part.num_embeds <= processor.max_item_embeds(), "{name}");
            }
            num_crops += parts.len() - 1;
        }
        let item = |index: usize| ReadyMedia {
            identifier: index.to_string().into(),
            media: Arc::new(processor.image(&drawn(24, 60), &crops.kwargs).unwrap()),
        };
        for Joined { token_ids, expanded: expected } in crops.joined {
            let begin = processor.placeholder_tokens(Modality::Image)[0];
            let count = token_ids.iter().filter(|token| **token == begin).count();
            let items: Vec<ReadyMedia> = (0..count).map(item).collect();
            let prompt = expanded(&*processor, &token_ids, &items).unwrap();
            assert_eq!(prompt.tokens, expected, "{}", model.display());
            let mut names: Vec<_> = prompt.features.iter().map(|it| &it.identifier).collect();
            names.dedup();
            assert_eq!(names.len(), prompt.features.len(), "each part has its own name");
            for item in &prompt.features {
                let tokens = &prompt.tokens[item.offset..item.offset + item.length];
                assert!(tokens.iter().all(|token| processor.is_placeholder(*token)));
            }
        }
    }
    assert!(num_crops > 10, "{num_crops}");
}

/// As `attribute_map` of HF `Gemma3Config`.
#[test]
fn the_marks_of_an_image_may_have_other_names() {
    let model = models().into_iter().find(|model| model.ends_with("gemma3")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for file in ["preprocessor_config.json", "processor_config.json"] {
        if model.join(file).exists() {
            std::fs::copy(model.join(file), folder.path().join(file)).unwrap();
        }
    }
    let config = std::fs::read_to_string(model.join("config.json")).unwrap();
    let config = config.replace("boi_token_index", "boi_token_id");
    let config = config.replace("eoi_token_index", "eoi_token_id");
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    let processor = Golden::read(&model).processor(folder.path());
    assert_eq!(processor.placeholder_tokens(Modality::Image), [440]);
    let item = processor.image(&drawn(9, 9), &Map::new()).unwrap();
    assert!(processor.tokens(&item).contains(&441));
}

#[test]
fn crops_follow_the_settings() {
    let model = models().into_iter().find(|model| model.ends_with("gemma3")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let of = |kwargs: Value| {
        let item = processor.image(&drawn(20, 60), kwargs.as_object().unwrap());
        item.map(|item| item.tensors.len()).map_err(|error| error.to_string())
    };
    let small = json!({ "do_pan_and_scan": true, "pan_and_scan_min_crop_size": 5 });
    assert_eq!(of(small), Ok(4));
    assert_eq!(of(json!({ "pan_and_scan_min_crop_size": 5 })), Ok(1));
    assert_eq!(of(json!({ "do_pan_and_scan": true })), Ok(1), "too small for crops");
    for (field, value) in [
        ("do_pan_and_scan", json!("yes")),
        ("pan_and_scan_min_crop_size", json!(0)),
        ("pan_and_scan_max_num_crops", json!(17)),
        ("pan_and_scan_min_ratio_to_activate", json!(-1)),
    ] {
        let refused = of(json!({ field: value })).unwrap_err();
        assert!(refused.starts_with("mm_processor_kwargs: ") && refused.contains(field));
    }
}

#[test]
fn models_without_a_processor_of_images_have_none() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models");
    for model in ["llama-tied", "llava", "qwen3_vl", "gemma3_vl"] {
        assert!(processor_for(&models.join(model), |_| Vec::new()).unwrap().is_none(), "{model}");
    }
}
