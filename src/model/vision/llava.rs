//! The towers of the classes that are made as LLaVA is, as `config.json` describes them: LLaVA 1.5,
//! Gemma 3, Idefics 3, SmolVLM, InternVL, Llama Nemotron VL, Aya Vision and Command A Vision.

use playhouse_kernels::Activation;
use serde_json::Value;

use super::block::{BlockConfig, HeadNorms};
use super::cohere;
use super::config::{CLIP_SCALE, IMAGENET_SCALE, PixelScale, ProcessorConfig, UNIT_SCALE};
use super::encoder::ItemAttention;
use super::idefics3;
use super::internvl_chat;
use super::llama4::Llama4Config;
use super::pixels::{PatchSize, Pixels};
use super::pixtral_config::pixtral;
use super::projector::{ProjectorConfig, ProjectorNorm};
use super::vit::{Packing, VitConfig, VitNames, VitTower};
use super::vit_names::{CLIP, INTERNVL, INTERNVL_CHAT, SIGLIP};
use super::{
    TowerPlan, VisionFamily, VisionPlan, activation, gemma3, nemotron_vl, onevision, phi3v, stored,
    token, two_towers,
};
use crate::model::ModelError;
use crate::model::config::{ConfigError, Fields, INNER_TYPE, ModelConfig, NormConfig};
use crate::model::family::NormKind;
use crate::model::two_towers::TwoTowers;
use crate::model::weight_loader::WeightLoader;

pub(super) const LINEARS: &[&str] = &["linear_1", "linear_2"];

/// The facts about the images of a model with a fixed size that its processor needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileImages {
    /// The token in the places of embeddings.
    pub(crate) placeholder: u32,
    /// The embeddings of a tile.
    pub(crate) num_embeds: usize,
    /// Pixels on a side.
    pub(crate) image_size: usize,
    /// The numbers of pixels in the class of the processor.
    pub(crate) scale: PixelScale,
}

impl TileImages {
    /// Reads the facts of a model whose `config.json` has the fields `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field has no valid value.
    pub(crate) fn read(family: VisionFamily, outer: &Fields) -> Result<Self, ConfigError> {
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        if family == VisionFamily::Llama4 {
            let vision_tower = Llama4Config::read(&vision, 1)?;
            return Ok(Self {
                placeholder: placeholder(outer, family)?,
                num_embeds: vision_tower.num_embeds(),
                image_size: vision_tower.image_size,
                scale: UNIT_SCALE,
            });
        }
        let vision_tower = vit(outer, &vision, 1, family)?;
        Ok(Self {
            placeholder: placeholder(outer, family)?,
            num_embeds: vision_tower.num_embeds(),
            image_size: vision_tower.image_size,
            scale: scale(family),
        })
    }
}

/// Reads the tower.
pub(super) fn read(
    family: VisionFamily,
    outer: &Fields,
    vision: &Fields,
    processor: &ProcessorConfig,
    text: &ModelConfig,
) -> Result<VisionPlan, ConfigError> {
    let towers = TwoTowers::read(family, outer, text.hidden_size)?;
    let vision_tower = match (family, towers) {
        (_, Some(towers)) => {
            TowerPlan::Pooled(two_towers::PooledConfig::read(family, outer, vision, towers)?)
        }
        (VisionFamily::Pixtral | VisionFamily::Mistral3 | VisionFamily::LightOnOcr, None) => {
            let eps = text.norm.eps;
            TowerPlan::Pixtral(pixtral(outer, vision, text.hidden_size, eps, family)?)
        }
        (VisionFamily::Phi3V, None) => {
            TowerPlan::Phi3V(vit(outer, vision, text.hidden_size, family)?)
        }
        (_, None) => TowerPlan::Vit(vit(outer, vision, text.hidden_size, family)?),
    };
    let mut placeholders = vec![placeholder(outer, family)?];
    if let VisionFamily::LlavaOnevision | VisionFamily::LlavaNextVideo = family {
        placeholders.push(onevision::video_placeholder(outer, family)?);
    }
    Ok(VisionPlan {
        vision_tower,
        scale: processor.scale(scale(family))?,
        placeholders,
        position_axes: 1,
        attention: match family {
            VisionFamily::Gemma3 => ItemAttention::WithinItems,
            // In a class of late interaction, all tokens of any prompt do.
            VisionFamily::PaliGemma if !outer.has(INNER_TYPE) => ItemAttention::WithinPrompts,
            _ => ItemAttention::None,
        },
        towers,
    })
}

