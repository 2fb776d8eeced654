//! Models with sounds in their prompts against transformers in float32. `make_hearing.py` and
//! `make_granite_speech.py` made the models and their answers. Spectrograms are compared in
//! `src/media/families/hearing_tests.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse::model::{
    Dtype, EncoderOutput, LoadOptions, MediaData, MediaInput, MediaTensorView, Model, load_model,
};
use serde::Deserialize;

use crate::vision::{self, Prompt};

/// The largest accepted difference of an embedding, relative to the largest of its sound.
const EMBEDDINGS: f32 = 2e-5;

const MODELS: [&str; 17] = [
    "qwen2_audio",
    "qwen2_audio-wide",
    "voxtral",
    "voxtral-wide",
    "audio_flamingo_3",
    "audio_flamingo_3-wide",
    "music_flamingo",
    "music_flamingo-wide",
    "glm_asr",
    "glm_asr-wide",
    "qwen3_asr",
    "qwen3_asr-wide",
    "qwen3_asr-published",
    "granite_speech",
    "granite_speech-wide",
    "granite_speech_plus",
    "granite_speech_plus-wide",
];

/// The content of `golden.json`.
#[derive(Deserialize)]
struct Golden {
    sounds: Vec<Sound>,
    prompts: Vec<Prompt>,
}

/// The spectrograms of a sound, and its embeddings.
#[derive(Deserialize)]
struct Sound {
    shapes: Vec<Vec<usize>>,
    mels: Vec<Vec<f32>>,
    /// Those of the last spectrogram that hold sound, unless all are encoded.
    frames: Option<usize>,
    num_embeds: usize,
    embeddings: Vec<f32>,
}

/// Returns the folder of a recorded model.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/hearing").join(name)
}

/// Returns the folders of all models.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    MODELS.into_iter().map(folder)
}

fn load(name: &str) -> (Arc<Model>, Golden) {
    let options = LoadOptions { dtype: Dtype::Float32, ..LoadOptions::default() };
    let model = load_model(&folder(name), &options, &mut |_| {}).unwrap();
    let golden = std::fs::read(folder(name).join("golden.json")).unwrap();
    (model, serde_json::from_slice(&golden).unwrap())
}

/// Encodes sounds together.
fn encoded(model: &Model, sounds: &[&Sound]) -> Vec<Result<EncoderOutput, String>> {
    let bytes = |mel: &Vec<f32>| mel.iter().flat_map(|value| value.to_le_bytes()).collect();
    let all: Vec<Vec<Vec<u8>>> =
        sounds.iter().map(|sound| sound.mels.iter().map(bytes).collect()).collect();
    let frames: Vec<Vec<usize>> =
        sounds.iter().map(|sound| sound.frames.into_iter().collect()).collect();
    let inputs: Vec<MediaInput<'_>> = sounds
        .iter()
        .zip(&all)
        .zip(&frames)
        .map(|((sound, mels), frames)| {
            let mels = sound.shapes.iter().zip(mels);
            let mels =
                mels.map(|(shape, mel)| MediaTensorView { shape, data: MediaData::F32(mel) });
            let frames = (!frames.is_empty())
                .then_some(MediaTensorView { shape: frames, data: MediaData::F32(&[]) });
            MediaInput {
                tensors: mels.chain(frames).collect(),
                num_embeds: sound.num_embeds,
                grid: None,
            }
        })
        .collect();
    model.media.as_ref().unwrap().encode(&inputs)
}

fn values(output: &EncoderOutput) -> Vec<f32> {
    output.embeddings.clone().into_data().try_to_vec().unwrap()
}

fn check(name: &str) {
    let (model, golden) = load(name);
    let sounds: Vec<&Sound> = golden.sounds.iter().collect();
    let mut outputs = Vec::new();
    for (sound, together) in sounds.iter().zip(encoded(&model, &sounds)) {
        let together = values(&together.unwrap());
        let alone = encoded(&model, &[sound]).remove(0).unwrap();
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        assert_eq!(bits(&values(&alone)), bits(&together), "{name}: a sound alone");
        let difference = vision::difference(&together, &sound.embeddings);
        assert!(difference <= EMBEDDINGS, "{name}: embeddings differ by {difference}");
        outputs.push(Arc::new(alone));
    }
    for prompt in &golden.prompts {
        vision::check_prompt(name, &model, prompt, &outputs);
    }
}

#[test]
fn qwen2_audio() {
    check("qwen2_audio");
}

#[test]
fn qwen2_audio_wide() {
    check("qwen2_audio-wide");
}

#[test]
fn voxtral() {
    check("voxtral");
}

#[test]
fn voxtral_wide() {
    check("voxtral-wide");
}

#[test]
fn audio_flamingo_3() {
    check("audio_flamingo_3");
}

#[test]
fn audio_flamingo_3_wide() {
    check("audio_flamingo_3-wide");
}

#[test]
fn music_flamingo() {
    check("music_flamingo");
}

#[test]
fn music_flamingo_wide() {
    check("music_flamingo-wide");
}

#[test]
fn glm_asr() {
    check("glm_asr");
}

#[test]
fn glm_asr_wide() {
    check("glm_asr-wide");
}

#[test]
fn qwen3_asr() {
    check("qwen3_asr");
}

#[test]
fn qwen3_asr_wide() {
    check("qwen3_asr-wide");
}

#[test]
fn qwen3_asr_as_published() {
    check("qwen3_asr-published");
}

