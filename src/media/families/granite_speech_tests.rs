//! Settings of the feature extractor, and sounds that are refused. Spectrograms are compared in
//! `hearing_tests.rs`.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::media::families::processor_for;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/hearing/granite_speech")
}

/// Returns the processor of a recorded model with other settings in `file`.
fn load(file: &str, settings: &Value) -> Result<Option<Arc<dyn FamilyProcessor>>, ConfigError> {
    let copy = tempfile::TempDir::new().unwrap();
    std::fs::copy(folder().join("config.json"), copy.path().join("config.json")).unwrap();
    std::fs::write(copy.path().join(file), settings.to_string()).unwrap();
    processor_for(copy.path(), |_| Vec::new())
}

#[test]
fn settings_that_transformers_does_not_read_are_refused() {
    for (field, settings) in [
        ("n_fft", json!({ "n_fft": 511 })),
        ("win_length", json!({ "win_length": 513 })),
        ("hop_length", json!({ "hop_length": 513 })),
        // 62 samples apart, the longest sound has 2^17 windows.
        ("hop_length", json!({ "hop_length": 61 })),
        ("n_mels", json!({ "n_mels": 64 })),
        ("sampling_rate", json!({ "sampling_rate": 1_000_000 })),
        ("projector_window_size", json!({ "projector_window_size": 10 })),
        ("projector_downsample_rate", json!({ "projector_downsample_rate": 3 })),
        ("melspec_kwargs.hop_length", json!({ "melspec_kwargs": { "hop_length": 80 } })),
        ("melspec_kwargs.sample_rate", json!({ "melspec_kwargs": { "sample_rate": 8_000 } })),
    ] {
        let why = load("preprocessor_config.json", &settings).err().unwrap().to_string();
        assert!(why.contains(&format!("`{field}` is")), "{why}");
    }
    for settings in [json!({}), json!({ "hop_length": 62 })] {
        assert!(load("preprocessor_config.json", &settings).is_ok());
    }
}

#[test]
fn the_settings_may_be_in_those_of_the_whole_processor() {
    let load = |settings: Value| load("processor_config.json", &settings);
    let rate = |settings: Value| load(settings).unwrap().unwrap().sampling_rate();
    assert_eq!(rate(json!({ "audio_processor": { "sampling_rate": 8_000 } })), 8_000);
    assert_eq!(rate(json!({ "sampling_rate": 8_000 })), 8_000);
    let why = load(json!({ "audio_processor": { "n_mels": 8 } })).err().unwrap().to_string();
    assert!(why.contains("processor_config.json") && why.contains("`audio_processor.n_mels`"));
}

#[test]
fn a_prompt_has_one_sound_of_a_length_that_is_heard() {
    let processor = processor_for(&folder(), |_| Vec::new()).unwrap().unwrap();
    assert_eq!((processor.most_items(), processor.max_item_embeds()), (Some(1), 5_001));
    let of = |count: usize| processor.audio(&vec![0.1; count], &Map::new());
    // Half of a transform has 256 samples.
    assert!(matches!(of(256), Err(MediaError::Invalid { .. })));
    assert_eq!(of(257).unwrap().tensors[0].shape, [1, 160]);
    // Fifteen states are a window.
    assert_eq!(of(30 * 160 - 1).unwrap().num_embeds, 3);
    assert_eq!(of(31 * 160).unwrap().num_embeds, 6);
    let too_long = of(500 * 16_000 + 1);
    assert!(matches!(too_long, Err(MediaError::TooLarge { size: 501, limit: 500, .. })));
}
