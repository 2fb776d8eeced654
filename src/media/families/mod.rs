//! The processors of single families. Those that take images do what the Hugging Face processors of
//! transformers 5 do with torchvision, pixel by pixel.

mod fields;
mod llava;
mod qwen;
mod resize;
mod sizes;
#[cfg(test)]
mod tests;
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
use crate::model::config::ConfigSource;
use crate::model::vision::{ProcessorConfig, VisionFamily};

/// Returns the processor of the media of the model in the folder `model`, if it takes some.
/// `token` returns the id of a token by its text.
///
/// # Errors
/// [`ConfigError`] if a file of the model has a field without a valid value.
pub(crate) fn processor_for(
    model: &Path,
    _token: &dyn Fn(&str) -> Option<TokenId>,
) -> Result<Option<Arc<dyn FamilyProcessor>>, ConfigError> {
    let source = ConfigSource::read(model)?;
    let outer = source.fields();
    if whisper::is_of(outer.object()) {
        return Ok(Some(Arc::new(whisper::WhisperProcessor::load(model)?)));
    }
    let Some(family) = VisionFamily::of(outer)? else { return Ok(None) };
    let Some(processor) = ProcessorConfig::read(model)? else { return Ok(None) };
    Ok(Some(match family {
        VisionFamily::Clip | VisionFamily::Siglip => {
            Arc::new(llava::Llava::read(family, outer, &processor)?)
        }
        VisionFamily::Qwen2Vl | VisionFamily::Qwen2_5Vl | VisionFamily::Qwen3Vl => {
            Arc::new(qwen::Qwen::read(family, outer, &processor)?)
        }
    }))
}

/// Returns an item of the images `pixels`, which have one size: `[count, height, width, 3]`.
fn item(pixels: Vec<Pixels>, num_embeds: usize, grid: Option<[u32; 3]>) -> ProcessedMedia {
    let size = pixels.first().map(|pixels| [pixels.height, pixels.width]).unwrap_or_default();
    let shape = vec![pixels.len(), size[0], size[1], 3];
    let data: Vec<u8> = pixels.into_iter().flat_map(|pixels| pixels.data).collect();
    let tensor = MediaTensor { shape, dtype: MediaDtype::U8, data: data.into() };
    ProcessedMedia { modality: Modality::Image, tensors: vec![tensor], num_embeds, grid }
}
