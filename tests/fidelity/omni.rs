//! Qwen2.5-Omni and Qwen3-Omni against transformers in float32: images, sounds, and prompts with
//! both. `make_omni.py` made the models and their answers. Pixels and spectrograms are compared in
//! `src/media/families/omni_tests.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse::model::EncoderOutput;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::phi4::{self, Item};
use crate::vision::{self, Prompt};

const MODELS: [&str; 4] =
    ["qwen2_5_omni", "qwen2_5_omni-thinker", "qwen3_omni", "qwen3_omni-thinker"];

/// The content of `golden.json`.
#[derive(Deserialize)]
struct Golden {
    images: Vec<Image>,
    sounds: Vec<Sound>,
    prompts: Vec<Value>,
}

/// The content of `videos.json`.
#[derive(Deserialize)]
struct Videos {
    videos: Vec<Image>,
    prompts: Vec<Prompt>,
}

/// An image or a video as the processor leaves it, and its embeddings.
#[derive(Deserialize)]
struct Image {
    shape: Vec<usize>,
    pixels: String,
    grid: [u32; 3],
    num_embeds: usize,
    embeddings: Vec<f32>,
    /// The states for the first layers of the text model.
    by_layer: Vec<Vec<f32>>,
}

/// The parts of a sound's spectrogram, and its embeddings.
#[derive(Deserialize)]
struct Sound {
    shapes: Vec<Vec<usize>>,
    mels: Vec<Vec<f32>>,
    num_embeds: usize,
    embeddings: Vec<f32>,
}

/// Returns the folder of a recorded model.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/omni").join(name)
}

/// Returns the folders of all models.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    MODELS.into_iter().map(folder)
}

fn read<T: serde::de::DeserializeOwned>(name: &str, file: &str) -> T {
    let golden = std::fs::read(folder(name).join(file)).unwrap();
    serde_json::from_slice(&golden).unwrap()
}

impl Image {
    fn item(&self) -> Item {
        let tensors = vec![(self.shape.clone(), phi4::bytes(&self.pixels), false)];
        Item { tensors, num_embeds: self.num_embeds, grid: Some(self.grid) }
    }
}

impl Sound {
    fn item(&self) -> Item {
        let parts = self.shapes.iter().zip(&self.mels);
        let tensors = parts.map(|(shape, mel)| (shape.clone(), phi4::floats(mel), true)).collect();
        Item { tensors, num_embeds: self.num_embeds, grid: None }
    }
}

/// Compares the states of images or videos for single layers.
fn check_states(name: &str, outputs: &[Arc<EncoderOutput>], recorded: &[Image]) {
    for (output, recorded) in outputs.iter().zip(recorded) {
        assert_eq!(output.by_layer.len(), recorded.by_layer.len(), "{name}");
        for (tensor, expected) in output.by_layer.iter().zip(&recorded.by_layer) {
            let found = tensor.clone().into_data().try_to_vec::<f32>().unwrap();
            let difference = vision::difference(&found, expected);
            assert!(difference <= phi4::EMBEDDINGS, "{name}: states differ by {difference}");
        }
    }
}

fn check(name: &str) {
    let model = phi4::load(&folder(name));
    let golden: Golden = read(name, "golden.json");
    let images = golden.images.iter().map(|it| (it.item(), &*it.embeddings));
    let sounds = golden.sounds.iter().map(|it| (it.item(), &*it.embeddings));
    let items: Vec<(Item, &[f32])> = images.chain(sounds).collect();
    let outputs = phi4::check_items(name, &model, &items);
    check_states(name, &outputs, &golden.images);
    for mut prompt in golden.prompts {
        // The items of a prompt are numbered through.
        let of = |prompt: &Value, kind: &str| -> Vec<usize> {
            serde_json::from_value(prompt[kind].clone()).unwrap()
        };
        let (mut items, sounds) = (of(&prompt, "images"), of(&prompt, "sounds"));
        items.extend(sounds.iter().map(|index| golden.images.len() + index));
        prompt["images"] = json!(items);
        let prompt: Prompt = serde_json::from_value(prompt).unwrap();
        vision::check_prompt(name, &model, &prompt, &outputs);
    }
    let golden: Videos = read(name, "videos.json");
    let items: Vec<(Item, &[f32])> =
        golden.videos.iter().map(|it| (it.item(), &*it.embeddings)).collect();
    let outputs = phi4::check_items(name, &model, &items);
    check_states(name, &outputs, &golden.videos);
    for prompt in &golden.prompts {
        vision::check_prompt(name, &model, prompt, &outputs);
    }
}

#[test]
fn whole_model() {
    check("qwen2_5_omni");
}

#[test]
fn thinker_alone() {
    check("qwen2_5_omni-thinker");
}

#[test]
fn whole_model_with_experts() {
    check("qwen3_omni");
}

#[test]
fn thinker_alone_with_experts() {
    check("qwen3_omni-thinker");
}

#[test]
fn sounds_of_another_form_are_refused() {
    let model = phi4::load(&folder(MODELS[0]));
    let golden: Golden = read(MODELS[0], "golden.json");
    let sound = || golden.sounds[0].item();
    let mut short_first = sound();
    short_first.tensors.swap(0, 2);
    let mut of_other_bins = sound();
    of_other_bins.tensors[2].0.reverse();
    let mut too_long = sound();
    too_long.tensors[2] = (vec![32, 41], vec![0; 4 * 32 * 41], true);
    let mut of_more_embeds = sound();
    of_more_embeds.num_embeds += 1;
    let items = [&short_first, &of_other_bins, &too_long, &of_more_embeds];
    let results = phi4::encoded(&model, &items).into_iter();
    let why: Vec<String> = results.map(|result| result.err().unwrap()).collect();
    assert!(why[0].contains("[32, 20]; expected 40 times"), "{}", why[0]);
    assert!(why[1].contains("32 bins at 40 times, not [20, 32]"), "{}", why[1]);
    assert!(why[2].contains("32 bins at 40 times, not [32, 41]"), "{}", why[2]);
    assert!(why[3].contains("placeholders"), "{}", why[3]);
}

#[test]
fn a_field_without_a_valid_value_is_named() {
    let [first, _, later, _] = MODELS;
    for (name, part, field, value) in [
        (first, "audio_config", "n_window", json!(21)),
        (first, "audio_config", "n_window", json!(60)),
        (first, "audio_config", "model_type", json!("whisper")),
        (first, "vision_config", "window_size", json!(1)),
        (first, "text_config", "rope_parameters", json!({ "rope_type": "default" })),
        (later, "audio_config", "n_window", json!(40)),
        (later, "audio_config", "n_window_infer", json!(150)),
        (later, "audio_config", "model_type", json!("qwen3_asr_encoder")),
        (later, "vision_config", "deepstack_visual_indexes", json!([2, 0])),
        (later, "vision_config", "num_position_embeddings", json!(35)),
        (later, "text_config", "rope_parameters", json!({ "rope_type": "default" })),
    ] {
        let copy = tempfile::TempDir::new().unwrap();
        for entry in std::fs::read_dir(folder(name)).unwrap() {
            let path = entry.unwrap().path();
            std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
        }
        let path = copy.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["thinker_config"][part][field] = value;
        std::fs::write(path, config.to_string()).unwrap();
        let why = phi4::try_load(copy.path()).err().unwrap();
        let field = if part == "text_config" { "mrope_section" } else { field };
        assert!(why.contains(field), "{name}: {part}.{field}: {why}");
    }
}
