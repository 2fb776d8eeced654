//! The processors of single families. Pixels are those of the Hugging Face processors of
//! transformers 5 with torchvision, to the bit. Those of `InternVLChatModel` and Llama Nemotron VL
//! are Pillow's.
//! Spectrograms are those of transformers to 1e-4.

mod adjustable;
mod aria;
mod blip2;
mod cohere;
mod deepseek_ocr;
mod fields;
mod gemma3;
mod gemma4;
mod glm;
mod glm_video;
mod got_ocr;
mod granite_speech;
mod hearing;
mod idefics3;
mod internvl;
mod internvl_video;
mod kimi;
mod lfm2;
mod llama4;
mod llava;
mod llava_next;
mod llava_next_video;
mod llava_onevision;
mod minicpm;
mod molmo2;
mod omni;
mod ovis2;
mod paddle;
mod paligemma;
mod pan_and_scan;
mod phi3v;
mod phi4;
mod phi4_sounds;
mod pixtral;
mod plain_resize;
mod qwen;
mod qwen_video;
mod resize;
mod sampling;
mod sizes;
#[cfg(test)]
mod tests;
mod tiles;
mod two_towers;
mod unfiltered;
mod whisper;

use std::path::Path;
use std::sync::Arc;

use playhouse_actors::logic::request::{
    ids::TokenId,
    media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
};

use self::resize::Pixels;
use super::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::audio::{AudioFamily, EXTRACTOR_FILES, SoundTower};
use crate::model::config::{ConfigSource, Fields};
use crate::model::vision::{self, ProcessorConfig, VisionFamily};
use crate::model_files;

/// Returns the tokens of a text, without any around it.
pub(super) type Encode = dyn Fn(&str) -> Vec<TokenId> + Send + Sync;

/// Returns the processor of the media of the model in the folder `model`, if it takes some.
/// `encode` returns the tokens of a text, without any around it.
///
/// # Errors
/// [`ConfigError`] if a file of the model has a field without a valid value.
pub(crate) fn processor_for(
    model: &Path,
    encode: impl Fn(&str) -> Vec<TokenId> + Send + Sync + 'static,
) -> Result<Option<Arc<dyn FamilyProcessor>>, ConfigError> {
    let encode: Arc<Encode> = Arc::new(encode);
    let source = ConfigSource::read(model)?;
    let outer = source.fields();
    if whisper::is_of(outer.object()) {
        return Ok(Some(Arc::new(whisper::WhisperProcessor::load(model)?)));
    }
    if let Some(kind) = SoundTower::of(outer) {
        if !EXTRACTOR_FILES.iter().any(|file| model_files::exists(&model.join(file))) {
            return Ok(None);
        }
        let family = match kind {
            SoundTower::Hearing(family) => family,
            SoundTower::GraniteSpeech => {
                let sounds = granite_speech::GraniteSpeech::read(model, outer)?;
                return Ok(Some(Arc::new(sounds)));
            }
        };
        let images = match family {
            AudioFamily::Qwen2_5Omni => VisionFamily::Qwen2_5Omni,
            AudioFamily::Qwen3Omni => VisionFamily::Qwen3Omni,
            _ => return Ok(Some(Arc::new(hearing::Hearing::read(family, model, outer)?))),
        };
        let Some(processor) = ProcessorConfig::read(model)? else { return Ok(None) };
        let sounds = hearing::Hearing::read(family, model, outer)?;
        let images = adjustable::Adjustable::read(images, outer, processor, encode)?;
        return Ok(Some(Arc::new(omni::Omni::new(family, images, sounds))));
    }
    let Some(family) = VisionFamily::of(outer)? else { return Ok(None) };
    if family == VisionFamily::InternVlChat {
        let outer = vision::translated(outer, internvl::context_token(outer, &*encode)?)?;
        let processor = ProcessorConfig::of_model(&outer);
        let adjustable = adjustable::Adjustable::read(family, &outer, processor, encode)?;
        return Ok(Some(Arc::new(adjustable)));
    }
    let Some(processor) = family.processor(model, outer)? else { return Ok(None) };
    let adjustable = adjustable::Adjustable::read(family, outer, processor, encode)?;
    Ok(Some(Arc::new(adjustable)))
}

