//! Models with images and sounds in a running engine: alone, beside texts, in small steps, in a
//! small cache, on prefix hits, and while actors die. The greedy tokens always equal transformers'.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::{ImageFormat, Rgb, RgbImage};
use playhouse::{
    Engine, EngineConfig,
    api::{How, MEDIA_IO_KWARGS, MediaSource, Modality, Prompt, RawMedia, RawRequest, Role},
    config::{Device, Dtype},
};
use serde::Deserialize;

use crate::engine::{self, Output, bits, collect};
use crate::{hearing, omni, phi4, vision};

/// The content of `golden.json` that this test needs.
#[derive(Deserialize)]
struct Golden {
    #[serde(default)]
    images: Vec<Image>,
    /// Images with crops, and the settings of the processor.
    #[serde(default)]
    items: Vec<Image>,
    #[serde(default)]
    kwargs: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    videos: Vec<Video>,
    #[serde(default)]
    sounds: Vec<Sound>,
    prompts: Vec<Recorded>,
}

#[derive(Deserialize)]
struct Image {
    /// Without, the image is a crop of an item.
    #[serde(default)]
    height: u32,
    #[serde(default)]
    width: u32,
}

#[derive(Deserialize)]
struct Video {
    frames: u32,
    height: u32,
    width: u32,
    fps: Option<f64>,
}

#[derive(Deserialize)]
struct Sound {
    /// Sounds of `speech`, one after the other.
    parts: Vec<String>,
    /// The samples of them that are taken.
    count: usize,
}

#[derive(Deserialize)]
struct Recorded {
    token_ids: Vec<u32>,
    images: Vec<usize>,
    /// The sounds of a prompt that may have images, too.
    #[serde(default)]
    sounds: Vec<usize>,
    /// The images before they have crops.
    items: Option<Vec<usize>>,
    /// The prompt before expansion.
    placed_token_ids: Vec<u32>,
    greedy_token_ids: Vec<u32>,
}

/// The models whose greedy tokens are recorded, and the files that have them.
fn models() -> Vec<(PathBuf, &'static str)> {
    let vision = ["gemma3", "gemma3-wide", "glm4v", "glm4v_moe", "llama4", "llama4-wide"];
    let chats = ["internvl_chat", "internvl_chat-internlm2", "internvl_chat-phi3"];
    let readers = ["glm_ocr", "glm_ocr-tied", "lighton_ocr", "lighton_ocr-rest", "paddleocr_vl"];
    let readers = readers.into_iter().chain(["lighton_ocr-mistral3", "paddleocr_vl-bias"]);
    let readers = readers.chain(["lighton_ocr-mistral3-untied"]);
    let in_tiles = ["aya_vision", "aya_vision-one", "cohere2_vision", "cohere2_vision-one"];
    let vision = vision.into_iter().chain(chats).chain(readers).chain(in_tiles);
    let vision = vision.chain(["lfm2_vl", "lfm2_vl-wide", "phi3_v", "phi3_v-wide"]);
    let others = ["llava_next_video", "llava_onevision", "llava_onevision-odd", "exaone4_5"];
    let vision = vision.chain(others).chain(["minicpmv4_6", "minicpmv4_6-wide"]);
    let vision = vision.chain(["deepseek_ocr", "deepseek_ocr-windows"]);
    let vision = vision.chain(["deepseek_ocr2", "deepseek_ocr2-windows", "blip2", "blip2-wide"]);
    let vision = vision.chain(["got_ocr2", "got_ocr2-windows", "ovis2", "ovis2-odd"]);
    let vision = vision.chain(["dots_ocr", "dots_ocr-bias", "gemma4", "gemma4_unified-causal"]);
    let vision = vision.chain(["kimi_vl", "kimi_vl-wide", "kimi_k25", "kimi_k25-authors"]);
    let vision = vision.chain(["aria", "aria-layer"]);
    let vision = vision.map(vision::folder);
    let hearing = hearing::folders();
    let videos =
        ["qwen2_vl", "qwen2_5_vl", "qwen2_5_vl-wide", "qwen3_vl", "qwen3_vl-one", "qwen3_5"];
    let videos = videos.into_iter().chain(["glm4v", "glm4v-pairs", "glm4v_moe", "glm_ocr"]);
    let videos = videos.chain(["internvl", "internvl-norms", "internvl-experts"]);
    let videos = videos.chain(others).chain(["gemma4", "gemma4_unified-causal"]);
    let both = ["phi4", "phi4-wide"].map(phi4::folder);
    let both = both.into_iter().chain(omni::folders());
    let of_items = vision.chain(hearing).chain(both).map(|model| (model, "golden.json"));
    let videos = videos.map(vision::folder).chain(omni::folders());
    let of_videos = videos.map(|model| (model, "videos.json"));
    let crops = ["gemma3", "gemma3-wide", "lfm2_vl", "lfm2_vl-wide"];
    let crops = crops.into_iter().chain(["minicpmv4_6", "minicpmv4_6-wide"]);
    let of_crops = crops.map(|name| (vision::folder(name), "pan_and_scan.json"));
    of_items.chain(of_videos).chain(of_crops).collect()
}

