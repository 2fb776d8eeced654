//! The images of Llama Nemotron VL: the fields of its config, and those of its processor.

use std::path::Path;

use super::ProcessorConfig;
use crate::model::config::{ConfigError, Fields};

/// The token in the places of embeddings, by default of the authors' config.
pub(super) const PLACEHOLDER: u32 = 128_258;

/// The other names of the least and the most tiles in `processor_config.json`.
const TILES: &[(&str, &str)] =
    &[("min_input_tiles", "min_dynamic_patch"), ("max_input_tiles", "max_dynamic_patch")];

/// Reads the processor of the model in the folder `model`, whose `config.json` has the fields
/// `outer`. As in vLLM, they count where `processor_config.json` has none. The fields of tiles have
/// their names in `config.json`.
///
/// # Errors
/// [`ConfigError`] if the file cannot be read, or is not a JSON object.
pub(super) fn processor(model: &Path, outer: &Fields) -> Result<ProcessorConfig, ConfigError> {
    const THUMBNAIL: &str = "use_thumbnail";
    let config = ProcessorConfig::read_whole(model, outer)?;
    let mut image = config.image.with_aliases(TILES);
    for field in ["dynamic_image_size", "min_dynamic_patch", "max_dynamic_patch"] {
        image.adopt(field, outer, field);
    }
    if !image.has(THUMBNAIL) {
        image = image.with(THUMBNAIL, true.into());
    }
    Ok(ProcessorConfig { image, ..config })
}

/// Refuses another tower than SigLIP, other states than its last, and another order of patches.
/// `vision` is `vision_config` of `outer`.
pub(super) fn require_served(outer: &Fields, vision: &Fields) -> Result<(), ConfigError> {
    const TYPE: &str = "model_type";
    const LAYER: &str = "select_layer";
    const VERSION: &str = "ps_version";
    if vision.text(TYPE)?.is_some_and(|name| name != "siglip_vision_model") {
        return Err(vision.invalid(TYPE, "\"siglip_vision_model\""));
    }
    if outer.integer(LAYER)?.is_some_and(|layer| layer != -1) {
        return Err(outer.invalid(LAYER, "-1: the normed states behind the last layer"));
    }
    match outer.text(VERSION)? {
        None | Some("v2") => Ok(()),
        Some(_) => Err(outer.invalid(VERSION, "\"v2\"")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;
    use crate::model::config::fields;
    use crate::model::vision::{TileImages, VisionFamily};

    /// The fields of the published models that are read.
    fn published() -> Value {
        json!({
            "downsample_ratio": 0.5, "dynamic_image_size": true, "force_image_size": 512,
            "img_context_token_id": 128_258, "max_dynamic_patch": 6, "select_layer": -1,
            "vision_config": {
                "model_type": "siglip_vision_model", "image_size": 512, "patch_size": 16,
            },
        })
    }

    fn images(config: Value) -> Result<TileImages, String> {
        let read = TileImages::read(VisionFamily::NemotronVl, &fields(config));
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_field_that_is_not_served_is_named() {
        let read = images(published()).unwrap();
        // As in its model card: a tile is 256 tokens.
        assert_eq!((read.placeholder, read.num_embeds, read.image_size), (128_258, 256, 512));
        let mut other = published();
        other["img_context_token_id"] = json!(7);
        assert_eq!(images(other).unwrap().placeholder, 7);
        for (field, value) in [
            ("select_layer", json!(-2)),
            ("ps_version", json!("v1")),
            ("force_image_size", json!(448)),
            ("downsample_ratio", json!(0.3)),
        ] {
            let mut config = published();
            config[field] = value;
            let why = images(config).unwrap_err();
            assert!(why.contains(&format!("{field}` is ")), "{why}");
        }
        let mut config = published();
        config["vision_config"]["model_type"] = json!("clip_vision_model");
        let why = images(config).unwrap_err();
        assert!(why.contains("vision_config.model_type"), "{why}");
    }

    #[test]
    fn the_file_of_the_processor_counts_first() {
        let read = |file: Option<Value>| {
            let folder = TempDir::new().unwrap();
            if let Some(file) = file {
                let path = folder.path().join("processor_config.json");
                std::fs::write(path, file.to_string()).unwrap();
            }
            let image = processor(folder.path(), &fields(published())).unwrap().image;
            let flag = |field: &str| image.flag(field).unwrap();
            let size = |field: &str| image.size(field).unwrap();
            (
                [size("min_dynamic_patch"), size("max_dynamic_patch")],
                [flag("dynamic_image_size"), flag("use_thumbnail")],
            )
        };
        assert_eq!(read(None), ([None, Some(6)], [Some(true); 2]));
        let file = json!({
            "min_input_tiles": 2, "max_input_tiles": 4, "dynamic_image_size": false,
            "use_thumbnail": false,
        });
        assert_eq!(read(Some(file)), ([Some(2), Some(4)], [Some(false); 2]));
    }
}
