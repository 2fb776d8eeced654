//! The towers of Pixtral, Mistral 3 and LightOnOCR, as `config.json` describes them.

use playhouse_kernels::Activation;

use super::block::{BlockConfig, HeadNorms};
use super::llava::{LINEARS, feature_layers, placeholder, side};
use super::pixels::{PatchSize, Pixels};
use super::pixtral::{self, PixtralConfig, PixtralTower};
use super::projector::{Merging, ProjectorConfig, ProjectorNorm};
use super::{VisionFamily, activation, stored};
use crate::model::ModelError;
use crate::model::config::{ConfigError, Fields, NormConfig};
use crate::model::family::NormKind;
use crate::model::weight_loader::WeightLoader;

const PROJECTORS: &[&str] =
    &["multi_modal_projector", "model.multi_modal_projector", "model.vision_projection"];
const TOWERS: &[&str] = &["vision_tower", "model.vision_tower", "model.vision_encoder"];

/// The facts about the images of these models that their processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PixtralImages {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// Pixels on a side of a square, which is one embedding.
    pub(crate) side: usize,
}

impl PixtralImages {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(family: VisionFamily, outer: &Fields) -> Result<Self, ConfigError> {
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let vision_tower = pixtral(outer, &vision, 1, 1e-5, family)?;
        let side = vision_tower.patch.side * vision_tower.projector.merge;
        Ok(Self { placeholder: placeholder(outer, family)?, side })
    }
}

/// Reads the shape of the tower, and of its projector.
pub(super) fn pixtral(
    outer: &Fields,
    vision: &Fields,
    outputs: usize,
    text_eps: f32,
    family: VisionFamily,
) -> Result<PixtralConfig, ConfigError> {
    const HEADS: &str = "num_attention_heads";
    let size = |field: &str, default: usize| {
        Ok::<usize, ConfigError>(vision.size(field)?.unwrap_or(default))
    };
    let (hidden_size, num_heads) = (size("hidden_size", 1_024)?, size(HEADS, 16)?);
    if !hidden_size.is_multiple_of(4 * num_heads) {
        let expected = format!("a divisor of {hidden_size}, with heads of a multiple of 4");
        return Err(vision.invalid(HEADS, &expected));
    }
    let is_lighton = family == VisionFamily::LightOnOcr;
    // LightOnOCR has the projector of Mistral 3.
    let merges = is_lighton || family == VisionFamily::Mistral3;
    let num_layers = size("num_hidden_layers", 24)?;
    let feature_layers = feature_layers(outer, num_layers, if merges { -1 } else { -2 })?;
    if merges && feature_layers.len() > 1 {
        return Err(outer.invalid("vision_feature_layer", "one layer"));
    }
    let rope = match vision.nested("rope_parameters")? {
        Some(rope) => rope.positive("rope_theta")?,
        None => vision.positive("rope_theta")?,
    };
    let norm = NormConfig { kind: NormKind::Rms, eps: text_eps };
    Ok(PixtralConfig {
        block: BlockConfig {
            names: &pixtral::BLOCK,
            hidden_size,
            intermediate_size: size("intermediate_size", 4_096)?,
            num_heads,
            num_kv_heads: num_heads,
            norm: pixtral::NORM,
            activation: activation(vision, "hidden_act", Activation::Gelu)?,
            qkv_bias: false,
            o_bias: false,
            mlp_bias: false,
            head_norms: HeadNorms::None,
            has_neighbour_pairs: false,
        },
        patch: PatchSize { side: side(vision, "patch_size", 16)?, frames: 1 },
        rope_theta: rope.unwrap_or(10_000.0),
        feature_layers,
        may_have_rest: is_lighton,
        projector: ProjectorConfig {
            layers: LINEARS,
            inner: None,
            is_gated: false,
            activation: activation(outer, "projector_hidden_act", Activation::Gelu)?,
            has_bias: outer.flag_or("multimodal_projector_bias", !merges)?,
            merge: match merges {
                true => outer.size("spatial_merge_size")?.unwrap_or(2),
                false => 1,
            },
            norm: match merges {
                true => ProjectorNorm::OfPatch("norm", norm),
                false => ProjectorNorm::None,
            },
            averages: false,
            merging: merges.then_some(Merging::Unfolded("patch_merger.merging_layer")),
            last_norm: None,
            outputs,
        },
    })
}

/// Loads the tower, and its projector.
pub(super) fn load(
    loader: &mut WeightLoader<'_>,
    config: &PixtralConfig,
    pixels: Pixels,
) -> Result<PixtralTower, ModelError> {
    let module = stored(loader, TOWERS, "patch_conv.weight");
    let projector = stored(loader, PROJECTORS, "linear_1.weight");
    PixtralTower::load(loader, module, projector, config, pixels)
}
