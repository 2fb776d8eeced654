//! The processor of a model's images and sounds, around the tokenizer.

use std::sync::Arc;

use playhouse_actors::ports::TextCodec;

use super::StartError;
use crate::{
    config::EngineConfig,
    media::{MediaService, MediaSettings, families::processor_for},
    text::HfTextCodec,
};

/// Returns the codec with the processor of the model's media, if the model takes some.
///
/// # Errors
/// [`StartError`] if the files of the processor cannot be used.
pub(super) fn with_media(
    config: &EngineConfig,
    codec: HfTextCodec,
) -> Result<HfTextCodec, StartError> {
    let of_text = codec.clone();
    let encode = move |text: &str| of_text.encode(text, false).unwrap_or_default();
    let Some(family) = processor_for(&config.model, encode)? else {
        return Ok(codec);
    };
    let settings = MediaSettings {
        limits: config.limit_mm_per_prompt.clone().unwrap_or_default().0,
        pixels_max: config.mm_max_pixels as u64,
        cache_bytes: config.mm_processor_cache_bytes,
        kwargs: config.mm_processor_kwargs.clone().unwrap_or_default().0,
    };
    let names = config.served_names();
    let name = names.first().map_or("", String::as_str);
    Ok(codec.with_media(Arc::new(MediaService::new(family, settings, name))))
}

/// Returns the largest number of embeddings of one item; zero if the model takes none.
pub(super) fn max_item_embeds(codec: &dyn TextCodec) -> usize {
    codec.media().map_or(0, |media| media.max_item_embeds())
}
