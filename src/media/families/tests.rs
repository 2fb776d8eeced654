//! The processors against transformers, pixel by pixel: on the images that
//! `tests/fidelity/make_vision.py` drew and recorded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use image::{Rgb, RgbImage};
use playhouse_actors::logic::request::media::Modality;
use serde::Deserialize;
use serde_json::{Map, json};

use super::processor_for;
use crate::media::processor::FamilyProcessor;

#[derive(Deserialize)]
struct Golden {
    images: Vec<Recorded>,
    /// The tokens of some texts.
    texts: BTreeMap<String, Vec<u32>>,
}

impl Golden {
    fn read(model: &Path) -> Self {
        let golden = std::fs::read(model.join("golden.json")).unwrap();
        serde_json::from_slice(&golden).unwrap()
    }

    fn processor(&self, model: &Path) -> Arc<dyn FamilyProcessor> {
        processor_for(model, &|text| self.texts[text].clone()).unwrap().unwrap()
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
    num_embeds: usize,
    tokens: Vec<u32>,
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
            let tokens = processor.tokens(&item);
            assert_eq!(tokens, recorded.tokens, "{name}");
            let count = tokens.iter().filter(|token| processor.is_placeholder(**token)).count();
            assert_eq!(count, item.num_embeds, "{name}");
            assert!(processor.is_placeholder(placeholder));
        }
    }
}

#[test]
fn clients_may_ask_for_fewer_pixels_and_not_for_more() {
    let model = models().into_iter().find(|model| model.ends_with("qwen3_vl")).unwrap();
    let processor = Golden::read(&model).processor(&model);
    let embeds = |kwargs: serde_json::Value| {
        let item = processor.image(&drawn(96, 96), kwargs.as_object().unwrap());
        item.map(|item| item.num_embeds).map_err(|error| error.to_string())
    };
    assert_eq!(embeds(json!({})), Ok(9));
    assert_eq!(embeds(json!({ "size": { "longest_edge": 4096 } })), Ok(4));
    assert_eq!(embeds(json!({ "max_pixels": 1024, "nonsense": 3 })), Ok(1));
    for kwargs in [json!({ "max_pixels": 1_000_000 }), json!({ "size": { "shortest_edge": "1" } })]
    {
        assert!(embeds(kwargs).unwrap_err().starts_with("mm_processor_kwargs: "));
    }
}

#[test]
fn models_without_a_processor_of_images_have_none() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models");
    for model in ["llama-tied", "llava", "qwen3_vl", "gemma3_vl"] {
        assert!(processor_for(&models.join(model), &|_| Vec::new()).unwrap().is_none(), "{model}");
    }
}
