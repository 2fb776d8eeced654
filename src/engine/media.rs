//! The processor of a model's images and sounds, around the tokenizer.

use std::sync::Arc;

use playhouse_actors::ports::{MEDIA_IO_KWARGS, TextCodec};
use serde_json::Value;

use super::StartError;
use crate::{
    config::{EngineConfig, JsonObject},
    media::{EmbedsLayout, MediaService, MediaSettings, families::processor_for},
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
    let embeds = config.enable_mm_embeds.then(|| EmbedsLayout::of(&config.model)).transpose()?;
    let mut kwargs = config.mm_processor_kwargs.clone().unwrap_or_default().0;
    if let Some(JsonObject(io)) = config.media_io_kwargs.clone() {
        kwargs.insert(MEDIA_IO_KWARGS.to_owned(), Value::Object(io));
    }
    let settings = MediaSettings {
        limits: config.limit_mm_per_prompt.clone().unwrap_or_default().0,
        pixels_max: config.mm_max_pixels as u64,
        cache_bytes: config.mm_processor_cache_bytes,
        kwargs,
        embeds,
    };
    let names = config.served_names();
    let name = names.first().map_or("", String::as_str);
    Ok(codec.with_media(Arc::new(MediaService::new(family, settings, name))))
}

/// Returns the largest number of embeddings of one item; zero if the model takes none.
pub(super) fn max_item_embeds(codec: &dyn TextCodec) -> usize {
    codec.media().map_or(0, |media| media.max_item_embeds())
}
