//! Images and sounds are those of transformers. `tests/fidelity/make_phi4.py` recorded them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use image::Rgb;
use playhouse_actors::ports::ReadyMedia;
use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::media::audio::decode;
use crate::media::expand::expanded;
use crate::media::families::processor_for;
use crate::model::config::ConfigSource;

#[derive(Deserialize)]
struct Golden {
    images: Vec<RecordedImage>,
    /// The same images in the authors' code.
    pillow: Vec<OfPillow>,
    sounds: Vec<RecordedSound>,
    #[serde(default)]
    counted: Vec<Counted>,
    /// The tokens of some texts.
    texts: BTreeMap<String, Vec<u32>>,
}

#[derive(Deserialize)]
struct RecordedImage {
    height: u32,
    width: u32,
    shape: Vec<usize>,
    pixels: String,
    tiles: Vec<usize>,
    whole: Vec<f32>,
    num_embeds: usize,
}

#[derive(Deserialize)]
struct OfPillow {
    pixels: String,
    whole: Vec<f32>,
}

#[derive(Deserialize)]
struct RecordedSound {
    /// Sounds of `speech`, one after the other.
    parts: Vec<String>,
    /// The samples of them that are taken.
    count: usize,
    shape: Vec<usize>,
    mel: Vec<f32>,
    num_embeds: usize,
}

/// The embeddings of an image with the settings of the class.
#[derive(Deserialize)]
struct Counted {
    height: usize,
    width: usize,
    num_embeds: usize,
}

/// The recorded models, and those with their answers.
const MODELS: [[&str; 2]; 4] = [
    ["phi4", "phi4"],
    ["phi4-wide", "phi4-wide"],
    ["phi4mm", "phi4"],
    ["phi4mm-wide", "phi4-wide"],
];

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity")
}

fn golden(name: &str) -> Golden {
    let golden = std::fs::read(tests().join("phi4").join(name).join("golden.json")).unwrap();
    serde_json::from_slice(&golden).unwrap()
}

fn processor(name: &str, texts: &BTreeMap<String, Vec<u32>>) -> Arc<dyn FamilyProcessor> {
    let texts = texts.clone();
    let folder = tests().join("phi4").join(name);
    processor_for(&folder, move |text| texts[text].clone()).unwrap().unwrap()
}

/// Draws an image by the formula of `make_vision.py`.
fn drawn(height: u32, width: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let channel = |c: u32| ((x * (c + 2) + y * 5 + x * y / 7 * (3 - c) + c * 40) % 256) as u8;
        Rgb([channel(0), channel(1), channel(2)])
    })
}

fn samples(sound: &RecordedSound) -> Vec<f32> {
    let read = |name: &String| {
        let file = std::fs::read(tests().join(format!("speech/{name}.wav"))).unwrap();
        decode(Arc::from(file), 16_000, 60).unwrap()
    };
    sound.parts.iter().flat_map(read).take(sound.count).collect()
}

fn assert_near(tensor: &MediaTensor, expected: &[f32], most: f32, what: &str) {
    let values = tensor.data.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value));
    let values: Vec<f32> = values.collect();
    assert_eq!(values.len(), expected.len(), "{what}");
    for (found, expected) in values.iter().zip(expected) {
        assert!((found - expected).abs() <= most, "{what}: {found}, not {expected}");
    }
}

#[test]
fn images_are_those_of_transformers() {
    for [model, answers] in MODELS {
        let golden = golden(answers);
        let processor = processor(model, &golden.texts);
        for (recorded, of_pillow) in golden.images.iter().zip(&golden.pillow) {
            let (pixels, whole_image) = match model == answers {
                true => (&recorded.pixels, &recorded.whole),
                false => (&of_pillow.pixels, &of_pillow.whole),
            };
            let what = format!("{model}: {} x {}", recorded.height, recorded.width);
            let image = drawn(recorded.height, recorded.width);
            let found = processor.image(&image, &Map::new()).unwrap();
            let [tiles, shape, whole] = &*found.tensors else { unreachable!() };
            assert_eq!((&tiles.shape, &shape.shape), (&recorded.shape, &recorded.tiles), "{what}");
            let hex: String = tiles.data.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(hex == *pixels, "{what}: other pixels");
            assert_near(whole, whole_image, 1e-5, &what);
            assert_eq!(found.num_embeds, recorded.num_embeds, "{what}");
            assert!(found.num_embeds <= processor.max_item_embeds(), "{what}");
            assert_eq!(processor.tokens(&found), vec![440; recorded.num_embeds], "{what}");
        }
    }
}

