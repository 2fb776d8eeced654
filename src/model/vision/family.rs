//! The towers by multimodal class.

use std::path::Path;

use super::{ProcessorConfig, nemotron_vl};
use crate::model::config::{ConfigError, Fields, INNER_TYPE};
use crate::model::families;

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
    /// SigLIP with the projector of InternVL, in the form of its authors' code: Llama Nemotron VL.
    NemotronVl,
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
    /// A tower whose states learned queries see: BLIP-2.
    Blip2,
    /// SAM: GOT-OCR 2.
    GotOcr2,
    /// That of Ovis 2, with a visual vocabulary.
    Ovis2,
    /// The same of Qwen2.5-Omni, with other names.
    Qwen2_5Omni,
    /// That of Qwen3-VL, with learned positions and states for the first layers.
    Qwen3Vl,
    /// The same of Qwen3-Omni, with other names.
    Qwen3Omni,
    /// That of Qwen3.5: as Qwen3-VL's, without states for layers.
    Qwen3_5,
    /// That of GLM-4.1V and its successors.
    Glm4v,
    /// That of Llama 4.
    Llama4,
    /// The tower of GLM-OCR.
    GlmOcr,
    /// The tower of Idefics 3 for images of any size, with the projector of Aria.
    Aria,
    /// SigLIP over crops that overlap, whose windows of patches attend to themselves: Molmo 2.
    Molmo2,
    /// MoonViT: Kimi-VL.
    KimiVl,
    /// The same under other names: Kimi K2.5.
    KimiK25,
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
        if self == Self::NemotronVl {
            return nemotron_vl::processor(model, outer).map(Some);
        }
        let default = || ProcessorConfig::of_model(&Fields::empty_in(outer));
        let found = ProcessorConfig::read(model)?;
        Ok(found.or_else(|| self.is_of_two_towers().then(default)))
    }
}
