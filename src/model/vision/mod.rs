//! Vision towers with their projectors: from processed images to rows in the place of embeddings.
//!
//! A family is data over the layers of `block`. An image is a sequence of attention to both sides,
//! and so is a window or a tile of it. Several images are one ragged batch.
//!
//! Models without the files of an image processor, and those with a tower that is not known here,
//! take text alone.

mod anyres;
mod batch;
mod block;
mod cohere;
mod config;
mod encoder;
mod gemma4;
mod gemma4_config;
mod gemma4_layer;
mod gemma4_unified;
mod glm;
mod grid;
mod internvl_chat;
mod llama4;
mod llava;
mod minicpm;
mod mixed;
mod onevision;
mod paddle;
mod phi3v;
mod phi4;
mod phi4_config;
mod phi4_tiles;
mod pixels;
mod pixtral;
mod pixtral_config;
mod projector;
mod qwen;
mod qwen_config;
mod resized;
mod seeing_and_hearing;
mod siglip2;
mod two_towers;
mod vit;
mod vit_names;

use std::path::Path;
use std::sync::Arc;

use self::encoder::{ItemAttention, VisionEncoder};
use self::pixels::Pixels;
use super::audio::Phi4Sounds;
use super::config::{ActivationName, ConfigError, Fields, INNER_TYPE, ModelConfig};
use super::families;
use super::layers::plain_activation;
use super::two_towers::TwoTowers;
use super::weight_loader::WeightLoader;
use super::{MediaEncoder, ModelError};

pub(crate) use anyres::AnyResTiles;
pub(crate) use config::{PixelScale, ProcessorConfig, UNIT_SCALE};
pub(crate) use gemma4_config::{Gemma4Images, scale as gemma4_scale};
pub(crate) use internvl_chat::{CONTEXT_TOKEN, translated};
pub(crate) use llava::TileImages;
pub(crate) use minicpm::MiniCpmImages;
pub(crate) use mixed::PooledFrames;
pub(crate) use onevision::{most_tiles, video_placeholder};
pub(crate) use phi4_config::Phi4Config;
pub(crate) use phi4_tiles::Phi4Tiles;
pub(crate) use pixtral_config::PixtralImages;
use playhouse_kernels::Activation;
pub(super) use seeing_and_hearing::SeeingAndHearing;
pub(crate) use siglip2::Siglip2Images;

/// The places of the towers of Qwen, GLM and dots.ocr.
const VISUAL: &[&str] =
    &["model.visual", "visual", "vlm.visual", "vlm.model.visual", "thinker.visual", "vision_tower"];

/// The names that `vision_config` of Qwen and GLM may also have: HF `attribute_map`.
const OTHER_NAMES: &[(&str, &str)] =
    &[("num_attention_heads", "num_heads"), ("num_hidden_layers", "depth")];

/// The numbers of Llama 4's pixels.
const LLAMA4_SCALE: PixelScale = PixelScale { rounds_to_bf16: true, ..UNIT_SCALE };

