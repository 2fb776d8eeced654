//! Vision towers with their projectors: from processed images to rows in the place of embeddings.
//!
//! A family is data over the layers of `block`. An image is a sequence of attention to both sides,
//! and so is a window or a tile of it. Several images are one ragged batch.
//!
//! Models without the files of an image processor, and those with a tower that is not known here,
//! take text alone.

mod anyres;
mod aria;
mod aria_config;
mod batch;
mod bicubic;
mod blip2;
mod block;
mod cohere;
mod config;
mod deepseek_ocr;
mod deepseek_ocr2;
mod deepseek_ocr_config;
mod encoder;
mod family;
mod gemma3;
mod gemma4;
mod gemma4_config;
mod gemma4_layer;
mod gemma4_unified;
mod glm;
mod got_ocr;
mod grid;
mod idefics3;
mod internvl_chat;
mod llama4;
mod llava;
mod lookup;
mod minicpm;
mod mixed;
mod molmo2;
mod molmo2_config;
mod molmo2_layout;
mod moonvit;
mod moonvit_config;
mod nemotron_vl;
mod onevision;
mod ovis2;
mod ovis2_config;
mod paddle;
mod phi3v;
mod phi4;
mod phi4_config;
mod phi4_tiles;
mod pixels;
mod pixtral;
mod pixtral_config;
mod projector;
mod qformer;
mod qwen;
mod qwen_config;
mod resized;
mod sam;
mod sam_attention;
mod seeing_and_hearing;
mod siglip2;
mod two_towers;
mod vit;
mod vit_names;

use std::path::Path;
use std::sync::Arc;

use self::config::CLIP_SCALE;
use self::deepseek_ocr_config::OcrConfig;
use self::deepseek_ocr2::Ocr2Config;
use self::encoder::{ItemAttention, VisionEncoder};
use self::lookup::{activation, stored, token};
use self::pixels::Pixels;
use super::audio::Phi4Sounds;
use super::config::{ConfigError, Fields, INNER_TYPE, ModelConfig};
use super::two_towers::TwoTowers;
use super::weight_loader::WeightLoader;
use super::{Backbone, MediaEncoder, ModelError};

