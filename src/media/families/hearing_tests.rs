//! Spectrograms and counts are those of transformers. `tests/fidelity/make_hearing.py` recorded
//! them, and those of Granite Speech `make_granite_speech.py`.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::media::audio::decode;
use crate::media::families::processor_for;

#[derive(Deserialize)]
struct Golden {
    sounds: Vec<Sound>,
}

#[derive(Deserialize)]
struct Sound {
    /// Sounds of `speech`, one after the other.
    parts: Vec<String>,
    /// The samples of them that are taken.
    count: usize,
    mels: Vec<Vec<f32>>,
    frames: Option<usize>,
    num_embeds: usize,
}

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity")
}

fn samples(sound: &Sound) -> Vec<f32> {
    let read = |name: &String| {
        let file = std::fs::read(tests().join(format!("speech/{name}.wav"))).unwrap();
        decode(Arc::from(file), 16_000, 60).unwrap()
    };
    sound.parts.iter().flat_map(read).take(sound.count).collect()
}

#[test]
fn spectrograms_and_counts_are_those_of_transformers() {
    let models =
        ["qwen2_audio", "voxtral", "audio_flamingo_3", "music_flamingo", "glm_asr", "qwen3_asr"];
    let wide = models.map(|model| format!("{model}-wide"));
    let all = models.map(str::to_owned).into_iter().chain(wide);
    let granite = ["", "-wide", "_plus", "_plus-wide"].map(|form| format!("granite_speech{form}"));
    for model in all.chain(["qwen3_asr-published".to_owned()]).chain(granite) {
        let folder = tests().join("hearing").join(&model);
        let golden = std::fs::read(folder.join("golden.json")).unwrap();
        let golden: Golden = serde_json::from_slice(&golden).unwrap();
        let processor = processor_for(&folder, |_| Vec::new()).unwrap().unwrap();
        for sound in golden.sounds {
            let what = format!("{model}: {:?}", sound.parts);
            let media = processor.audio(&samples(&sound), &Map::new()).unwrap();
            assert_eq!(media.num_embeds, sound.num_embeds, "{what}");
            assert!(media.num_embeds <= processor.max_item_embeds(), "{what}");
            let tokens = processor.tokens(&media);
            let count = tokens.iter().filter(|token| processor.is_placeholder(**token)).count();
            assert_eq!(count, media.num_embeds, "{what}");
            let num_marks = if model.starts_with("music_flamingo") { 2 } else { 0 };
            assert_eq!(tokens.len(), media.num_embeds + num_marks, "{what}");
            let (mels, rest) = media.tensors.split_at(sound.mels.len());
            for (tensor, expected) in mels.iter().zip(&sound.mels) {
                let values = tensor.data.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x));
                let values: Vec<f32> = values.collect();
                assert_eq!(values.len(), expected.len(), "{what}");
                for (got, expected) in values.iter().zip(expected) {
                    assert!((got - expected).abs() <= 1e-4, "{what}: {got}, not {expected}");
                }
            }
            let frames = rest.first().map(|tensor| tensor.shape[0]);
            assert_eq!(frames, sound.frames, "{what}");
        }
    }
}

#[test]
fn sounds_without_an_embedding_are_refused() {
    let model = |name: &str| {
        processor_for(&tests().join("hearing").join(name), |_| Vec::new()).unwrap().unwrap()
    };
    let of = |name: &str, count: usize| model(name).audio(&vec![0.1; count], &Map::new());
    // Three windows have two frames.
    assert!(of("qwen2_audio", 321).is_ok());
    for (name, count) in [("qwen2_audio", 320), ("qwen2_audio", 0), ("voxtral", 0)] {
        assert!(matches!(of(name, count), Err(MediaError::Invalid { .. })), "{name} {count}");
    }
    // Seven windows have four frames, of which GLM-ASR makes an embedding.
    assert!(of("glm_asr", 1201).is_ok());
    for (name, count) in [("audio_flamingo_3", 320), ("audio_flamingo_3", 0), ("glm_asr", 1200)] {
        assert!(matches!(of(name, count), Err(MediaError::Invalid { .. })), "{name} {count}");
    }
    let too_long = of("voxtral", 81 * 16_000);
    assert!(matches!(too_long, Err(MediaError::TooLarge { size: 81, limit: 80, .. })));
}

#[test]
fn the_processor_says_how_much_of_a_sound_is_heard() {
    let copy = tempfile::TempDir::new().unwrap();
    let from = tests().join("hearing/audio_flamingo_3");
    for file in ["config.json", "preprocessor_config.json"] {
        std::fs::copy(from.join(file), copy.path().join(file)).unwrap();
    }
    let settings = copy.path().join("processor_config.json");
    let load = |seconds: Value| {
        let fields = json!({ "processor_class": "x", "max_audio_len": seconds });
        std::fs::write(&settings, fields.to_string()).unwrap();
        processor_for(copy.path(), |_| Vec::new()).map(Option::unwrap)
    };
    let num_embeds = |seconds: Value| {
        let media = load(seconds).unwrap().audio(&vec![0.1; 5 * 16_000], &Map::new()).unwrap();
        assert_eq!(media.tensors.len(), media.num_embeds / 25 + 1);
        media.num_embeds
    };
    assert_eq!(num_embeds(json!(3)), 3 * 25);
    assert_eq!(num_embeds(json!(2.5)), 2 * 25);
    assert_eq!(num_embeds(Value::Null), 5 * 25);
    for wrong in [json!(0), json!("10"), json!(1e9)] {
        let why = load(wrong).err().unwrap().to_string();
        assert!(why.contains("max_audio_len"), "{why}");
    }
}

#[test]
fn an_extractor_of_another_form_than_the_tower_is_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let from = tests().join("hearing/qwen2_audio");
    std::fs::copy(from.join("config.json"), folder.path().join("config.json")).unwrap();
    let load = |fields: Value| {
        let path = folder.path().join("preprocessor_config.json");
        std::fs::write(path, fields.to_string()).unwrap();
        processor_for(folder.path(), |_| Vec::new()).err().map(|error| error.to_string())
    };
    assert_eq!(load(json!({"feature_size": 80, "chunk_length": 1})), None);
    let why = load(json!({"feature_size": 128, "chunk_length": 1})).unwrap();
    assert!(why.contains("`feature_size` is 128; expected 80"), "{why}");
    let why = load(json!({"feature_size": 80})).unwrap();
    assert!(why.contains("chunk_length") && why.contains("1 seconds"), "{why}");
}

#[test]
fn placeholders_are_numbered_as_in_vllm() {
    let folder = tests().join("hearing/qwen2_audio");
    let processor = processor_for(&folder, |_| Vec::new()).unwrap().unwrap();
    assert_eq!(
        processor.numbered_placeholder(Modality::Audio, 1),
        "Audio 2: <|audio_bos|><|AUDIO|><|audio_eos|>"
    );
}