/// The vision tower of a multimodal class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VisionFamily {
    /// CLIP with the projector of LLaVA.
    Clip,
    /// SigLIP with the projector of LLaVA.
    Siglip,
    /// The tower and the projector of LLaVA, over tiles.
    LlavaNext,
    /// The same with SigLIP: Granite Vision.
    LlavaNextSiglip,
    /// SigLIP with the projector of LLaVA, over tiles and frames.
    LlavaOnevision,
    /// CLIP with the same.
    LlavaNextVideo,
    /// The tower of Pixtral with the projector of LLaVA.
    Pixtral,
    /// The same with the projector of Mistral 3, which merges patches.
    Mistral3,
    /// SigLIP with the projector of Gemma 3.
    Gemma3,
    /// That of Gemma 4, for images of any size.
    Gemma4,
    /// Layers in the place of a tower: the 12B of Gemma 4.
    Gemma4Unified,
    /// The towers of Idefics 3 and SmolVLM.
    Idefics3,
    /// The tower of InternVL.
    InternVl,
    /// The same in the form of its authors' code.
    InternVlChat,
    /// The tower of Qwen2-VL.
    Qwen2Vl,
    /// That of Qwen2.5-VL, with windows.
    Qwen2_5Vl,
    /// The same with fewer heads of keys and values, and text positions of one axis: EXAONE 4.5.
    Exaone4_5,
    /// That of dots.ocr: as Qwen2-VL's, with other norms.
    DotsOcr,
    /// The same of Qwen2.5-Omni, with other names.
    Qwen2_5Omni,
    /// That of Qwen3-VL, with learned positions and states for the first layers.
    Qwen3Vl,
    /// That of Qwen3.5: as Qwen3-VL's, without states for layers.
    Qwen3_5,
    /// That of GLM-4.1V and its successors.
    Glm4v,
    /// That of Llama 4.
    Llama4,
    /// The tower of GLM-OCR.
    GlmOcr,
    /// The tower of Pixtral with the projector of Mistral 3, under names of its own: LightOnOCR.
    LightOnOcr,
    /// SigLIP for images of any size: PaddleOCR-VL.
    PaddleOcr,
    /// SigLIP with the projector of Aya Vision, over tiles.
    AyaVision,
    /// The same of Command A Vision.
    Cohere2Vision,
    /// SigLIP 2 for images of any size: LFM2-VL.
    Lfm2Vl,
    /// SigLIP for images of any size, whose patches merge twice: MiniCPM-V 4.6.
    MiniCpmV,
    /// SigLIP with the projector of PaliGemma.
    PaliGemma,
    /// CLIP with the projector of Phi-3-vision, over tiles.
    Phi3V,
    /// That of Phi-4-multimodal, with a tower of sounds beside it.
    Phi4,
    /// The image tower of CLIP beside that of texts.
    ClipModel,
    /// That of SigLIP.
    SiglipModel,
}

impl VisionFamily {
    /// Returns the tower of a multimodal class, by the fields of its `config.json`. Of a class with
    /// several towers, `model_type` names one.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if a field has another form.
    pub(crate) fn of(outer: &Fields) -> Result<Option<Self>, ConfigError> {
        let listed = outer.value("architectures").and_then(serde_json::Value::as_array);
        let name = listed.and_then(|names| names.first()?.as_str());
        let wrapper = name.and_then(families::wrapper_of);
        let towers = wrapper.map(|wrapper| wrapper.vision).unwrap_or_default();
        if let Some(inner) = outer.text(INNER_TYPE)? {
            let later = inner == "qwen2_5_vl";
            return Ok(towers.iter().copied().find(|it| (*it == Self::Qwen2_5Vl) == later));
        }
        let vision = outer.nested("vision_config")?;
        let named = vision.as_ref().map(|vision| vision.text("model_type")).transpose()?.flatten();
        Ok(match (towers, named) {
            // Gemma 4 may have no tower.
            (&[Self::Gemma4 | Self::Gemma4Unified], None) if vision.is_none() => None,
            (towers, None) => towers.first().copied(),
            (towers, Some(name)) => {
                let is_it = |vision_tower: &&Self| {
                    vision_tower.model_type().is_none_or(|known| known == name)
                };
                towers.iter().find(is_it).copied()
            }
        })
    }

    /// Returns whether the class also has a tower of sounds.
    pub(crate) fn hears(self) -> bool {
        self == Self::Phi4
    }

    /// Returns the `model_type` of the tower's class, if a multimodal class may have several.
    fn model_type(self) -> Option<&'static str> {
        match self {
            Self::Clip | Self::LlavaNext | Self::LlavaNextVideo => Some("clip_vision_model"),
            Self::Siglip
            | Self::LlavaNextSiglip
            | Self::LlavaOnevision
            | Self::Gemma3
            | Self::PaliGemma
            | Self::AyaVision
            | Self::Cohere2Vision => Some("siglip_vision_model"),
            Self::Pixtral | Self::LightOnOcr => Some("pixtral"),
            Self::Lfm2Vl => Some("siglip2_vision_model"),
            _ => None,
        }
    }

    /// Returns whether the model has a tower of texts beside that of images, and no text model that
    /// sees both.
    pub(crate) fn is_of_two_towers(self) -> bool {
        matches!(self, Self::ClipModel | Self::SiglipModel)
    }

    /// Returns the processor of a model without the files of one, if it is not one of text alone.
    pub(crate) fn default_processor(self, outer: &Fields) -> Option<ProcessorConfig> {
        self.is_of_two_towers().then(|| ProcessorConfig::of_model(&Fields::empty_in(outer)))
    }
}