impl Golden {
    fn read(model: &Path, file: &str) -> Self {
        let golden = std::fs::read(model.join(file)).unwrap();
        serde_json::from_slice(&golden).unwrap()
    }

    /// Returns the items of a prompt.
    fn media(&self, prompt: &Recorded) -> Arc<[RawMedia]> {
        let item = |index: &usize| match (self.videos.get(*index), self.sounds.get(*index)) {
            (Some(video), _) => {
                let mut video = frames(video);
                video.kwargs.extend(self.kwargs.clone());
                video
            }
            (None, Some(sound)) if self.images.is_empty() => raw(Modality::Audio, wav(sound)),
            (None, _) => {
                let images = if prompt.items.is_some() { &self.items } else { &self.images };
                let Image { height, width } = images[*index];
                let image = raw(Modality::Image, png(&drawn(height, width)));
                RawMedia { kwargs: self.kwargs.clone(), ..image }
            }
        };
        let items = prompt.items.as_ref().unwrap_or(&prompt.images).iter().map(item);
        let sounds = prompt.sounds.iter();
        let sounds = sounds.map(|index| raw(Modality::Audio, wav(&self.sounds[*index])));
        items.chain(sounds).collect()
    }

    fn request(&self, prompt: &Recorded) -> RawRequest {
        let count = prompt.greedy_token_ids.len();
        let request = engine::request(&prompt.placed_token_ids, count, 0.0, 0);
        let prompt_tokens = Prompt::Tokens(prompt.placed_token_ids.clone());
        RawRequest { prompt: prompt_tokens, media: self.media(prompt), ..request }
    }
}

/// Returns an item of a file.
pub(crate) fn raw(modality: Modality, file: Vec<u8>) -> RawMedia {
    RawMedia {
        modality,
        source: MediaSource::File(file.into()),
        uuid: None,
        kwargs: Default::default(),
    }
}

/// Draws an image by the formula of `make_vision.py`.
pub(crate) fn drawn(height: u32, width: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let channel = |c: u32| ((x * (c + 2) + y * 5 + x * y / 7 * (3 - c) + c * 40) % 256) as u8;
        Rgb([channel(0), channel(1), channel(2)])
    })
}

/// Returns the file of an image.
pub(crate) fn png(image: &RgbImage) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    image.write_to(&mut file, ImageFormat::Png).unwrap();
    file.into_inner()
}

/// Returns a video as the list of its frames.
fn frames(video: &Video) -> RawMedia {
    let wide = drawn(video.height, video.width + 10 * video.frames);
    let frame = |at: u32| {
        let frame = image::imageops::crop_imm(&wide, 10 * at, 0, video.width, video.height);
        png(&frame.to_image()).into()
    };
    let kwargs = match video.fps {
        None => serde_json::Map::new(),
        Some(fps) => {
            let kwargs = serde_json::json!({ MEDIA_IO_KWARGS: { "video": { "fps": fps } } });
            kwargs.as_object().unwrap().clone()
        }
    };
    let source = MediaSource::Frames((0..video.frames).map(frame).collect());
    RawMedia { modality: Modality::Video, source, uuid: None, kwargs }
}

/// Returns a WAV file of recorded sounds, one after the other.
fn wav(sound: &Sound) -> Vec<u8> {
    const HEADER: usize = 44;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech");
    let read = |name: &String| std::fs::read(folder.join(format!("{name}.wav"))).unwrap();
    let files: Vec<Vec<u8>> = sound.parts.iter().map(read).collect();
    let samples = files.iter().flat_map(|file| &file[HEADER..]).take(2 * sound.count);
    let mut wav = files[0][..HEADER].to_vec();
    wav.extend(samples);
    let len = wav.len() as u32;
    wav[4..8].copy_from_slice(&(len - 8).to_le_bytes());
    wav[40..44].copy_from_slice(&(len - HEADER as u32).to_le_bytes());
    wav
}

