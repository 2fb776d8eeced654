//! Vision towers with their projectors: from processed images to rows in the place of embeddings.
//!
//! A family is data over the layers of `block`. An image is a sequence of attention to both sides,
//! and so is a window or a tile of it. Several images are one ragged batch.
//!
//! Models without the files of an image processor, and those with a tower that is not known here,
//! take text alone.

mod anyres;
mod batch;
mod bicubic;
mod block;
mod cohere;
mod config;
mod deepseek_ocr;
mod deepseek_ocr2;
mod deepseek_ocr_config;
mod encoder;
mod glm;
mod got_ocr;
mod grid;
mod internvl_chat;
mod llama4;
mod llava;
mod lookup;
mod minicpm;
mod mixed;
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
use super::families;
use super::two_towers::TwoTowers;
use super::weight_loader::WeightLoader;
use super::{MediaEncoder, ModelError};

pub(crate) use anyres::AnyResTiles;
pub(crate) use config::{PixelScale, ProcessorConfig, UNIT_SCALE};
pub(crate) use deepseek_ocr_config::OcrViews;
pub(crate) use got_ocr::GotImages;
pub(crate) use internvl_chat::{CONTEXT_TOKEN, translated};
pub(crate) use llava::TileImages;
pub(crate) use minicpm::MiniCpmImages;
pub(crate) use mixed::PooledFrames;
pub(crate) use onevision::{most_tiles, video_placeholder};
pub(crate) use ovis2_config::{OvisImages, OvisToken};
pub(crate) use phi4_config::Phi4Config;
pub(crate) use phi4_tiles::Phi4Tiles;
pub(crate) use pixtral_config::PixtralImages;
pub(crate) use qwen_config::scale as qwen_scale;
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
    /// SAM and CLIP, one behind the other: DeepSeek-OCR.
    DeepseekOcr,
    /// SAM and Qwen2: DeepSeek-OCR 2.
    DeepseekOcr2,
    /// SAM: GOT-OCR 2.
    GotOcr2,
    /// That of Ovis 2, with a visual vocabulary.
    Ovis2,
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

    /// Returns the fields of the processor of the model in the folder `model`, whose `config.json`
    /// has the fields `outer`. A model without its files may be one of text alone.
    ///
    /// # Errors
    /// As [`ProcessorConfig::read`].
    pub(crate) fn processor(
        self,
        model: &Path,
        outer: &Fields,
    ) -> Result<Option<ProcessorConfig>, ConfigError> {
        if matches!(self, Self::DeepseekOcr | Self::DeepseekOcr2) {
            return ProcessorConfig::read_whole(model, outer).map(Some);
        }
        let default = || ProcessorConfig::of_model(&Fields::empty_in(outer));
        let found = ProcessorConfig::read(model)?;
        Ok(found.or_else(|| self.is_of_two_towers().then(default)))
    }
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
    Glm(glm::GlmConfig),
    Llama4(llama4::Llama4Config),
    Paddle(paddle::PaddleConfig),
    Siglip2(siglip2::Siglip2Config),
    MiniCpm(minicpm::MiniCpmConfig),
    DeepseekOcr(Box<OcrConfig>),
    DeepseekOcr2(Box<Ocr2Config>),
    GotOcr(got_ocr::GotConfig),
    Ovis(ovis2_config::OvisConfig),
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
        let qwen = |config| axes(TowerPlan::Qwen(config), [151_655, 151_656]);
        let image_token = || Ok::<Vec<u32>, ConfigError>(vec![llava::placeholder(outer, family)?]);
        // Positions of the text model have one axis, and an image takes as many as tokens.
        let one_axis = |vision_tower: TowerPlan, scale: PixelScale, placeholders: Vec<u32>| {
            Ok(Some(Self::of_one_axis(vision_tower, processor.scale(scale)?, placeholders)))
        };
        let plain = |config: qwen::QwenConfig, tokens: [u32; 2]| {
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
            VisionFamily::Exaone4_5 => plain(qwen_config::exaone4_5(&visual)?, [67, 68]),
            VisionFamily::DotsOcr => plain(qwen_config::dots(&visual)?, [151_665, 151_656]),
            VisionFamily::Qwen2_5Omni => qwen(qwen_config::qwen2_5_omni(&visual)?),
            VisionFamily::Qwen3Vl => qwen(qwen_config::qwen3(&visual)?),
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
            TowerPlan::Llama4(config) => {
                Arc::new(self.encoder(llama4::Llama4Tower::load(loader, config, pixels)?))
            }
            TowerPlan::Siglip2(config) => {
                Arc::new(self.encoder(siglip2::Siglip2Tower::load(loader, config, pixels)?))
            }
            TowerPlan::MiniCpm(config) => {
                Arc::new(self.encoder(minicpm::MiniCpmTower::load(loader, config, pixels)?))
            }
            TowerPlan::Ovis(config) => {
                Arc::new(self.encoder(ovis2::OvisTower::load(loader, config, pixels)?))
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