/// Returns the numbers of pixels in the class of a tower's image processor.
fn scale(family: VisionFamily) -> PixelScale {
    match family {
        VisionFamily::Siglip
        | VisionFamily::SiglipModel
        | VisionFamily::Gemma3
        | VisionFamily::Idefics3
        | VisionFamily::NemotronVl
        | VisionFamily::PaliGemma => UNIT_SCALE,
        VisionFamily::InternVlChat => IMAGENET_SCALE,
        _ => CLIP_SCALE,
    }
}

/// Returns the token in the places of embeddings.
pub(super) fn placeholder(outer: &Fields, family: VisionFamily) -> Result<u32, ConfigError> {
    if family == VisionFamily::NemotronVl {
        return Ok(token(outer, "img_context_token_id")?.unwrap_or(nemotron_vl::PLACEHOLDER));
    }
    let default = match family {
        VisionFamily::Mistral3 => 10,
        VisionFamily::Aria => 9,
        VisionFamily::Gemma3 => 262_144,
        VisionFamily::Idefics3 => 128_257,
        VisionFamily::InternVl | VisionFamily::InternVlChat => 151_667,
        VisionFamily::Llama4 => 200_092,
        VisionFamily::LightOnOcr => 151_655,
        VisionFamily::Lfm2Vl => 396,
        VisionFamily::PaliGemma => 256_000,
        VisionFamily::AyaVision | VisionFamily::Cohere2Vision => 255_036,
        VisionFamily::Phi3V => 32_044,
        VisionFamily::LlavaOnevision => 151_646,
        VisionFamily::GotOcr2 => 151_859,
        VisionFamily::Ovis2 => 151_665,
        VisionFamily::LlavaNextVideo => 32_001,
        // As in vLLM: such a prompt has no text beside its image.
        VisionFamily::ClipModel | VisionFamily::SiglipModel => 0,
        _ => 32_000,
    };
    Ok(match token(outer, "image_token_index")? {
        Some(token) => token,
        None => token(outer, "image_token_id")?.unwrap_or(default),
    })
}

