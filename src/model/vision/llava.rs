//! The towers of LLaVA 1.5 and its descendants, as `config.json` describes them.

use playhouse_kernels::Activation;
use serde_json::Value;

use super::block::BlockConfig;
use super::clip::{self, ClipConfig, ClipTower, ProjectorConfig};
use super::config::{CLIP_SCALE, PixelScale, ProcessorConfig, UNIT_SCALE};
use super::pixels::{PatchSize, Pixels};
use super::{TowerPlan, VisionFamily, VisionPlan, activation, stored, token};
use crate::model::ModelError;
use crate::model::config::{ConfigError, Fields, ModelConfig, NormConfig};
use crate::model::family::NormKind;
use crate::model::weight_loader::WeightLoader;

/// The places of a tower: published checkpoints, those of transformers 4.52, and those of 5.
const TOWERS: &[&str] = &[
    "vision_tower.vision_model",
    "model.vision_tower.vision_model",
    "vision_tower",
    "model.vision_tower",
];
const PROJECTORS: &[&str] = &["multi_modal_projector", "model.multi_modal_projector"];

/// The facts about a model's images that its processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LlavaImages {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// The embeddings of an image.
    pub(crate) num_embeds: usize,
    /// Pixels on a side.
    pub(crate) image_size: usize,
    /// The numbers of pixels in the class of the processor.
    pub(crate) scale: PixelScale,
}

impl LlavaImages {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(family: VisionFamily, outer: &Fields) -> Result<Self, ConfigError> {
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let tower = tower(outer, &vision, 1, family)?;
        Ok(Self {
            placeholder: placeholder(outer)?,
            num_embeds: tower.num_embeds(),
            image_size: tower.image_size,
            scale: scale(family),
        })
    }
}

/// Returns the numbers of pixels in the class of a tower's image processor.
fn scale(family: VisionFamily) -> PixelScale {
    if family == VisionFamily::Clip { CLIP_SCALE } else { UNIT_SCALE }
}

/// Reads the tower.
pub(super) fn read(
    family: VisionFamily,
    outer: &Fields,
    vision: &Fields,
    processor: &ProcessorConfig,
    text: &ModelConfig,
) -> Result<VisionPlan, ConfigError> {
    let tower = tower(outer, vision, text.hidden_size, family)?;
    Ok(VisionPlan {
        tower: TowerPlan::Clip(tower),
        scale: processor.scale(scale(family))?,
        placeholders: vec![placeholder(outer)?],
        position_axes: 1,
    })
}

/// Returns the token in the places of embeddings.
pub(super) fn placeholder(outer: &Fields) -> Result<u32, ConfigError> {
    Ok(match token(outer, "image_token_index")? {
        Some(token) => token,
        None => token(outer, "image_token_id")?.unwrap_or(32_000),
    })
}

/// Reads the shape of the tower and of its projector.
fn tower(
    outer: &Fields,
    vision: &Fields,
    text_width: usize,
    family: VisionFamily,
) -> Result<ClipConfig, ConfigError> {
    let is_clip = family == VisionFamily::Clip;
    let (eps, default) = match is_clip {
        true => (1e-5, Activation::QuickGelu),
        false => (1e-6, Activation::GeluTanh),
    };
    const HEADS: &str = "num_attention_heads";
    const PATCH: &str = "patch_size";
    let size = |field: &str, default: usize| {
        Ok::<usize, ConfigError>(vision.size(field)?.unwrap_or(default))
    };
    let (hidden_size, num_heads) = (size("hidden_size", 768)?, size(HEADS, 12)?);
    if hidden_size % num_heads != 0 {
        return Err(vision.invalid(HEADS, &format!("a divisor of {hidden_size}")));
    }
    let image_size = size("image_size", 224)?;
    let patch_size = size(PATCH, if is_clip { 32 } else { 16 })?;
    if patch_size > image_size {
        return Err(vision.invalid(PATCH, &format!("at most image_size, {image_size}")));
    }
    let eps = vision.positive("layer_norm_eps")?.unwrap_or(eps) as f32;
    let num_layers = size("num_hidden_layers", 12)?;
    Ok(ClipConfig {
        block: BlockConfig {
            names: &clip::BLOCK,
            hidden_size,
            intermediate_size: size("intermediate_size", 3_072)?,
            num_heads,
            norm: NormConfig { kind: NormKind::Layer { has_bias: true }, eps },
            activation: activation(vision, "hidden_act", default)?,
            qkv_bias: true,
            o_bias: true,
            mlp_bias: true,
            has_head_norms: false,
        },
        image_size,
        patch: PatchSize { side: patch_size, frames: 1 },
        is_clip,
        feature_layers: feature_layers(outer, num_layers)?,
        drops_class: drops_first(outer)?,
        projector: ProjectorConfig {
            activation: activation(outer, "projector_hidden_act", Activation::Gelu)?,
            has_bias: outer.flag_or("multimodal_projector_bias", true)?,
            outputs: text_width,
        },
    })
}

/// Returns whether the first state of an image has no embedding.
fn drops_first(outer: &Fields) -> Result<bool, ConfigError> {
    const STRATEGY: &str = "vision_feature_select_strategy";
    match outer.text(STRATEGY)?.unwrap_or("default") {
        "default" => Ok(true),
        "full" => Ok(false),
        _ => Err(outer.invalid(STRATEGY, "\"default\" or \"full\"")),
    }
}

/// Returns after how many layers the states are features: one number, or several, of which negative
/// ones count from the last layer.
pub(super) fn feature_layers(outer: &Fields, num_layers: usize) -> Result<Vec<usize>, ConfigError> {
    const FIELD: &str = "vision_feature_layer";
    let layer = |value: &Value| {
        let states = num_layers as i64 + 1;
        let index = value.as_i64()?;
        let index = if index < 0 { states + index } else { index };
        (0..states).contains(&index).then_some(index as usize)
    };
    let layers = match outer.value(FIELD) {
        None => layer(&Value::from(-2)).map(|layer| vec![layer]),
        Some(Value::Array(list)) => list.iter().map(layer).collect(),
        Some(value) => layer(value).map(|layer| vec![layer]),
    };
    layers.filter(|layers| !layers.is_empty()).ok_or_else(|| {
        outer.invalid(FIELD, &format!("a layer, or a list of layers, from -{num_layers} on"))
    })
}

/// Loads the tower and its projector.
pub(super) fn load(
    loader: &mut WeightLoader<'_>,
    config: &ClipConfig,
    pixels: Pixels,
) -> Result<ClipTower, ModelError> {
    let module = stored(loader, TOWERS, "embeddings.patch_embedding.weight");
    let projector = stored(loader, PROJECTORS, "linear_1.weight");
    ClipTower::load(loader, module, projector, config, pixels)
}