/// Returns the numbers of pixels in the class of the image processor of a family of Qwen or GLM.
pub(crate) fn qwen_scale(family: VisionFamily) -> PixelScale {
    qwen_config::scale(family)
}

/// A tower that `config.json` describes, before its weights are read.
#[derive(Debug, Clone)]
pub(super) struct VisionPlan {
    vision_tower: TowerPlan,
    scale: PixelScale,
    placeholders: Vec<u32>,
    position_axes: usize,
    attention: ItemAttention,
    /// The widths of a model of two towers.
    towers: Option<TwoTowers>,
}

#[derive(Debug, Clone)]
enum TowerPlan {
    Vit(vit::VitConfig),
    Pooled(two_towers::PooledConfig),
    Pixtral(pixtral::PixtralConfig),
    Qwen(qwen::QwenConfig),
    Gemma4(gemma4::Gemma4Config),
    Gemma4Unified(gemma4_unified::UnifiedConfig),
    Glm(glm::GlmConfig),
    Llama4(llama4::Llama4Config),
    Paddle(paddle::PaddleConfig),
    Siglip2(siglip2::Siglip2Config),
    MiniCpm(minicpm::MiniCpmConfig),
    Phi3V(vit::VitConfig),
    Phi4(Box<Phi4Plan>),
}

/// The towers of images and sounds of Phi-4-multimodal.
#[derive(Debug, Clone)]
struct Phi4Plan {
    images: Phi4Config,
    sounds: Phi4Sounds,
}