/// Reads the shape of a tower for images of one size, and of its projector.
pub(super) fn vit(
    outer: &Fields,
    vision: &Fields,
    text_width: usize,
    family: VisionFamily,
) -> Result<VitConfig, ConfigError> {
    const PATCH: &str = "patch_size";
    let [hidden_size, intermediate_size, num_layers, num_heads, image_size, patch_size] =
        sizes(outer, family);
    let sizes = [hidden_size, intermediate_size, num_heads];
    let mut block = block(vision, names(family), sizes, family)?;
    if family == VisionFamily::InternVl {
        block.qkv_bias = vision.flag_or("attention_bias", false)?;
        if vision.flag_or("use_qk_norm", false)? {
            block.head_norms = HeadNorms::AcrossHeads;
        }
        if let Some("rms_norm") = vision.text("norm_type")? {
            block.norm.kind = NormKind::Rms;
        }
    }
    let image_size = side(vision, "image_size", image_size)?;
    if family == VisionFamily::InternVlChat {
        internvl_chat::adjust(vision, &mut block)?;
        internvl_chat::require_side(outer, image_size)?;
    }
    if family == VisionFamily::NemotronVl {
        nemotron_vl::require_served(outer, vision)?;
        internvl_chat::require_side(outer, image_size)?;
    }
    let patch_size = side(vision, PATCH, patch_size)?;
    let projector = match family {
        VisionFamily::Gemma3 => {
            gemma3::projector(outer, image_size / patch_size, text_width, block.norm.eps)?
        }
        VisionFamily::Phi3V => phi3v::projector(text_width),
        VisionFamily::ClipModel | VisionFamily::SiglipModel => {
            two_towers::no_projector(block.hidden_size)
        }
        _ => projector(outer, text_width, family)?,
    };
    if patch_size * projector.merge > image_size {
        return Err(vision.invalid(PATCH, &format!("at most image_size, {image_size}")));
    }
    if let VisionFamily::AyaVision | VisionFamily::Cohere2Vision = family {
        cohere::require_squares(outer, image_size / patch_size, projector.merge)?;
    }
    if family == VisionFamily::Phi3V && !image_size.is_multiple_of(2 * patch_size) {
        return Err(
            vision.invalid(PATCH, &format!("half of a divisor of image_size, {image_size}"))
        );
    }
    let num_layers = vision.size("num_hidden_layers")?.unwrap_or(num_layers);
    let feature_layers = match family {
        VisionFamily::Gemma3
        | VisionFamily::Idefics3
        | VisionFamily::ClipModel
        | VisionFamily::SiglipModel
        | VisionFamily::Cohere2Vision
        | VisionFamily::NemotronVl
        | VisionFamily::PaliGemma => vec![num_layers],
        VisionFamily::AyaVision => cohere::feature_layer(outer, num_layers)?,
        VisionFamily::Phi3V => vec![phi3v::feature_layer(outer, num_layers)?],
        VisionFamily::InternVl | VisionFamily::InternVlChat | VisionFamily::LlavaOnevision => {
            feature_layers(outer, num_layers, -1)?
        }
        _ => feature_layers(outer, num_layers, -2)?,
    };
    let last_norm = NormConfig { kind: NormKind::Layer { has_bias: true }, ..block.norm };
    let is_pooled = family != VisionFamily::InternVl || vision.flag_or("use_mean_pooling", true)?;
    let has_last_norm = match family {
        VisionFamily::Gemma3
        | VisionFamily::Idefics3
        | VisionFamily::ClipModel
        | VisionFamily::SiglipModel
        | VisionFamily::Cohere2Vision
        | VisionFamily::NemotronVl
        | VisionFamily::PaliGemma => true,
        _ => !is_pooled && feature_layers.contains(&num_layers),
    };
    Ok(VitConfig {
        names: names(family),
        block,
        image_size,
        patch: PatchSize { side: patch_size, frames: 1 },
        feature_layers,
        last_norm: has_last_norm.then_some(last_norm),
        drops_first: drops_first(outer, &projector, family)?,
        keeps_class_alone: family == VisionFamily::ClipModel,
        packing: onevision::packing(outer, family, image_size / patch_size)?,
        projector,
    })
}

/// Returns the sizes of a family's class of towers: `hidden_size`, `intermediate_size`, the numbers
/// of layers and heads, and the pixels on a side of an image and of a patch.
fn sizes(outer: &Fields, family: VisionFamily) -> [usize; 6] {
    match family {
        VisionFamily::Clip
        | VisionFamily::LlavaNext
        | VisionFamily::LlavaNextVideo
        | VisionFamily::ClipModel => [768, 3_072, 12, 12, 224, 32],
        VisionFamily::Phi3V => phi3v::SIZES,
        VisionFamily::InternVl => [1_024, 4_096, 24, 16, 448, 14],
        VisionFamily::InternVlChat => [3_200, 12_800, 48, 25, 224, 14],
        // ModernVBERT and UltraVBERT, which lie within another model, have towers of SigLIP.
        VisionFamily::Idefics3 if !outer.has(INNER_TYPE) => [1_152, 3_072, 12, 16, 224, 32],
        _ => [768, 3_072, 12, 12, 224, 16],
    }
}

fn names(family: VisionFamily) -> &'static VitNames {
    match family {
        VisionFamily::Clip
        | VisionFamily::LlavaNext
        | VisionFamily::LlavaNextVideo
        | VisionFamily::Phi3V
        | VisionFamily::ClipModel => &CLIP,
        VisionFamily::InternVl => &INTERNVL,
        VisionFamily::InternVlChat => &INTERNVL_CHAT,
        _ => &SIGLIP,
    }
}

/// Returns a size in pixels: a number, or the equal height and width.
pub(super) fn side(vision: &Fields, field: &str, default: usize) -> Result<usize, ConfigError> {
    match vision.value(field).and_then(Value::as_array).map(Vec::as_slice) {
        Some([height, width]) if height == width => {
            let side = vision.with(field, height.clone());
            Ok(side.size(field)?.unwrap_or(default))
        }
        Some(_) => Err(vision.invalid(field, "one size, or an equal height and width")),
        None => Ok(vision.size(field)?.unwrap_or(default)),
    }
}