#[test]
fn sounds_are_those_of_transformers() {
    for [model, answers] in MODELS {
        let golden = golden(answers);
        let processor = processor(model, &golden.texts);
        for recorded in golden.sounds {
            let what = format!("{model}: {:?}", recorded.parts);
            let found = processor.audio(&samples(&recorded), &Map::new()).unwrap();
            let [mel] = &*found.tensors else { unreachable!() };
            assert_eq!(mel.shape, recorded.shape, "{what}");
            assert_near(mel, &recorded.mel, 1e-4, &what);
            assert_eq!(processor.tokens(&found), vec![441; recorded.num_embeds], "{what}");
        }
    }
}

/// Returns a processor with the settings of the class.
fn published() -> Phi4 {
    let folder = tempfile::TempDir::new().unwrap();
    let write = |file: &str, fields: Value| {
        std::fs::write(folder.path().join(file), fields.to_string()).unwrap();
    };
    write("config.json", json!({ "architectures": ["Phi4MMForCausalLM"] }));
    write("preprocessor_config.json", json!({ "dynamic_hd": 36 }));
    let source = ConfigSource::read(folder.path()).unwrap();
    let config = ProcessorConfig::read(folder.path()).unwrap().unwrap();
    let encode = |text: &str| match text {
        "<|endoftext10|>" => vec![200_010],
        "<|endoftext11|>" => vec![200_011],
        _ => vec![1, 2],
    };
    Phi4::read(source.fields(), &config, &encode).unwrap()
}

#[test]
fn published_settings_give_the_counts_of_transformers() {
    let processor = published();
    for Counted { height, width, num_embeds } in golden("phi4").counted {
        let (tiles, _) = processor.tiles([height, width]).unwrap();
        assert_eq!(tiles.num_embeds(32), num_embeds, "{height} x {width}");
    }
    assert_eq!(processor.placeholder(Modality::Image), "<|endoftext10|>");
    assert_eq!(processor.placeholder(Modality::Audio), "<|endoftext11|>");
    assert_eq!(processor.placeholder_tokens(Modality::Audio), [200_011]);
    let why = processor.tiles([5, 2_000]).err().unwrap().to_string();
    assert!(why.contains("at least 10"), "{why}");
}

#[test]
fn sounds_beside_images_have_a_name_of_their_own() {
    let golden = golden("phi4");
    let processor = processor("phi4", &golden.texts);
    let ready = |name: &str, media: ProcessedMedia| ReadyMedia {
        identifier: name.into(),
        media: Arc::new(media),
    };
    let sound = ready("s", processor.audio(&[0.1; 1_000], &Map::new()).unwrap());
    let image = ready("i", processor.image(&drawn(16, 16), &Map::new()).unwrap());
    let alone = expanded(&*processor, &[5, 441, 6], std::slice::from_ref(&sound)).unwrap();
    assert_eq!(&*alone.features[0].identifier, "s");
    assert_eq!(alone.features[0].media.tensors.len(), 1);
    let both = expanded(&*processor, &[441, 6, 440], &[image, sound]).unwrap();
    let names: Vec<&str> = both.features.iter().map(|it| &*it.identifier).collect();
    assert_eq!(names, ["beside_images:s", "i"]);
    assert_eq!(both.features[0].media.tensors[1].shape, [0]);
}

#[test]
fn clients_may_ask_for_fewer_tiles() {
    let golden = golden("phi4");
    let processor = processor("phi4", &golden.texts);
    let tiles = |kwargs: Value| {
        let found = processor.image(&drawn(60, 60), kwargs.as_object().unwrap());
        found.map(|it| it.tensors[0].shape[0]).map_err(|error| error.to_string())
    };
    assert_eq!(tiles(json!({})), Ok(4));
    assert_eq!(tiles(json!({ "dynamic_hd": 1 })), Ok(1));
    let why = tiles(json!({ "dynamic_hd": 0 })).unwrap_err();
    assert!(why.starts_with("mm_processor_kwargs: ") && why.contains("dynamic_hd"), "{why}");
}

#[test]
fn sounds_of_a_wrong_length_are_refused() {
    let golden = golden("phi4");
    let processor = processor("phi4", &golden.texts);
    let of = |count: usize| processor.audio(&vec![0.1; count], &Map::new());
    assert!(matches!(of(399), Err(MediaError::Invalid { .. })));
    let too_long = of(1_800 * 16_000 + 1);
    assert!(matches!(too_long, Err(MediaError::TooLarge { size: 1_801, limit: 1_800, .. })));
}