/// Returns the processor of the images of a family, whose settings clients do not change.
fn of_images(
    family: VisionFamily,
    outer: &Fields,
    processor: &ProcessorConfig,
    encode: Arc<Encode>,
) -> Result<Arc<dyn FamilyProcessor>, ConfigError> {
    Ok(match family {
        VisionFamily::Clip | VisionFamily::Siglip => {
            Arc::new(llava::Llava::read(family, outer, processor)?)
        }
        VisionFamily::Qwen2Vl
        | VisionFamily::Qwen2_5Vl
        | VisionFamily::Exaone4_5
        | VisionFamily::DotsOcr
        | VisionFamily::Qwen2_5Omni
        | VisionFamily::Qwen3Omni
        | VisionFamily::Qwen3Vl
        | VisionFamily::Qwen3_5 => Arc::new(qwen::Qwen::read(family, outer, processor, encode)?),
        VisionFamily::Glm4v | VisionFamily::GlmOcr => {
            Arc::new(glm::Glm::read(family, outer, processor, encode)?)
        }
        VisionFamily::DeepseekOcr | VisionFamily::DeepseekOcr2 => {
            Arc::new(deepseek_ocr::DeepseekOcr::read(family, processor, &*encode)?)
        }
        VisionFamily::Blip2 => Arc::new(blip2::Blip2::read(outer, processor)?),
        VisionFamily::Ovis2 => Arc::new(ovis2::Ovis2::read(outer, processor, &*encode)?),
        VisionFamily::GotOcr2 => Arc::new(got_ocr::GotOcr::read(outer, processor)?),
        VisionFamily::Aria => Arc::new(aria::Aria::read(outer, processor)?),
        VisionFamily::Molmo2 => Arc::new(molmo2::Molmo2::read(outer, processor, &*encode)?),
        VisionFamily::KimiVl | VisionFamily::KimiK25 => {
            Arc::new(kimi::Kimi::read(family, outer, processor)?)
        }
        VisionFamily::MiniCpmV => Arc::new(minicpm::MiniCpm::read(outer, processor, encode)?),
        VisionFamily::Lfm2Vl => Arc::new(lfm2::Lfm2::read(outer, processor, encode)?),
        VisionFamily::PaliGemma => {
            Arc::new(paligemma::PaliGemma::read(outer, processor, &*encode)?)
        }
        VisionFamily::PaddleOcr => Arc::new(paddle::Paddle::read(outer, processor)?),
        VisionFamily::AyaVision | VisionFamily::Cohere2Vision => {
            Arc::new(cohere::Cohere::read(family, outer, processor, &*encode)?)
        }
        VisionFamily::Pixtral | VisionFamily::Mistral3 | VisionFamily::LightOnOcr => {
            Arc::new(pixtral::Pixtral::read(family, outer, processor, &*encode)?)
        }
        VisionFamily::LlavaNext | VisionFamily::LlavaNextSiglip => {
            Arc::new(llava_next::LlavaNext::read(family, outer, processor)?)
        }
        VisionFamily::LlavaNextVideo => {
            Arc::new(llava_next_video::LlavaNextVideo::read(family, outer, processor)?)
        }
        VisionFamily::LlavaOnevision => {
            Arc::new(llava_onevision::LlavaOnevision::read(family, outer, processor)?)
        }
        VisionFamily::Gemma3 => Arc::new(gemma3::Gemma3::read(family, outer, processor, &*encode)?),
        VisionFamily::Gemma4 | VisionFamily::Gemma4Unified => {
            Arc::new(gemma4::Gemma4::read(family, outer, processor, encode)?)
        }
        VisionFamily::Idefics3 => {
            Arc::new(idefics3::Idefics3::read(family, outer, processor, &*encode)?)
        }
        VisionFamily::ClipModel | VisionFamily::SiglipModel => {
            Arc::new(two_towers::TwoTowers::read(family, outer, processor, &*encode)?)
        }
        VisionFamily::Llama4 => Arc::new(llama4::Llama4::read(family, outer, processor, &*encode)?),
        VisionFamily::Phi3V => Arc::new(phi3v::Phi3V::read(family, outer, processor)?),
        VisionFamily::Phi4 => Arc::new(phi4::Phi4::read(outer, processor, &*encode)?),
        VisionFamily::InternVl | VisionFamily::InternVlChat | VisionFamily::NemotronVl => {
            Arc::new(internvl::InternVl::read(family, outer, processor, encode)?)
        }
    })
}

/// Returns the token whose text is in `field` of the processor, by default `default`.
fn token_of(
    processor: &Fields,
    field: &str,
    default: &str,
    encode: &dyn Fn(&str) -> Vec<TokenId>,
) -> Result<TokenId, ConfigError> {
    let text = processor.text(field)?.unwrap_or(default);
    match *encode(text) {
        [token] => Ok(token),
        _ => Err(processor.invalid(field, &format!("the text of one token, by default {default}"))),
    }
}

/// Returns an item of the images `pixels`, which have one size: `[count, height, width, 3]`.
fn item(pixels: Vec<Pixels>, num_embeds: usize, grid: Option<[u32; 3]>) -> ProcessedMedia {
    let size = pixels.first().map(|pixels| [pixels.height, pixels.width]).unwrap_or_default();
    let shape = vec![pixels.len(), size[0], size[1], 3];
    let data: Vec<u8> = pixels.into_iter().flat_map(|pixels| pixels.data).collect();
    let tensor = MediaTensor { shape, dtype: MediaDtype::U8, data: data.into() };
    ProcessedMedia { modality: Modality::Image, tensors: vec![tensor], num_embeds, grid }
}
