//! Phi-4-multimodal against transformers in float32, in the form of transformers and in that of its
//! authors. `make_phi4.py` made the models and their answers. Pixels and spectrograms are compared
//! in `src/media/families/phi4_tests.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse::model::{
    Dtype, EncoderOutput, LoadOptions, MediaData, MediaInput, MediaTensorView, Model, load_model,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::vision::{self, Prompt};

/// The largest accepted difference of an embedding, relative to the largest of its item.
pub(crate) const EMBEDDINGS: f32 = 2e-5;

/// The recorded models, and those with their answers.
const MODELS: [[&str; 2]; 4] = [
    ["phi4", "phi4"],
    ["phi4-wide", "phi4-wide"],
    ["phi4mm", "phi4"],
    ["phi4mm-wide", "phi4-wide"],
];

/// The content of `golden.json`.
#[derive(Deserialize)]
struct Golden {
    images: Vec<Image>,
    sounds: Vec<Sound>,
    wave: Wave,
    prompts: Vec<Value>,
}

/// An image as the processor leaves it, and its embeddings.
#[derive(Deserialize)]
struct Image {
    shape: Vec<usize>,
    pixels: String,
    tiles: Vec<usize>,
    whole: Vec<f32>,
    num_embeds: usize,
    embeddings: Vec<f32>,
}

/// A spectrogram, and its embeddings alone and beside an image.
#[derive(Deserialize)]
struct Sound {
    shape: Vec<usize>,
    mel: Vec<f32>,
    num_embeds: usize,
    embeddings: Vec<f32>,
    beside: Vec<f32>,
}

/// A long spectrogram of a formula, and some of its embeddings.
#[derive(Deserialize)]
struct Wave {
    frames: usize,
    bins: usize,
    num_embeds: usize,
    rows: Vec<usize>,
    embeddings: Vec<f32>,
}

/// Returns the folder of a recorded model.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/phi4").join(name)
}

/// Returns the folders of all models.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    MODELS.into_iter().map(|[model, _]| folder(model))
}

fn golden(name: &str) -> Golden {
    let golden = std::fs::read(folder(name).join("golden.json")).unwrap();
    serde_json::from_slice(&golden).unwrap()
}

/// An item with its bytes.
pub(crate) struct Item {
    /// Shapes, bytes, and whether they are of floats.
    pub(crate) tensors: Vec<(Vec<usize>, Vec<u8>, bool)>,
    pub(crate) num_embeds: usize,
    pub(crate) grid: Option<[u32; 3]>,
}

pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Returns the bytes of a recorded image.
pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let byte = |hex: &[u8]| u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(byte).collect()
}

impl Image {
    fn item(&self, side: usize) -> Item {
        let tensors = vec![
            (self.shape.clone(), bytes(&self.pixels), false),
            (self.tiles.clone(), Vec::new(), false),
            (vec![3, side, side], floats(&self.whole), true),
        ];
        Item { tensors, num_embeds: self.num_embeds, grid: None }
    }
}

impl Sound {
    fn item(&self, is_beside_image: bool) -> Item {
        let mut tensors = vec![(self.shape.clone(), floats(&self.mel), true)];
        if is_beside_image {
            tensors.push((vec![0], Vec::new(), false));
        }
        Item { tensors, num_embeds: self.num_embeds, grid: None }
    }
}

impl Item {
    fn input(&self) -> MediaInput<'_> {
        let tensors = self.tensors.iter().map(|(shape, bytes, is_float)| {
            let data = if *is_float { MediaData::F32(bytes) } else { MediaData::U8(bytes) };
            MediaTensorView { shape, data }
        });
        let tensors = tensors.collect();
        MediaInput { tensors, num_embeds: self.num_embeds, grid: self.grid }
    }
}

fn values(output: &EncoderOutput) -> Vec<f32> {
    output.embeddings.clone().into_data().try_to_vec().unwrap()
}

/// Loads the model in a folder.
pub(crate) fn load(folder: &Path) -> Arc<Model> {
    try_load(folder).unwrap()
}

/// Loads the model in a folder, which may have a fault.
pub(crate) fn try_load(folder: &Path) -> Result<Arc<Model>, String> {
    let options = LoadOptions { dtype: Dtype::Float32, ..LoadOptions::default() };
    load_model(folder, &options, &mut |_| {}).map_err(|error| error.to_string())
}

/// Encodes items together.
pub(crate) fn encoded(model: &Model, items: &[&Item]) -> Vec<Result<EncoderOutput, String>> {
    let inputs: Vec<MediaInput<'_>> = items.iter().map(|item| item.input()).collect();
    model.media.as_ref().unwrap().encode(&inputs)
}

