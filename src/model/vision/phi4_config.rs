//! The tower of Phi-4-multimodal, as `config.json` describes it: HF `Phi4MultimodalVisionConfig`,
//! or the object `embd_layer` of the authors' code, where the tower itself has no fields.

use playhouse_kernels::Activation;
use serde_json::Value;

use super::block::{BlockConfig, HeadNorms};
use super::llava::side;
use super::pixels::PatchSize;
use super::vit_names::SIGLIP;
use super::{activation, token};
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;

/// The shape of a tower with its projector.
#[derive(Debug, Clone)]
pub(crate) struct Phi4Config {
    pub(super) block: BlockConfig,
    /// The number of layers whose states are the features.
    pub(super) num_layers: usize,
    pub(super) patch: PatchSize,
    /// Pixels on a side of a tile.
    pub(crate) image_size: usize,
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// The width of the text model.
    pub(super) outputs: usize,
}

impl Phi4Config {
    /// Reads the tower of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(outer: &Fields, outputs: usize) -> Result<Self, ConfigError> {
        const HEADS: &str = "num_attention_heads";
        const PATCH: &str = "patch_size";
        const CHANNELS: &str = "num_channels";
        let vision = &vision_fields(outer)?;
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(vision.size(field)?.unwrap_or(default))
        };
        let (hidden_size, num_heads) = (size("hidden_size", 1_152)?, size(HEADS, 16)?);
        if !hidden_size.is_multiple_of(num_heads) {
            return Err(vision.invalid(HEADS, &format!("a divisor of {hidden_size}")));
        }
        if size(CHANNELS, 3)? != 3 {
            return Err(vision.invalid(CHANNELS, "3"));
        }
        let image_size = side(vision, "image_size", 448)?;
        let patch = side(vision, PATCH, 14)?;
        if !image_size.is_multiple_of(patch) || image_size < 2 * patch {
            let expected = format!("a divisor of image_size, {image_size}, at most a half of it");
            return Err(vision.invalid(PATCH, &expected));
        }
        if size("crop_size", 448)? != image_size {
            return Err(vision.invalid("crop_size", &format!("{image_size}, as image_size")));
        }
        let eps = vision.positive("layer_norm_eps")?.unwrap_or(1e-6) as f32;
        Ok(Self {
            block: BlockConfig {
                names: &SIGLIP.block,
                hidden_size,
                intermediate_size: size("intermediate_size", 4_304)?,
                num_heads,
                num_kv_heads: num_heads,
                norm: NormConfig { kind: NormKind::Layer { has_bias: true }, eps },
                activation: activation(vision, "hidden_act", Activation::GeluTanh)?,
                qkv_bias: true,
                o_bias: true,
                mlp_bias: true,
                head_norms: HeadNorms::None,
                has_neighbour_pairs: false,
            },
            num_layers: feature_layer(vision, size("num_hidden_layers", 27)?)?,
            patch: PatchSize { side: patch, frames: 1 },
            image_size,
            placeholder: token(vision, "image_token_id")?.unwrap_or(200_010),
            outputs,
        })
    }

    /// Returns the patches on a side of a tile.
    pub(crate) fn patches(&self) -> usize {
        self.image_size / self.patch.side
    }

    /// Returns the pixels on a side of a patch.
    pub(crate) fn patch_size(&self) -> usize {
        self.patch.side
    }
}

/// Returns the fields of the tower.
fn vision_fields(outer: &Fields) -> Result<Fields, ConfigError> {
    const TOWER: &str = "img_processor";
    const FEATURE: &str = "type_feature";
    if let Some(vision) = outer.nested("vision_config")? {
        return Ok(vision);
    }
    let layer = outer.nested("embd_layer")?;
    let layer = layer.map(|layer| layer.nested("image_embd_layer")).transpose()?.flatten();
    let layer = layer.unwrap_or_else(|| Fields::empty_in(outer));
    for (field, expected) in [
        ("hd_transform_order", "sub_glb"),
        ("image_token_compression_cls", "avg_pool_2d"),
        ("projection_cls", "mlp"),
    ] {
        if layer.text(field)?.is_some_and(|value| value != expected) {
            return Err(layer.invalid(field, &format!("\"{expected}\"")));
        }
    }
    for field in ["use_hd_transform", "with_learnable_separator"] {
        if !layer.flag_or(field, true)? {
            return Err(layer.invalid(field, "true"));
        }
    }
    let mut vision = Fields::empty_in(outer);
    vision.replace("crop_size", &layer, "crop_size");
    // It may also be a name.
    if outer.value(TOWER).is_some_and(Value::is_object)
        && let Some(encoder) = outer.nested(TOWER)?
    {
        if encoder.text(FEATURE)?.is_some_and(|value| value != "patch") {
            return Err(encoder.invalid(FEATURE, "\"patch\""));
        }
        vision.replace("feature_layer", &encoder, "layer_idx");
    }
    Ok(vision)
}

/// Returns after how many layers the states are features. Negative numbers count from the last.
fn feature_layer(vision: &Fields, num_layers: usize) -> Result<usize, ConfigError> {
    const FIELD: &str = "feature_layer";
    let index = match vision.value(FIELD) {
        None => Some(-2),
        Some(value) => value.as_i64(),
    };
    let states = num_layers as i64 + 1;
    let index = index.map(|index| if index < 0 { states + index } else { index });
    let found = index.filter(|index| (0..states).contains(index));
    found
        .map(|index| index as usize)
        .ok_or_else(|| vision.invalid(FIELD, &format!("a number from -{states} to {num_layers}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::config::fields;

    #[test]
    fn the_authors_object_gives_the_published_tower() {
        let of_authors = json!({ "embd_layer": { "image_embd_layer": {
            "crop_size": 448, "hd_transform_order": "sub_glb", "use_hd_transform": true,
            "with_learnable_separator": true, "image_token_compression_cls": "avg_pool_2d",
        } }, "img_processor": null });
        let config = Phi4Config::read(&fields(of_authors), 3_072).unwrap();
        assert_eq!((config.patches(), config.num_layers, config.placeholder), (32, 26, 200_010));
        assert_eq!(config.block.head_dim(), 72);
    }

    #[test]
    fn other_towers_are_refused() {
        let of = |json: Value| Phi4Config::read(&fields(json), 8).err().map(|it| it.to_string());
        for (json, field) in [
            (json!({ "vision_config": { "crop_size": 224 } }), "crop_size"),
            (json!({ "vision_config": { "feature_layer": -29 } }), "feature_layer"),
            (json!({ "vision_config": { "patch_size": 15 } }), "patch_size"),
            (json!({ "vision_config": { "num_channels": 1 } }), "num_channels"),
            (json!({ "vision_config": { "num_attention_heads": 7 } }), "num_attention_heads"),
            (
                json!({ "embd_layer": { "image_embd_layer": { "hd_transform_order": "glb_sub" } } }),
                "hd_transform_order",
            ),
            (json!({ "img_processor": { "type_feature": "cls_patch" } }), "type_feature"),
        ] {
            let why = of(json).unwrap();
            assert!(why.contains(field), "{why}");
        }
    }
}