pub(crate) use anyres::AnyResTiles;
pub(crate) use aria_config::AriaImages;
pub(super) use batch::{rows, sequences};
pub(crate) use blip2::Blip2Images;
pub(crate) use config::{PixelScale, ProcessorConfig, UNIT_SCALE};
pub(crate) use deepseek_ocr_config::OcrViews;
pub(crate) use family::VisionFamily;
pub(crate) use gemma4_config::{Gemma4Images, scale as gemma4_scale};
pub(crate) use got_ocr::GotImages;
pub(crate) use internvl_chat::{CONTEXT_TOKEN, translated};
pub(crate) use llava::TileImages;
pub(crate) use minicpm::MiniCpmImages;
pub(crate) use mixed::PooledFrames;
pub(crate) use molmo2_layout::Molmo2Layout;
pub(crate) use moonvit_config::MoonImages;
pub(crate) use onevision::{most_tiles, video_placeholder};
pub(crate) use ovis2_config::{OvisImages, OvisToken};
pub(crate) use phi4_config::Phi4Config;
pub(crate) use phi4_tiles::Phi4Tiles;
pub(crate) use pixtral_config::PixtralImages;
pub(super) use qformer::{QFormer, QFormerConfig};
pub(crate) use qwen_config::{MediaTokens, scale as qwen_scale};
pub(super) use sam_attention::own_distances;
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
    Glm(glm::GlmConfig),
    Llama4(llama4::Llama4Config),
    Paddle(paddle::PaddleConfig),
    Siglip2(siglip2::Siglip2Config),
    MiniCpm(minicpm::MiniCpmConfig),
    DeepseekOcr(Box<OcrConfig>),
    DeepseekOcr2(Box<Ocr2Config>),
    GotOcr(got_ocr::GotConfig),
    Blip2(Box<blip2::Blip2Config>),
    Ovis(ovis2_config::OvisConfig),
    Phi3V(vit::VitConfig),
    Phi4(Box<Phi4Plan>),
    Gemma4(gemma4::Gemma4Config),
    Gemma4Unified(gemma4_unified::UnifiedConfig),
    Moon(moonvit_config::MoonConfig),
    Aria(aria_config::AriaConfig),
    Molmo2(Box<molmo2_config::Molmo2Config>),
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
            _ => (outer, family.processor(model, outer)?),
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
        let tokens = MediaTokens::of(family).places;
        let qwen = |config| axes(TowerPlan::Qwen(config), tokens);
        let image_token = || Ok::<Vec<u32>, ConfigError>(vec![llava::placeholder(outer, family)?]);
        // Positions of the text model have one axis, and an image takes as many as tokens.
        let one_axis = |vision_tower: TowerPlan, scale: PixelScale, placeholders: Vec<u32>| {
            Ok::<_, ConfigError>(Some(Self::of_one_axis(
                vision_tower,
                processor.scale(scale)?,
                placeholders,
            )))
        };
        let plain = |config: qwen::QwenConfig| {
            let placeholders = vec![
                token(outer, "image_token_id")?.unwrap_or(tokens[0]),
                token(outer, "video_token_id")?.unwrap_or(tokens[1]),
            ];
            one_axis(TowerPlan::Qwen(config), qwen_config::scale(family), placeholders)
        };
        let visual = vision.with_aliases(OTHER_NAMES);
        match family {
            VisionFamily::Qwen2Vl => qwen(qwen_config::qwen2(&visual)?),
            VisionFamily::Qwen2_5Vl => qwen(qwen_config::qwen2_5(&visual)?),
            VisionFamily::Exaone4_5 => plain(qwen_config::exaone4_5(&visual)?),
            VisionFamily::DotsOcr => plain(qwen_config::dots(&visual)?),
            VisionFamily::Qwen2_5Omni => qwen(qwen_config::qwen2_5_omni(&visual)?),
            VisionFamily::Qwen3Vl => qwen(qwen_config::qwen3(&visual)?),
            VisionFamily::Qwen3Omni => qwen(qwen_config::qwen3_omni(&visual)?),
            VisionFamily::Qwen3_5 => qwen(qwen_config::qwen3_5(&visual)?),
            VisionFamily::Glm4v | VisionFamily::GlmOcr => {
                let is_ocr = family == VisionFamily::GlmOcr;
                let tokens = if is_ocr { [59_280, 59_281] } else { [151_343, 151_344] };
                axes(TowerPlan::Glm(glm::GlmConfig::read(&visual, family)?), tokens)
            }
            VisionFamily::PaddleOcr => {
                let config = paddle::PaddleConfig::read(&vision, text.hidden_size)?;
                axes(TowerPlan::Paddle(config), [100_295, 100_296])
            }
            VisionFamily::Llama4 => {
                let config = llama4::Llama4Config::read(&vision, text.hidden_size)?;
                one_axis(TowerPlan::Llama4(config), LLAMA4_SCALE, image_token()?)
            }
            VisionFamily::Lfm2Vl => {
                let config = siglip2::Siglip2Config::read(outer, &vision, text.hidden_size)?;
                one_axis(TowerPlan::Siglip2(config), UNIT_SCALE, image_token()?)
            }
            VisionFamily::Gemma4 | VisionFamily::Gemma4Unified => {
                let width = text.hidden_size;
                let vision_tower = match family {
                    VisionFamily::Gemma4 => {
                        TowerPlan::Gemma4(gemma4::Gemma4Config::read(&vision, width)?)
                    }
                    _ => TowerPlan::Gemma4Unified(gemma4_unified::UnifiedConfig::read(
                        &vision, width,
                    )?),
                };
                let placeholders = Gemma4Images::read(family, outer)?.placeholders.into();
                let plan = one_axis(vision_tower, gemma4_config::SCALE, placeholders)?;
                let scale = gemma4_scale(&processor.image, false)?;
                let attention = gemma4_config::attention(family, outer)?;
                Ok(plan.map(|plan| Self { scale, attention, ..plan }))
            }
            VisionFamily::Aria => {
                let config = aria_config::AriaConfig::read(outer, text.hidden_size)?;
                let placeholders = vec![llava::placeholder(outer, family)?];
                one_axis(TowerPlan::Aria(config), UNIT_SCALE, placeholders)
            }
            VisionFamily::Molmo2 => {
                let column = || internvl_chat::added_token(tokenizer, Molmo2Layout::COLUMN);
                let layout = Molmo2Layout::read(outer, &processor, column)?;
                layout.require_rows(outer, text.vocab_size)?;
                let placeholders = layout.tokens().to_vec();
                let config = molmo2_config::Molmo2Config::read(outer, layout, text.hidden_size)?;
                let vision_tower = TowerPlan::Molmo2(Box::new(config));
                let plan = one_axis(vision_tower, UNIT_SCALE, placeholders)?;
                Ok(plan.map(|plan| Self { attention: ItemAttention::WithinItems, ..plan }))
            }
            VisionFamily::KimiVl | VisionFamily::KimiK25 => {
                let config = moonvit_config::MoonConfig::read(family, outer, text.hidden_size)?;
                let placeholders = vec![MoonImages::read(family, outer)?.placeholder];
                let plan = one_axis(TowerPlan::Moon(config), UNIT_SCALE, placeholders)?;
                let scale = moonvit_config::scale(family, &processor.image)?;
                Ok(plan.map(|plan| Self { scale, ..plan }))
            }
            VisionFamily::MiniCpmV => {
                let config = minicpm::MiniCpmConfig::read(outer, &vision, text.hidden_size)?;
                let placeholders = vec![config.placeholder];
                // As in transformers, images take no positions of their own.
                one_axis(TowerPlan::MiniCpm(config), UNIT_SCALE, placeholders)
            }
            VisionFamily::Ovis2 => {
                let config = ovis2_config::OvisConfig::read(&vision, text.hidden_size)?;
                let placeholders = OvisImages::read(outer)?.placeholders();
                one_axis(TowerPlan::Ovis(config), CLIP_SCALE, placeholders)
            }
            VisionFamily::Blip2 => {
                let config = blip2::Blip2Config::read(outer, text.hidden_size)?;
                let placeholders = vec![config.images.placeholder];
                one_axis(TowerPlan::Blip2(Box::new(config)), CLIP_SCALE, placeholders)
            }
            VisionFamily::GotOcr2 => {
                let config = got_ocr::GotConfig::read(&vision, text.hidden_size)?;
                one_axis(TowerPlan::GotOcr(config), CLIP_SCALE, image_token()?)
            }
            VisionFamily::DeepseekOcr | VisionFamily::DeepseekOcr2 => {
                let (fields, width) = (&processor.image, text.hidden_size);
                let vision_tower = match family {
                    VisionFamily::DeepseekOcr => {
                        let config = OcrConfig::read(outer, &vision, fields, width)?;
                        TowerPlan::DeepseekOcr(Box::new(config))
                    }
                    _ => {
                        let config = Ocr2Config::read(outer, &vision, fields, width)?;
                        TowerPlan::DeepseekOcr2(Box::new(config))
                    }
                };
                let placeholders = vec![internvl_chat::added_token(tokenizer, OcrViews::TOKEN)?];
                one_axis(vision_tower, UNIT_SCALE, placeholders)
            }
            VisionFamily::Phi4 => {
                let images = Phi4Config::read(outer, text.hidden_size)?;
                let placeholders = vec![images.placeholder];
                let sounds = Phi4Sounds::read(outer, text.hidden_size)?;
                let vision_tower = TowerPlan::Phi4(Box::new(Phi4Plan { images, sounds }));
                one_axis(vision_tower, UNIT_SCALE, placeholders)
            }
            _ => llava::read(family, outer, &vision, &processor, text).map(Some),
        }
    }

    /// Returns the plan of a tower whose text model numbers all tokens alike.
    fn of_one_axis(vision_tower: TowerPlan, scale: PixelScale, placeholders: Vec<u32>) -> Self {
        let attention = ItemAttention::None;
        Self { vision_tower, scale, placeholders, position_axes: 1, attention, towers: None }
    }

    /// Returns the widths of a model of two towers.
    pub(super) fn towers(&self) -> Option<TwoTowers> {
        self.towers
    }

    /// Loads the tower of a model whose text model is `backbone`.
    ///
    /// # Errors
    /// [`ModelError`] if a tensor is missing or has another shape, or the device rejects one.
    pub(super) fn load(
        &self,
        loader: &mut WeightLoader<'_>,
        backbone: &dyn Backbone,
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
            TowerPlan::Llama4(config) => {
                Arc::new(self.encoder(llama4::Llama4Tower::load(loader, config, pixels)?))
            }
            TowerPlan::Siglip2(config) => {
                Arc::new(self.encoder(siglip2::Siglip2Tower::load(loader, config, pixels)?))
            }
            TowerPlan::Gemma4(config) => {
                Arc::new(self.encoder(gemma4::Gemma4Tower::load(loader, config, pixels)?))
            }
            TowerPlan::Gemma4Unified(config) => Arc::new(
                self.encoder(gemma4_unified::UnifiedEmbedder::load(loader, config, pixels)?),
            ),
            TowerPlan::Aria(config) => {
                Arc::new(self.encoder(aria::AriaTower::load(loader, config, pixels)?))
            }
            TowerPlan::Molmo2(config) => {
                Arc::new(self.encoder(molmo2::Molmo2Tower::load(loader, config, pixels, backbone)?))
            }
            TowerPlan::Moon(config) => {
                Arc::new(self.encoder(moonvit::MoonTower::load(loader, config, pixels)?))
            }
            TowerPlan::MiniCpm(config) => {
                Arc::new(self.encoder(minicpm::MiniCpmTower::load(loader, config, pixels)?))
            }
            TowerPlan::Ovis(config) => {
                Arc::new(self.encoder(ovis2::OvisTower::load(loader, config, pixels)?))
            }
            TowerPlan::Blip2(config) => {
                Arc::new(self.encoder(blip2::Blip2Tower::load(loader, config, pixels)?))
            }
            TowerPlan::GotOcr(config) => {
                Arc::new(self.encoder(got_ocr::GotTower::load(loader, config, pixels)?))
            }
            TowerPlan::DeepseekOcr(config) => {
                Arc::new(self.encoder(deepseek_ocr::OcrTower::load(loader, config, pixels)?))
            }
            TowerPlan::DeepseekOcr2(config) => {
                Arc::new(self.encoder(deepseek_ocr2::Ocr2Tower::load(loader, config, pixels)?))
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