/// Compares the embeddings of `items` with those expected, alone and all at once.
pub(crate) fn check_items(
    name: &str,
    model: &Model,
    items: &[(Item, &[f32])],
) -> Vec<Arc<EncoderOutput>> {
    let together = encoded(model, &items.iter().map(|(item, _)| item).collect::<Vec<_>>());
    let mut outputs = Vec::new();
    for ((item, expected), together) in items.iter().zip(together) {
        let alone = encoded(model, &[item]).remove(0).unwrap();
        let bits = |values: Vec<f32>| values.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        let same = bits(values(&alone)) == bits(values(&together.unwrap()));
        assert!(same, "{name}: other bytes in a batch");
        let difference = vision::difference(&values(&alone), expected);
        assert!(difference <= EMBEDDINGS, "{name}: embeddings differ by {difference}");
        outputs.push(Arc::new(alone));
    }
    outputs
}

fn check(name: &str, answers: &str) {
    let (model, golden) = (load(&folder(name)), golden(answers));
    let side = golden.images[0].shape[1];
    let images = golden.images.iter().map(|it| (it.item(side), &*it.embeddings));
    let alone = golden.sounds.iter().map(|it| (it.item(false), &*it.embeddings));
    let beside = golden.sounds.iter().map(|it| (it.item(true), &*it.beside));
    let items: Vec<(Item, &[f32])> = images.chain(alone).chain(beside).collect();
    let outputs = check_items(name, &model, &items);
    for mut prompt in golden.prompts {
        // The items of a prompt are numbered through.
        let of = |prompt: &Value, kind: &str| -> Vec<usize> {
            serde_json::from_value(prompt[kind].clone()).unwrap()
        };
        let (mut items, sounds) = (of(&prompt, "images"), of(&prompt, "sounds"));
        let first = golden.images.len() + if items.is_empty() { 0 } else { golden.sounds.len() };
        items.extend(sounds.iter().map(|index| first + index));
        prompt["images"] = json!(items);
        let prompt: Prompt = serde_json::from_value(prompt).unwrap();
        vision::check_prompt(name, &model, &prompt, &outputs);
    }
}

#[test]
fn phi4() {
    check("phi4", "phi4");
}

#[test]
fn phi4_wide() {
    check("phi4-wide", "phi4-wide");
}

#[test]
fn phi4mm() {
    check("phi4mm", "phi4");
}

#[test]
fn phi4mm_wide() {
    check("phi4mm-wide", "phi4-wide");
}

#[test]
fn long_sounds_are_cut_into_pieces() {
    for name in ["phi4", "phi4-wide"] {
        let (model, Golden { wave, .. }) = (load(&folder(name)), golden(name));
        let number = |at: usize| {
            let (time, bin) = (at / wave.bins, at % wave.bins);
            ((time * 7 + bin * 13) % 31) as f32 / 16.0 - 1.0
        };
        let mel: Vec<f32> = (0..wave.frames * wave.bins).map(number).collect();
        let tensors = vec![(vec![wave.frames, wave.bins], floats(&mel), true)];
        let item = Item { tensors, num_embeds: wave.num_embeds, grid: None };
        let found = values(&encoded(&model, &[&item]).remove(0).unwrap());
        let width = found.len() / wave.num_embeds;
        let rows = wave.rows.iter().flat_map(|row| &found[row * width..(row + 1) * width]);
        let rows: Vec<f32> = rows.copied().collect();
        let difference = vision::difference(&rows, &wave.embeddings);
        assert!(difference <= EMBEDDINGS, "{name}: embeddings differ by {difference}");
    }
}

#[test]
fn items_of_another_form_are_refused() {
    let (model, golden) = (load(&folder("phi4")), golden("phi4"));
    let image = || golden.images[0].item(16);
    let mut without_whole = image();
    without_whole.tensors.pop();
    let mut of_another_grid = image();
    of_another_grid.tensors[1].0 = vec![1, 1, 8, 8, 0];
    let mut of_another_size = image();
    of_another_size.tensors[2].0 = vec![3, 8, 8];
    let mut of_other_bins = golden.sounds[0].item(false);
    of_other_bins.tensors[0].0.reverse();
    let mut of_more_embeds = golden.sounds[1].item(false);
    of_more_embeds.num_embeds += 1;
    let items =
        [&without_whole, &of_another_grid, &of_another_size, &of_other_bins, &of_more_embeds];
    let why: Vec<String> =
        encoded(&model, &items).into_iter().map(|result| result.err().unwrap()).collect();
    assert!(why[0].contains("whole image"), "{}", why[0]);
    assert!(why[1].contains("grid"), "{}", why[1]);
    assert!(why[2].contains("[3, 16, 16]"), "{}", why[2]);
    assert!(why[3].contains("[times, 80]"), "{}", why[3]);
    assert!(why[4].contains("placeholders"), "{}", why[4]);
}

#[test]
fn every_recorded_model_is_tested() {
    let entries = std::fs::read_dir(folder("")).unwrap();
    let mut recorded: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    recorded.sort();
    let mut tested: Vec<PathBuf> = folders().collect();
    tested.sort();
    assert_eq!(recorded, tested);
}
