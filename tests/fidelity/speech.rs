//! Compares models that hear with transformers in float32. `make_speech.py` made the models and
//! their answers. Spectrograms are compared in `src/media/families/whisper_tests.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use playhouse::model::{
    Dtype, EncoderOutput, LoadOptions, MediaData, MediaInput, MediaTensorView, Model, load_model,
};
use serde::Deserialize;

use crate::TOLERANCE;
use crate::runner::{Chunking, Runner, log_softmax};

/// The answers of transformers about one sound.
#[derive(Deserialize)]
struct Sound {
    mel: Vec<f32>,
    states: Vec<f64>,
    last_key: Vec<f64>,
    last_value: Vec<f64>,
    prompt_token_ids: Vec<u32>,
    greedy_token_ids: Vec<u32>,
    /// The log-probabilities of all tokens, after the tokens `rows`.
    log_probs: Vec<Vec<f64>>,
    rows: Vec<usize>,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech").join(name)
}

/// Returns the folders of all models.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    ["whisper", "whisper-untied"].into_iter().map(folder)
}

fn model(name: &str) -> (Arc<Model>, Vec<Sound>) {
    let options = LoadOptions { dtype: Dtype::Float32, ..LoadOptions::default() };
    let model = load_model(&folder(name), &options, &mut |_| ()).unwrap();
    let golden = std::fs::read(folder(name).join("golden.json")).unwrap();
    (model, serde_json::from_slice(&golden).unwrap())
}

fn encoded(model: &Model, sounds: &[&Sound]) -> Vec<EncoderOutput> {
    let bytes: Vec<Vec<u8>> = sounds
        .iter()
        .map(|sound| sound.mel.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let shapes: Vec<[usize; 2]> = sounds.iter().map(|sound| [sound.mel.len() / 100, 100]).collect();
    let inputs: Vec<_> = bytes
        .iter()
        .zip(&shapes)
        .map(|(bytes, shape)| MediaInput {
            tensors: vec![MediaTensorView { shape, data: MediaData::F32(bytes) }],
            num_embeds: 50,
            grid: None,
        })
        .collect();
    model.media.as_ref().unwrap().encode(&inputs).into_iter().map(Result::unwrap).collect()
}

fn values(tensor: &burn::tensor::Tensor<2>) -> Vec<f32> {
    tensor.clone().into_data().try_to_vec().unwrap()
}

fn assert_close(what: &str, got: &[f32], expected: &[f64]) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let difference = (f64::from(*got) - expected).abs();
        assert!(difference <= TOLERANCE, "{what}: [{i}] is {got}, not {expected}");
    }
}

/// Checks states, keys, values, log-probabilities and tokens, and that no byte depends on the batch
/// or on how a prompt is cut.
fn check(name: &str) {
    let (model, sounds) = model(name);
    let all = encoded(&model, &sounds.iter().collect::<Vec<_>>());
    for (sound, output) in sounds.iter().zip(&all) {
        assert_close(name, &values(&output.embeddings), &sound.states);
        let [.., keys, last_values] = &output.by_layer[..] else { unreachable!("{name}") };
        let last_row = |tensor| {
            let (all, width) = (values(tensor), sound.last_key.len());
            all[all.len() - width..].to_vec()
        };
        assert_close(name, &last_row(keys), &sound.last_key);
        assert_close(name, &last_row(last_values), &sound.last_value);
        let alone = encoded(&model, &[sound]);
        let bits = |output: &EncoderOutput| {
            let tensors = output.by_layer.iter().chain([&output.embeddings]);
            tensors.flat_map(values).map(f32::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(bits(&alone[0]), bits(output), "{name}: a sound alone");
    }
    let prompts: Vec<&[u32]> = sounds.iter().map(|sound| &*sound.prompt_token_ids).collect();
    let attended: Vec<_> = all.into_iter().map(|output| Some(Arc::new(output))).collect();
    let runner = Runner::new(model, &Device::flex());
    let whole = runner.answer_about(&prompts, &attended, Chunking::Whole);
    for (sound, answer) in sounds.iter().zip(&whole) {
        assert_eq!(answer.greedy, sound.greedy_token_ids, "{name}");
        let rows: Vec<_> = answer.prompt_rows.iter().chain(&answer.greedy_rows[1..]).collect();
        for (row, expected) in sound.rows.iter().zip(&sound.log_probs) {
            let found: Vec<f32> = log_softmax(rows[*row]).iter().map(|x| *x as f32).collect();
            assert_close(name, &found, expected);
        }
    }
    for chunking in [Chunking::Chunks(16), Chunking::Chunks(1), Chunking::Ragged] {
        let answers = runner.answer_about(&prompts, &attended, chunking);
        for (answer, expected) in answers.iter().zip(&whole) {
            assert!(answer.bits().eq(expected.bits()), "{name}: other bytes in {chunking:?}");
        }
    }
    // Sequences without a sound beside those with one.
    let mixed = [attended[0].clone(), None, attended[2].clone()];
    let together = runner.answer_about(&prompts, &mixed, Chunking::Ragged);
    assert!(together[0].bits().eq(whole[0].bits()), "{name}: beside a text");
    let alone = runner.answer(&prompts[1..2], Chunking::Whole);
    assert!(together[1].bits().eq(alone[0].bits()), "{name}: a text beside sounds");
}

#[test]
fn whisper() {
    check("whisper");
}

#[test]
fn whisper_untied() {
    check("whisper-untied");
}

#[test]
fn a_spectrogram_of_another_form_is_refused() {
    let (model, sounds) = model("whisper");
    let mut short = sounds.into_iter().next().unwrap();
    short.mel.truncate(70 * 100);
    let bytes: Vec<u8> = short.mel.iter().flat_map(|value| value.to_le_bytes()).collect();
    let tensors = vec![MediaTensorView { shape: &[70, 100], data: MediaData::F32(&bytes) }];
    let inputs = [MediaInput { tensors, ..MediaInput::default() }, MediaInput::default()];
    let results = model.media.as_ref().unwrap().encode(&inputs);
    assert_eq!(
        results[0].as_ref().unwrap_err(),
        "a spectrogram is 80 bins at 100 times, not [70, 100]"
    );
    assert!(results[1].is_err());
}
