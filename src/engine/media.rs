//! The processor of a model's images and sounds, and the limits of an encoder's texts, around the
//! tokenizer.

use std::{path::Path, sync::Arc};

use playhouse_actors::{
    logic::input::encoder_text::EncoderText,
    ports::{MEDIA_IO_KWARGS, TextCodec},
};
use serde_json::Value;

use super::StartError;
use crate::{
    config::{EngineConfig, GenerationConfigSource, JsonObject},
    media::{EmbedsLayout, MediaService, MediaSettings, families::processor_for},
    model::encoder_decoder::text::TextPrompts,
    text::HfTextCodec,
};

/// A chat template that writes nothing but the contents of messages.
pub(super) const CONTENT_ALONE: &str =
    "{% for message in messages %}{{ message['content'] }}{% endfor %}";

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
    // As in vLLM, a model of two towers has a template for conversations with one image.
    let has_template = config.chat_template.is_some() || !codec.chat_templates().is_empty();
    let codec = match family.stands_alone() {
        Some(_) if !has_template => codec.with_chat_template(CONTENT_ALONE.to_owned()),
        _ => codec,
    };
    Ok(codec.with_media(Arc::new(MediaService::new(family, settings, name))))
}

/// Returns the codec with the facts about the model's encoder, if prompts are its texts.
///
/// # Errors
/// [`StartError`] if the model's files do not say how the decoder begins.
pub(super) fn with_encoder_text(
    config: &EngineConfig,
    codec: HfTextCodec,
) -> Result<HfTextCodec, StartError> {
    let generation: &Path = match &config.generation_config {
        GenerationConfigSource::Folder(folder) => folder,
        GenerationConfigSource::Auto | GenerationConfigSource::Vllm => &config.model,
    };
    let overrides = config.hf_overrides.as_ref();
    let Some(prompts) = TextPrompts::of_model(&config.model, overrides, generation)? else {
        return Ok(codec);
    };
    let TextPrompts { max_tokens, vocab_size, decoder_prompt, not_applied } = prompts;
    if !not_applied.is_empty() {
        tracing::warn!(
            "the model's settings of generation have {}, which are not applied: requests may set \
             min_tokens, repetition_penalty and use_beam_search",
            not_applied.join(", ")
        );
    }
    let vocab_size = vocab_size as u32;
    let languages = codec.languages(vocab_size);
    let text = EncoderText { max_tokens, vocab_size, decoder_prompt, languages };
    Ok(codec.with_encoder_text(text))
}

/// Returns the largest number of embeddings of one item; zero if the model takes none.
pub(super) fn max_item_embeds(codec: &dyn TextCodec) -> usize {
    let of_text = codec.encoder_text().map_or(0, |text| text.max_tokens);
    codec.media().map_or(of_text, |media| media.max_item_embeds())
}
