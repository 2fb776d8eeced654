//! Spectrograms are those of transformers. `tests/fidelity/make_speech.py` recorded them.

use std::{path::PathBuf, sync::Arc};

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::media::audio::decode;

#[derive(Deserialize)]
struct Columns {
    sound: String,
    bins: usize,
    columns: Vec<usize>,
    /// `[columns, bins]`.
    values: Vec<f32>,
}

#[derive(Deserialize)]
struct Sound {
    sound: String,
    mel: Vec<f32>,
}

fn recorded(file: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech");
    std::fs::read(folder.join(file)).unwrap()
}

fn samples(sound: &str) -> Vec<f32> {
    let file: Arc<[u8]> = recorded(sound).into();
    decode(file, 16_000, 60).unwrap()
}

fn assert_close(what: &str, got: impl Iterator<Item = f32>, expected: &[f32]) {
    let got: Vec<f32> = got.collect();
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() <= 1e-4, "{what}: [{i}] is {got}, not {expected}");
    }
}

#[test]
fn columns_of_thirty_seconds_are_those_of_transformers() {
    let all: Vec<Columns> = serde_json::from_slice(&recorded("mels.json")).unwrap();
    assert_eq!(all.len(), 6);
    for Columns { sound, bins, columns, values } in all {
        let config = read(&json!({ "feature_size": bins }), Path::new("a.json")).unwrap();
        let mel = MelExtractor::new(config).spectrogram(&samples(&sound));
        let value = |column: usize, bin: usize| mel[bin * 3000 + column];
        let got = columns.iter().flat_map(|column| (0..bins).map(move |bin| value(*column, bin)));
        assert_close(&sound, got, &values);
    }
}

#[test]
fn whole_spectrograms_are_those_of_transformers() {
    for model in ["whisper", "whisper-untied"] {
        let all: Vec<Sound> =
            serde_json::from_slice(&recorded(&format!("{model}/golden.json"))).unwrap();
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech");
        let processor = WhisperProcessor::load(&folder.join(model)).unwrap();
        assert_eq!(processor.max_item_embeds(), 50);
        for Sound { sound, mel } in all {
            let media = processor.audio(&samples(&sound), &Map::new()).unwrap();
            let [tensor] = &media.tensors[..] else { panic!("one tensor") };
            assert_eq!(tensor.shape, [mel.len() / 100, 100]);
            let values = tensor.data.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x));
            assert_close(&sound, values, &mel);
        }
    }
}

#[test]
fn settings_have_the_defaults_of_transformers() {
    let read = |fields| read(&fields, Path::new("a.json"));
    let expected =
        MelConfig { num_bins: 80, rate: 16_000, n_fft: 400, hop_length: 160, seconds: 30 };
    assert_eq!(read(json!({})).unwrap(), expected);
    assert_eq!(read(json!({"feature_size": 128})).unwrap().num_bins, 128);
    // A spectrogram of HF `WhisperFeatureExtractor(do_normalize=True)` is that of `False`.
    assert_eq!(read(json!({"do_normalize": true})).unwrap(), expected);
    let why = read(json!({"hop_length": 0})).unwrap_err().to_string();
    assert_eq!(why, "a.json: `hop_length` is 0; expected an integer from 1 to 400");
}

/// The order is that of `AutoFeatureExtractor` in transformers 5.24.
#[test]
fn the_settings_in_those_of_the_whole_processor_go_first() {
    let folder = tempfile::TempDir::new().unwrap();
    let write = |file: &str, json: Value| {
        std::fs::write(folder.path().join(file), json.to_string()).unwrap();
    };
    let num_bins = || settings(folder.path()).map(|(config, _)| config.num_bins).unwrap();
    write("preprocessor_config.json", json!({ "feature_size": 96 }));
    write("processor_config.json", json!({ "processor_class": "WhisperProcessor" }));
    assert_eq!(num_bins(), 96);
    write("processor_config.json", json!({ "audio_processor": { "feature_size": 112 } }));
    assert_eq!(num_bins(), 112);
    let both = json!({
        "feature_extractor": { "feature_size": 128 }, "audio_processor": { "feature_size": 112 },
    });
    write("processor_config.json", both);
    assert_eq!(num_bins(), 128);
    std::fs::remove_file(folder.path().join("preprocessor_config.json")).unwrap();
    write("processor_config.json", json!({ "feature_size": 64 }));
    assert_eq!(num_bins(), 64);
}
