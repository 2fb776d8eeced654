//! The images of Llama Nemotron VL: the fields of its config, and those of its processor.

use std::path::Path;

use super::config::PROCESSOR;
use super::{ProcessorConfig, TileImages, VisionFamily};
use crate::model::config::{ConfigError, Fields};
use crate::model_files;

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
/// [`ConfigError`] if the file cannot be read or is not a JSON object. The same if a field of it
/// asks for tiles that are not those of the tower.
pub(super) fn processor(model: &Path, outer: &Fields) -> Result<ProcessorConfig, ConfigError> {
    const TILED: &str = "dynamic_image_size";
    const THUMBNAIL: &str = "use_thumbnail";
    let config = ProcessorConfig::read_whole(model, outer)?;
    let mut image = config.image.with_aliases(TILES);
    require_tiles(&image, TileImages::read(VisionFamily::NemotronVl, outer)?)?;
    for field in [TILED, "min_dynamic_patch", "max_dynamic_patch"] {
        image.adopt(field, outer, field);
    }
    // The processor's class cuts images by default. Without its file, the class of the config does
    // not.
    if !image.has(TILED) && model_files::exists(&model.join(PROCESSOR)) {
        image = image.with(TILED, true.into());
    }
    if !image.has(THUMBNAIL) {
        image = image.with(THUMBNAIL, true.into());
    }
    Ok(ProcessorConfig { image, ..config })
}

/// Refuses fields of a processor that ask for other tiles than `images`.
fn require_tiles(fields: &Fields, images: TileImages) -> Result<(), ConfigError> {
    const NORM: &str = "norm_type";
    let sizes = [("image_size", images.image_size), ("num_image_token", images.num_embeds)];
    for (field, of_tower) in sizes {
        if fields.size(field)?.is_some_and(|size| size != of_tower) {
            return Err(fields.invalid(field, &format!("{of_tower}, as `config.json` says")));
        }
    }
    match fields.text(NORM)? {
        None | Some("siglip") => Ok(()),
        Some(_) => Err(fields.invalid(NORM, "\"siglip\"")),
    }
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
        let read = |config: Value, file: Option<Value>| {
            let image = processor_of(config, file).unwrap().image;
            let flag = |field: &str| image.flag(field).unwrap();
            let size = |field: &str| image.size(field).unwrap();
            (
                [size("min_dynamic_patch"), size("max_dynamic_patch")],
                [flag("dynamic_image_size"), flag("use_thumbnail")],
            )
        };
        assert_eq!(read(published(), None), ([None, Some(6)], [Some(true); 2]));
        let file = json!({
            "min_input_tiles": 2, "max_input_tiles": 4, "dynamic_image_size": false,
            "use_thumbnail": false,
        });
        assert_eq!(read(published(), Some(file)), ([Some(2), Some(4)], [Some(false); 2]));
        let mut bare = published();
        bare.as_object_mut().unwrap().remove("dynamic_image_size");
        assert_eq!(read(bare.clone(), None), ([None, Some(6)], [None, Some(true)]));
        assert_eq!(read(bare, Some(json!({}))), ([None, Some(6)], [Some(true); 2]));
    }

    #[test]
    fn the_tiles_of_the_processor_are_those_of_the_tower() {
        let own = json!({ "image_size": 512, "num_image_token": 256, "norm_type": "siglip" });
        assert!(processor_of(published(), Some(own.clone())).is_ok());
        for (field, value) in [
            ("image_size", json!(448)),
            ("num_image_token", json!(64)),
            ("norm_type", json!("imagenet")),
        ] {
            let mut file = own.clone();
            file[field] = value;
            let why = processor_of(published(), Some(file)).unwrap_err().to_string();
            assert!(why.contains("processor_config.json"), "{why}");
            assert!(why.contains(&format!("{field}` is ")), "{why}");
        }
    }

    /// Returns the processor of a folder with the file `processor_config.json`, or without it.
    fn processor_of(config: Value, file: Option<Value>) -> Result<ProcessorConfig, ConfigError> {
        let folder = TempDir::new().unwrap();
        if let Some(file) = file {
            std::fs::write(folder.path().join(PROCESSOR), file.to_string()).unwrap();
        }
        processor(folder.path(), &fields(config))
    }
}