#[test]
fn granite_speech() {
    check("granite_speech");
}

#[test]
fn granite_speech_wide() {
    check("granite_speech-wide");
}

#[test]
fn granite_speech_plus() {
    check("granite_speech_plus");
}

#[test]
fn granite_speech_plus_wide() {
    check("granite_speech_plus-wide");
}

#[test]
fn sounds_of_granite_speech_of_another_form_are_refused() {
    let (model, mut golden) = load("granite_speech");
    let [first, second, third, ..] = &mut golden.sounds[..] else { unreachable!() };
    first.num_embeds += 1;
    second.shapes[0] = vec![50, 80];
    third.frames = Some(3);
    let results = encoded(&model, &[&*first, &*second, &*third]);
    let why: Vec<String> = results.into_iter().map(|result| result.err().unwrap()).collect();
    assert_eq!(why[0], "the item has 12 embeddings, and 13 placeholders");
    assert_eq!(why[1], "a spectrogram is [states, 160], not [50, 80]");
    assert_eq!(why[2], "a sound is one spectrogram");
}

/// Its adapter is beside its weights, which requests name.
#[test]
fn granite_speech_may_have_an_adapter_in_its_folder() {
    let copy = tempfile::TempDir::new().unwrap();
    let adapter = folder("../adapters_granite_speech/granite_speech/a");
    for entry in [folder("granite_speech"), adapter].iter().flat_map(|it| it.read_dir().unwrap()) {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let options = LoadOptions { dtype: Dtype::Float32, ..LoadOptions::default() };
    let model = load_model(copy.path(), &options, &mut |_| {}).unwrap();
    assert!(model.media.is_some());
}

#[test]
fn parts_of_qwen3_asr_of_another_form_are_refused() {
    let (model, mut golden) = load("qwen3_asr");
    let [first, second, third, ..] = &mut golden.sounds[..] else { unreachable!() };
    first.num_embeds += 1;
    second.shapes[0].reverse();
    // The first part is shorter than the second.
    let times = |sound: &Sound| sound.shapes.iter().map(|shape| shape[1]).collect::<Vec<_>>();
    assert_eq!((times(first), times(third)), (vec![100], vec![95]));
    third.shapes.push(third.shapes[0].clone());
    third.mels.push(third.mels[0].clone());
    let results = encoded(&model, &[&*first, &*second, &*third]);
    let why: Vec<String> = results.into_iter().map(|result| result.err().unwrap()).collect();
    assert!(why[0].contains("placeholders"), "{}", why[0]);
    assert!(why[1].contains("24 bins at 100 times, not [50, 24]"), "{}", why[1]);
    assert!(why[2].contains("24 bins at 100 times, not [24, 95]"), "{}", why[2]);
}

#[test]
fn sounds_of_another_form_are_refused() {
    let (model, mut golden) = load("qwen2_audio");
    let [first, second, third, ..] = &mut golden.sounds[..] else { unreachable!() };
    first.frames = None;
    second.frames = Some(51);
    third.num_embeds += 1;
    let results = encoded(&model, &[&*first, &*second, &*third]);
    let why: Vec<String> = results.into_iter().map(|result| result.err().unwrap()).collect();
    assert_eq!(why[0], "a sound is a spectrogram and its number of frames");
    assert_eq!(why[1], "a sound of 51 frames; expected 2 to 50");
    assert!(why[2].contains("placeholders"), "{}", why[2]);
}

#[test]
fn a_field_of_the_tower_without_a_valid_value_is_named() {
    for (name, field, value) in [
        ("qwen2_audio", "encoder_attention_heads", serde_json::json!(5)),
        ("voxtral", "num_attention_heads", serde_json::json!(5)),
        ("voxtral", "intermediate_size", serde_json::json!(80)),
        ("voxtral", "activation_function", serde_json::json!("new_act")),
        ("audio_flamingo_3", "max_source_positions", serde_json::json!(51)),
        ("glm_asr", "intermediate_size", serde_json::json!(64)),
        ("glm_asr", "num_key_value_heads", serde_json::json!(1)),
        ("glm_asr", "head_dim", serde_json::json!(8)),
        ("glm_asr", "hidden_act", serde_json::json!("new_act")),
        ("glm_asr", "rope_parameters", serde_json::json!({"rope_type": "linear"})),
        ("qwen3_asr", "n_window", serde_json::json!(40)),
        ("qwen3_asr", "n_window_infer", serde_json::json!(150)),
        ("qwen3_asr", "max_position_embeddings", serde_json::json!(12)),
    ] {
        let why = refused(name, |config| config["audio_config"][field] = value.clone());
        assert!(why.contains(field), "{name}: {why}");
    }
    for (field, value) in [
        ("rope_type", serde_json::json!("linear")),
        ("rope_theta", serde_json::json!(24)),
        ("partial_rotary_factor", serde_json::json!(0.75)),
    ] {
        let name = "music_flamingo";
        let why = refused(name, |config| config["rope_parameters"][field] = value.clone());
        assert!(why.contains(field), "{name}: {why}");
    }
}

/// Returns the fault of a recorded model with another config.
fn refused(name: &str, change: impl Fn(&mut serde_json::Value)) -> String {
    let copy = tempfile::TempDir::new().unwrap();
    for entry in std::fs::read_dir(folder(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = copy.path().join("config.json");
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(path, config.to_string()).unwrap();
    let why = load_model(copy.path(), &LoadOptions::default(), &mut |_| {}).err().unwrap();
    why.to_string()
}