impl VisionPlan {
    /// Reads the tower of the model in the folder `model`, whose tokenizer is in `tokenizer`.
    /// `outer` are the fields of its `config.json`, and `text` is the config of its text model.
    ///
    /// # Errors
    /// [`ConfigError`] if a field of the tower has no valid value.
    pub(super) fn read(
        model: &Path,
        tokenizer: &Path,
        outer: &Fields,
        text: &ModelConfig,
    ) -> Result<Option<Self>, ConfigError> {
        let Some(family) = VisionFamily::of(outer)? else {
            let hears = text.wrapped.as_ref().is_some_and(|it| it.wrapper.audio.is_some());
            if text.wrapped.is_some() && !hears {
                tracing::info!("the parts of the model for media are not supported: it takes text");
            }
            return Ok(None);
        };
        let of_authors;
        let (outer, processor) = match family {
            VisionFamily::InternVlChat => {
                of_authors = translated(outer, internvl_chat::context_token(tokenizer)?)?;
                (&of_authors, Some(ProcessorConfig::of_model(&of_authors)))
            }
            _ => {
                let processor = ProcessorConfig::read(model)?;
                (outer, processor.or_else(|| family.default_processor(outer)))
            }
        };
        let Some(processor) = processor else {
            tracing::info!("without the files of an image processor, the model takes text alone");
            return Ok(None);
        };
        let vision = outer.nested("vision_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        let axes = |vision_tower: TowerPlan, tokens: [u32; 2]| {
            qwen_config::require_axes(outer, text)?;
            let token = |field: &str, default: u32| {
                Ok::<_, ConfigError>(token(outer, field)?.unwrap_or(default))
            };
            Ok(Some(Self {
                vision_tower,
                scale: processor.scale(qwen_config::scale(family))?,
                placeholders: vec![
                    token("image_token_id", tokens[0])?,
                    token("video_token_id", tokens[1])?,
                ],
                // As in transformers, the classes of late interaction number all tokens alike.
                position_axes: if outer.has(INNER_TYPE) { 1 } else { 3 },
                attention: ItemAttention::None,
                towers: None,
            }))
        };
        let qwen = |config| axes(TowerPlan::Qwen(config), [151_655, 151_656]);
        // Positions of the text model have one axis.
        let plain = |vision_tower: TowerPlan, default: PixelScale, placeholders: Vec<u32>| {
            Ok::<_, ConfigError>(Some(Self {
                vision_tower,
                scale: processor.scale(default)?,
                placeholders,
                position_axes: 1,
                attention: ItemAttention::None,
                towers: None,
            }))
        };
        let plain_qwen = |config: qwen::QwenConfig, tokens: [u32; 2]| {
            let placeholders = vec![
                token(outer, "image_token_id")?.unwrap_or(tokens[0]),
                token(outer, "video_token_id")?.unwrap_or(tokens[1]),
            ];
            plain(TowerPlan::Qwen(config), qwen_config::scale(family), placeholders)
        };
        let visual = vision.with_aliases(OTHER_NAMES);
        match family {
            VisionFamily::Qwen2Vl => qwen(qwen_config::qwen2(&visual)?),
            VisionFamily::Qwen2_5Vl => qwen(qwen_config::qwen2_5(&visual)?),
            VisionFamily::Exaone4_5 => plain_qwen(qwen_config::exaone4_5(&visual)?, [67, 68]),
            VisionFamily::DotsOcr => plain_qwen(qwen_config::dots(&visual)?, [151_665, 151_656]),
            VisionFamily::Qwen2_5Omni => qwen(qwen_config::qwen2_5_omni(&visual)?),
            VisionFamily::Qwen3Vl => qwen(qwen_config::qwen3(&visual)?),
            VisionFamily::Qwen3_5 => qwen(qwen_config::qwen3_5(&visual)?),
            VisionFamily::Glm4v => {
                axes(TowerPlan::Glm(glm::GlmConfig::read(&visual, family)?), [151_343, 151_344])
            }
            VisionFamily::GlmOcr => {
                axes(TowerPlan::Glm(glm::GlmConfig::read(&visual, family)?), [59_280, 59_281])
            }
            VisionFamily::PaddleOcr => {
                let config = paddle::PaddleConfig::read(&vision, text.hidden_size)?;
                axes(TowerPlan::Paddle(config), [100_295, 100_296])
            }
            VisionFamily::Llama4 => {
                let config = llama4::Llama4Config::read(&vision, text.hidden_size)?;
                let placeholders = vec![llava::placeholder(outer, family)?];
                plain(TowerPlan::Llama4(config), LLAMA4_SCALE, placeholders)
            }
            VisionFamily::Lfm2Vl => {
                let config = siglip2::Siglip2Config::read(outer, &vision, text.hidden_size)?;
                let placeholders = vec![llava::placeholder(outer, family)?];
                plain(TowerPlan::Siglip2(config), UNIT_SCALE, placeholders)
            }
            VisionFamily::Gemma4 | VisionFamily::Gemma4Unified => {
                let width = text.hidden_size;
                let tower = match family {
                    VisionFamily::Gemma4 => {
                        TowerPlan::Gemma4(gemma4::Gemma4Config::read(&vision, width)?)
                    }
                    _ => TowerPlan::Gemma4Unified(gemma4_unified::UnifiedConfig::read(
                        &vision, width,
                    )?),
                };
                let placeholders = Gemma4Images::read(family, outer)?.placeholders.into();
                let plan = plain(tower, gemma4_config::SCALE, placeholders)?;
                let scale = gemma4_scale(&processor.image)?;
                let attention = gemma4_config::attention(family, outer)?;
                Ok(plan.map(|plan| Self { scale, attention, ..plan }))
            }
            // As in transformers, images take no positions of their own.
            VisionFamily::MiniCpmV => {
                let config = minicpm::MiniCpmConfig::read(outer, &vision, text.hidden_size)?;
                let placeholders = vec![config.placeholder];
                plain(TowerPlan::MiniCpm(config), UNIT_SCALE, placeholders)
            }
            VisionFamily::Phi4 => {
                let images = Phi4Config::read(outer, text.hidden_size)?;
                let placeholders = vec![images.placeholder];
                let sounds = Phi4Sounds::read(outer, text.hidden_size)?;
                let towers = TowerPlan::Phi4(Box::new(Phi4Plan { images, sounds }));
                plain(towers, UNIT_SCALE, placeholders)
            }
            _ => llava::read(family, outer, &vision, &processor, text).map(Some),
        }
    }