fn config(model: &Path) -> EngineConfig {
    EngineConfig {
        device: Device::Cpu,
        dtype: Dtype::Float32,
        ..EngineConfig::new(model.to_owned())
    }
}

/// Runs all prompts twice at once, and compares their tokens with the recording.
async fn check(change: impl Fn(&mut EngineConfig)) {
    for (model, file) in models() {
        let golden = Golden::read(&model, file);
        let mut config = config(&model);
        change(&mut config);
        let prompts: Vec<&Recorded> = golden.prompts.iter().cycle().take(8).collect();
        let requests = prompts.iter().map(|prompt| golden.request(prompt)).collect();
        let (outputs, _) = engine::run(config, requests).await;
        for (prompt, output) in prompts.iter().zip(&outputs) {
            let what = (model.display(), &prompt.images);
            assert_eq!(output.tokens, prompt.greedy_token_ids, "{what:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_in_flight() {
    check(|_| ()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_of_few_tokens() {
    // The largest image has 16 tokens, which one step computes.
    check(|config| config.max_num_batched_tokens = 16).await;
    check(|config| {
        config.max_num_batched_tokens = 24;
        config.async_scheduling = Some(true);
        config.long_prefill_token_threshold = 5;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_cache() {
    check(|config| engine::shrink(config, 40)).await;
}

/// Returns the output of a request that has the engine for itself.
async fn alone(engine: &Engine, request: RawRequest) -> Output {
    collect(engine.submit(request).await.unwrap().choices.remove(0)).await
}

/// The last tokens of Molmo 2 have no row in its output layer: those of images.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_no_output_has_are_refused() {
    const SCORED: u32 = 480;
    let model = vision::folder("molmo2");
    let golden = Golden::read(&model, "golden.json");
    let engine = Engine::spawn(config(&model), |_| ()).await.unwrap();
    let of = |allowed: u32| {
        let mut request = golden.request(&golden.prompts[0]);
        request.params.allowed_token_ids = Some(vec![allowed]);
        request
    };
    let why = engine.submit(of(SCORED)).await.err().unwrap().to_string();
    assert!(why.contains("allowed_token_ids") && why.contains("480"), "{why}");
    let output = alone(&engine, of(SCORED - 1)).await;
    assert!(output.tokens.iter().all(|token| *token == SCORED - 1), "{:?}", output.tokens);
    assert!(!output.tokens.is_empty());
    engine.shutdown().await;
}

/// A hit may end within an image.
#[tokio::test(flavor = "multi_thread")]
async fn prefix_hits_give_the_same_bytes() {
    for (model, file) in models() {
        let golden = Golden::read(&model, file);
        for block_size in [8, 16] {
            let config = EngineConfig { block_size, ..config(&model) };
            let engine = Engine::spawn(config, |_| ()).await.unwrap();
            for prompt in &golden.prompts {
                let first = alone(&engine, golden.request(prompt)).await;
                let second = alone(&engine, golden.request(prompt)).await;
                let hits = (prompt.token_ids.len() - 1) / block_size * block_size;
                assert_eq!(second.num_cached_tokens, hits, "{}", model.display());
                assert_eq!(first.tokens, prompt.greedy_token_ids, "{}", model.display());
                assert_eq!(bits(&first), bits(&second), "{}", model.display());
            }
            engine.shutdown().await;
        }
    }
}

/// The actors that images and sounds pass.
const ROLES: [Role; 6] = [
    Role::EncoderCacheManager,
    Role::EncoderWorker,
    Role::Worker,
    Role::Scheduler,
    Role::KvCacheManager,
    Role::InputProcessor,
];

#[tokio::test(flavor = "multi_thread")]
async fn answers_outlive_the_actors_on_their_way() {
    for (model, file) in models() {
        let golden = Golden::read(&model, file);
        let config = EngineConfig { max_num_batched_tokens: 20, ..config(&model) };
        let engine = Engine::spawn(config, |_| ()).await.unwrap();
        for (turn, role) in ROLES.into_iter().cycle().take(2 * ROLES.len()).enumerate() {
            let how = if turn % 2 == 0 { How::Kill } else { How::Panic };
            let mut streams = Vec::new();
            for prompt in &golden.prompts {
                // Another salt computes the prompt again.
                let salt = Some(format!("{turn}"));
                let request = RawRequest { cache_salt: salt, ..golden.request(prompt) };
                streams.push(engine.submit(request).await.unwrap().choices.remove(0));
            }
            engine.chaos().strike(role, 0, how).unwrap();
            for (prompt, stream) in golden.prompts.iter().zip(streams) {
                let output = collect(stream).await;
                let what = (model.display(), role, how);
                assert_eq!(output.tokens, prompt.greedy_token_ids, "{what:?}");
            }
        }
        engine.shutdown().await;
    }
}

/// All tokens of their prompts attend to each other, so a step computes a whole prompt. A hit may
/// end within it, if the whole prompt is the same.
#[tokio::test(flavor = "multi_thread")]
async fn prompts_that_attend_to_themselves() {
    for name in ["paligemma", "paligemma-two"] {
        let model = vision::folder(name);
        let golden = Golden::read(&model, "golden.json");
        for max_num_batched_tokens in [65, 2048] {
            let config = EngineConfig { max_num_batched_tokens, ..config(&model) };
            let prompts: Vec<&Recorded> = golden.prompts.iter().cycle().take(8).collect();
            let requests = prompts.iter().map(|prompt| golden.request(prompt)).collect();
            let (outputs, _) = engine::run(config, requests).await;
            for (prompt, output) in prompts.iter().zip(&outputs) {
                let what = (name, max_num_batched_tokens, &prompt.images);
                assert_eq!(output.tokens, prompt.greedy_token_ids, "{what:?}");
            }
        }
        // Those that only begin alike share nothing.
        let engine = Engine::spawn(config(&model), |_| ()).await.unwrap();
        let prompt = &golden.prompts[3];
        let tokens = [&*prompt.placed_token_ids, &[5, 6, 7]].concat();
        let longer = RawRequest { prompt: Prompt::Tokens(tokens), ..golden.request(prompt) };
        alone(&engine, longer).await;
        let other = alone(&engine, golden.request(prompt)).await;
        assert_eq!((other.num_cached_tokens, &other.tokens), (0, &prompt.greedy_token_ids));
        let same = alone(&engine, golden.request(prompt)).await;
        assert!(same.num_cached_tokens > 0, "{name}");
        assert_eq!(same.tokens, prompt.greedy_token_ids, "{name}");
        // Nor do those whose second image is another one.
        let two = &golden.prompts[2];
        let images = golden.media(two);
        let media = [&images[..1], &images[..1]].concat().into();
        alone(&engine, RawRequest { media, ..golden.request(two) }).await;
        let other = alone(&engine, golden.request(two)).await;
        assert_eq!((other.num_cached_tokens, &other.tokens), (0, &two.greedy_token_ids), "{name}");
        engine.shutdown().await;
    }
}

/// An image has more tokens than a window or a small step, and they attend to each other within it.
#[tokio::test(flavor = "multi_thread")]
async fn images_that_are_wider_than_a_window() {
    let models = ["gemma4-vision", "gemma4_unified"];
    let files =
        models.iter().flat_map(|model| ["golden.json", "videos.json"].map(|it| (*model, it)));
    let files = files.chain(["molmo2", "molmo2-olmo"].map(|model| (model, "golden.json")));
    for (name, file) in files {
        let model = vision::folder(name);
        let golden = Golden::read(&model, file);
        for max_num_batched_tokens in [80, 2048] {
            let config = EngineConfig { max_num_batched_tokens, ..config(&model) };
            let prompts: Vec<&Recorded> = golden.prompts.iter().cycle().take(8).collect();
            let requests = prompts.iter().map(|prompt| golden.request(prompt)).collect();
            let (outputs, _) = engine::run(config, requests).await;
            for (prompt, output) in prompts.iter().zip(&outputs) {
                let what = (name, file, max_num_batched_tokens, &prompt.images);
                assert_eq!(output.tokens, prompt.greedy_token_ids, "{what:?}");
            }
        }
        let engine = Engine::spawn(config(&model), |_| ()).await.unwrap();
        for prompt in &golden.prompts {
            let first = alone(&engine, golden.request(prompt)).await;
            let second = alone(&engine, golden.request(prompt)).await;
            assert!(second.num_cached_tokens > 0 || prompt.token_ids.len() < 18, "{name}: {file}");
            assert_eq!(first.tokens, prompt.greedy_token_ids, "{name}: {file}");
            assert_eq!(bits(&first), bits(&second), "{name}: {file}");
        }
        engine.shutdown().await;
    }
}

/// The steps of a model whose images are computed whole have room for one.
#[tokio::test(flavor = "multi_thread")]
async fn steps_without_room_for_an_image_are_refused() {
    let config = EngineConfig { max_num_batched_tokens: 8, ..config(&vision::folder("gemma3")) };
    let why = Engine::spawn(config, |_| ()).await.err().unwrap().to_string();
    assert!(why.contains("max_num_batched_tokens") && why.contains("at least 9"), "{why}");
}