/// Reads the layers of a tower. `sizes` are the defaults of the width, the inner width and the
/// number of heads.
fn block(
    vision: &Fields,
    names: &'static VitNames,
    [hidden_size, intermediate_size, num_heads]: [usize; 3],
    family: VisionFamily,
) -> Result<BlockConfig, ConfigError> {
    const HEADS: &str = "num_attention_heads";
    let (eps, default) = match family {
        VisionFamily::Clip
        | VisionFamily::LlavaNext
        | VisionFamily::LlavaNextVideo
        | VisionFamily::Phi3V
        | VisionFamily::ClipModel => (1e-5, Activation::QuickGelu),
        VisionFamily::InternVl | VisionFamily::InternVlChat => (1e-6, Activation::Gelu),
        _ => (1e-6, Activation::GeluTanh),
    };
    let size = |field: &str, default: usize| {
        Ok::<usize, ConfigError>(vision.size(field)?.unwrap_or(default))
    };
    let (hidden_size, num_heads) = (size("hidden_size", hidden_size)?, size(HEADS, num_heads)?);
    if hidden_size % num_heads != 0 {
        return Err(vision.invalid(HEADS, &format!("a divisor of {hidden_size}")));
    }
    let eps = vision.positive("layer_norm_eps")?.unwrap_or(eps) as f32;
    Ok(BlockConfig {
        names: &names.block,
        hidden_size,
        intermediate_size: size("intermediate_size", intermediate_size)?,
        num_heads,
        num_kv_heads: num_heads,
        norm: NormConfig { kind: NormKind::Layer { has_bias: true }, eps },
        activation: activation(vision, "hidden_act", default)?,
        qkv_bias: true,
        o_bias: true,
        mlp_bias: true,
        head_norms: HeadNorms::None,
        has_neighbour_pairs: false,
    })
}

/// Reads the projector of a tower for images of one size.
fn projector(
    outer: &Fields,
    outputs: usize,
    family: VisionFamily,
) -> Result<ProjectorConfig, ConfigError> {
    const RATIO: &str = "downsample_ratio";
    let plain = ProjectorConfig {
        layers: LINEARS,
        inner: None,
        is_gated: false,
        activation: activation(outer, "projector_hidden_act", Activation::Gelu)?,
        has_bias: true,
        merge: 1,
        averages: false,
        norm: ProjectorNorm::None,
        merging: None,
        last_norm: None,
        outputs,
    };
    Ok(match family {
        VisionFamily::Idefics3 => idefics3::projector(outer, plain)?,
        VisionFamily::InternVl | VisionFamily::InternVlChat | VisionFamily::NemotronVl => {
            let merge = 1.0 / outer.positive(RATIO)?.unwrap_or(0.5);
            if merge.fract() != 0.0 || !(1.0..=64.0).contains(&merge) {
                return Err(outer.invalid(RATIO, "1 divided by a number of patches"));
            }
            let norm = NormConfig { kind: NormKind::Layer { has_bias: true }, eps: 1e-5 };
            let (name, layers) = match family {
                VisionFamily::InternVlChat | VisionFamily::NemotronVl => internvl_chat::PROJECTOR,
                _ => ("layer_norm", LINEARS),
            };
            let norm = ProjectorNorm::OfSquare(name, norm);
            ProjectorConfig { merge: merge as usize, norm, layers, ..plain }
        }
        VisionFamily::AyaVision | VisionFamily::Cohere2Vision => {
            cohere::projector(outer, plain, family)?
        }
        VisionFamily::PaliGemma => ProjectorConfig { layers: &["linear"], ..plain },
        _ => {
            ProjectorConfig { has_bias: outer.flag_or("multimodal_projector_bias", true)?, ..plain }
        }
    })
}