    /// Returns the widths of a model of two towers.
    pub(super) fn towers(&self) -> Option<TwoTowers> {
        self.towers
    }

    /// Loads the tower.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape, or the device rejects one.
    pub(super) fn load(
        &self,
        loader: &mut WeightLoader<'_>,
    ) -> Result<Arc<dyn MediaEncoder>, ModelError> {
        let pixels = Pixels::new(&self.scale);
        Ok(match &self.vision_tower {
            TowerPlan::Pixtral(config) => {
                Arc::new(self.encoder(pixtral_config::load(loader, config, pixels)?))
            }
            TowerPlan::Vit(config) => {
                Arc::new(self.encoder(llava::load_vit(loader, config, pixels)?))
            }
            TowerPlan::Pooled(config) => {
                Arc::new(self.encoder(two_towers::PooledTower::load(loader, config, pixels)?))
            }
            TowerPlan::Qwen(config) => {
                let patches = format!("{}.weight", config.patch_module);
                let module = stored(loader, VISUAL, &patches);
                Arc::new(self.encoder(qwen::QwenTower::load(loader, module, config, pixels)?))
            }
            TowerPlan::Gemma4(config) => {
                Arc::new(self.encoder(gemma4::Gemma4Tower::load(loader, config, pixels)?))
            }
            TowerPlan::Gemma4Unified(config) => Arc::new(
                self.encoder(gemma4_unified::UnifiedEmbedder::load(loader, config, pixels)?),
            ),
            TowerPlan::Llama4(config) => {
                Arc::new(self.encoder(llama4::Llama4Tower::load(loader, config, pixels)?))
            }
            TowerPlan::Siglip2(config) => {
                Arc::new(self.encoder(siglip2::Siglip2Tower::load(loader, config, pixels)?))
            }
            TowerPlan::MiniCpm(config) => {
                Arc::new(self.encoder(minicpm::MiniCpmTower::load(loader, config, pixels)?))
            }
            TowerPlan::Paddle(config) => {
                Arc::new(self.encoder(paddle::PaddleTower::load(loader, config, pixels)?))
            }
            TowerPlan::Glm(config) => {
                let module = stored(loader, VISUAL, "patch_embed.proj.weight");
                Arc::new(self.encoder(glm::GlmTower::load(loader, module, config, pixels)?))
            }
            TowerPlan::Phi3V(config) => {
                Arc::new(self.encoder(phi3v::Phi3VTower::load(loader, config, pixels)?))
            }
            TowerPlan::Phi4(plan) => {
                let images = phi4::Phi4Tower::load(loader, &plan.images, pixels)?;
                let sounds = Arc::new(plan.sounds.load(loader)?);
                Arc::new(SeeingAndHearing { images: Arc::new(self.encoder(images)), sounds })
            }
        })
    }

    /// Returns the encoder of this tower.
    fn encoder<T>(&self, vision_tower: T) -> VisionEncoder<T> {
        VisionEncoder {
            vision_tower,
            placeholders: self.placeholders.clone(),
            position_axes: self.position_axes,
            attention: self.attention,
        }
    }
}

/// Returns the module of `modules` that holds the tensor `name`, by default the first.
fn stored<'m>(loader: &WeightLoader<'_>, modules: &[&'m str], name: &str) -> &'m str {
    let has = |module: &&&str| loader.has(&format!("{module}.{name}"));
    modules.iter().find(has).or(modules.first()).copied().unwrap_or_default()
}

/// Returns the id of a placeholder's token.
fn token(outer: &Fields, field: &str) -> Result<Option<u32>, ConfigError> {
    Ok(outer.count(field)?.and_then(|id| u32::try_from(id).ok()))
}

/// Returns the activation that `field` names, by default `default`.
fn activation(
    fields: &Fields,
    field: &str,
    default: Activation,
) -> Result<Activation, ConfigError> {
    let Some(name) = fields.text(field)? else { return Ok(default) };
    let found = ActivationName::from_name(name).and_then(plain_activation);
    found.ok_or_else(|| fields.invalid(field, "an activation of transformers without weights"))
}