/// Returns whether the first state of an image has no embedding.
fn drops_first(
    outer: &Fields,
    projector: &ProjectorConfig,
    family: VisionFamily,
) -> Result<bool, ConfigError> {
    const STRATEGY: &str = "vision_feature_select_strategy";
    let keeps_all = matches!(
        family,
        VisionFamily::Gemma3
            | VisionFamily::Idefics3
            | VisionFamily::Cohere2Vision
            | VisionFamily::NemotronVl
            | VisionFamily::PaliGemma
    );
    if keeps_all || family.is_of_two_towers() {
        return Ok(false);
    }
    if family == VisionFamily::AyaVision {
        return cohere::keeps_all(outer).map(|()| false);
    }
    if family == VisionFamily::Phi3V {
        return Ok(true);
    }
    let is_next = matches!(family, VisionFamily::LlavaNext | VisionFamily::LlavaNextVideo);
    let needs_squares = projector.merge > 1 || is_next;
    // SigLIP has no state of a class. Without its first state, a tile is no square.
    let is_onevision = family == VisionFamily::LlavaOnevision;
    let needs_all = is_onevision || family == VisionFamily::LlavaNextSiglip;
    match outer.text(STRATEGY)?.unwrap_or(if is_onevision { "full" } else { "default" }) {
        "default" if needs_all => Err(outer.invalid(STRATEGY, "\"full\"")),
        "default" => Ok(true),
        "full" if !needs_squares => Ok(false),
        "full" => Err(outer.invalid(STRATEGY, "\"default\"")),
        _ => Err(outer.invalid(STRATEGY, "\"default\" or \"full\"")),
    }
}

/// Returns after how many layers the states are features: one number, or several, of which negative
/// ones count from the last layer.
pub(super) fn feature_layers(
    outer: &Fields,
    num_layers: usize,
    default: i64,
) -> Result<Vec<usize>, ConfigError> {
    const FIELD: &str = "vision_feature_layer";
    let layer = |value: &Value| {
        let states = num_layers as i64 + 1;
        let index = value.as_i64()?;
        let index = if index < 0 { states + index } else { index };
        (0..states).contains(&index).then_some(index as usize)
    };
    let layers = match outer.value(FIELD) {
        None => layer(&Value::from(default)).map(|layer| vec![layer]),
        Some(Value::Array(list)) => list.iter().map(layer).collect(),
        Some(value) => layer(value).map(|layer| vec![layer]),
    };
    layers.filter(|layers| !layers.is_empty()).ok_or_else(|| {
        outer.invalid(FIELD, &format!("a layer, or a list of layers, from -{num_layers} on"))
    })
}

/// Loads a tower for images of one size, and its projector.
pub(super) fn load_vit(
    loader: &mut WeightLoader<'_>,
    config: &VitConfig,
    pixels: Pixels,
) -> Result<VitTower, ModelError> {
    // The places of published checkpoints, of those of transformers 4.52, and of those of 5. The
    // authors of InternVL, Llama Nemotron VL and Phi-3-vision have others.
    let towers = [
        "vision_tower.vision_model",
        "model.vision_tower.vision_model",
        "vision_tower",
        "model.vision_tower",
        "model.vision_model",
        "vision_model",
        "vision_model.vision_model",
        "model.vision_model.vision_model",
        "vision_model.vision_model",
        "vlm.vision_model.vision_model",
        "vlm.vision_model",
        "vlm.vision_tower.vision_model",
        "vlm.model.vision_tower.vision_model",
        "vlm.vision_tower",
        "vlm.model.vision_tower",
        phi3v::TOWER,
    ];
    let module = stored(loader, &towers, &format!("{}.weight", config.names.patches));
    let projectors = [
        "multi_modal_projector",
        "model.multi_modal_projector",
        "model.connector",
        "connector",
        "vlm.connector",
        "vlm.multi_modal_projector",
        "vlm.model.multi_modal_projector",
        "mlp1",
        "model.mlp1",
        phi3v::MODULE,
    ];
    let first = config.projector.first_module();
    let projector = stored(loader, &projectors, &format!("{first}.weight"));
    let ends = ["image_newline", "model.image_newline"];
    let end = ends.into_iter().find(|name| loader.has(name)).unwrap_or(ends[0]);
    let end = (config.packing != Packing::Plain).then_some(end);
    VitTower::load(loader, module, projector, end, config, pixels)
}
