//! Reads the parts of messages that are images, videos and sounds.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};

use super::{
    access::{Content, MediaAccess},
    data_url,
    part_fields::{self, EMBEDS, INPUT_AUDIO, PARTS, UNKNOWN},
};
use crate::{
    api::{MediaProcessor, MediaSource, Modality, RawMedia},
    server::{http::error::ApiError, memory::RequestMemory, state::AppState},
};

/// Items that are fetched at a time.
const FETCHES_MAX: usize = 4;
/// Items of a prompt that come as embeddings, where the settings allow no other item of the kind.
const EMBEDS_ITEMS_MAX: usize = 999;
/// The model of a request, for errors about parts of media.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct AskedModel<'a> {
    pub(in crate::server) name: &'a str,
    /// Whether it has parts for media, which are not served.
    pub(in crate::server) serves_text_alone: bool,
}

/// The images, videos and sounds of one prompt, in order.
pub(in crate::server) struct MediaParts<'a> {
    model: AskedModel<'a>,
    /// The processor of the model's media, if it takes some.
    processor: Option<Arc<dyn MediaProcessor>>,
    /// The settings of all items.
    kwargs: Map<String, Value>,
    items: Vec<Item>,
}

struct Item {
    modality: Modality,
    content: Content,
    uuid: Option<Arc<str>>,
}

impl<'a> MediaParts<'a> {
    /// Returns no items for `model`, whose media `processor` makes ready.
    pub(in crate::server) fn new(
        model: AskedModel<'a>,
        processor: Option<Arc<dyn MediaProcessor>>,
    ) -> Self {
        Self { model, processor, kwargs: Map::new(), items: Vec::new() }
    }

    /// Returns the same with the settings of all items.
    pub(in crate::server) fn with_kwargs(self, kwargs: Map<String, Value>) -> Self {
        Self { kwargs, ..self }
    }

    /// Returns whether the model takes images.
    pub(in crate::server) fn takes_images(&self) -> bool {
        self.processor.as_ref().is_some_and(|processor| processor.limit(Modality::Image) > 0)
    }

    /// Returns the part for the chat template, if `part` is one of media. Its content is kept here.
    ///
    /// # Errors
    /// 400 if the model does not take the part, has too many, or if its content is wrong. `place`
    /// names the part.
    pub(in crate::server) fn read(
        &mut self,
        place: &str,
        part: &Value,
    ) -> Result<Option<Value>, ApiError> {
        let Some(part) = part.as_object() else { return Ok(None) };
        let Some((kind, modality)) = part_fields::kind(part) else {
            return match part.get("type").and_then(Value::as_str) {
                Some(kind) if UNKNOWN.contains(&kind) => Err(self.refused(kind)),
                _ => Ok(None),
            };
        };
        match part_fields::is_embeds(kind) {
            true => self.check_embeds(kind, modality)?,
            false => self.check(kind, modality)?,
        }
        let uuid = part_fields::uuid(place, part)?;
        let given = part_fields::content(place, part, kind, modality)?;
        self.push(modality, given, uuid)
    }

    /// Adds an item with this URL. Returns the part for the chat template.
    ///
    /// # Errors
    /// As [`MediaParts::read`]. `kind` is the part in the client's protocol.
    pub(in crate::server) fn image_of_url(
        &mut self,
        kind: &str,
        url: &str,
    ) -> Result<Value, ApiError> {
        self.check(kind, Modality::Image)?;
        let content = match url {
            "" => None,
            url => Some(Content::of_url(Modality::Image, url)?),
        };
        self.push(Modality::Image, content, None).map(Option::unwrap_or_default)
    }

    /// Adds an image in base64. Returns the part for the chat template.
    ///
    /// # Errors
    /// As [`MediaParts::read`].
    pub(in crate::server) fn image_of_base64(
        &mut self,
        kind: &str,
        base64: &str,
    ) -> Result<Value, ApiError> {
        self.check(kind, Modality::Image)?;
        let content = Content::Here(MediaSource::File(data_url::bytes(base64)?));
        self.push(Modality::Image, Some(content), None).map(Option::unwrap_or_default)
    }

    /// Returns the items with their content.
    ///
    /// # Errors
    /// 400 if the content of one is not allowed, or cannot be fetched.
    pub(in crate::server) async fn load(
        self,
        access: &MediaAccess,
        memory: &RequestMemory,
    ) -> Result<Arc<[RawMedia]>, ApiError> {
        let kwargs = &self.kwargs;
        let base64_bytes = self.items.iter().map(|item| item.content.base64_bytes()).sum();
        let loads = self.items.into_iter().map(|Item { modality, content, uuid }| async move {
            let source = access.load(content, memory).await?;
            Ok::<_, ApiError>(RawMedia { modality, source, uuid, kwargs: kwargs.clone() })
        });
        let media: Vec<RawMedia> = stream::iter(loads).buffered(FETCHES_MAX).try_collect().await?;
        memory.media_text_read(base64_bytes);
        Ok(media.into())
    }

    /// Rejects a part that the model does not take.
    fn check(&self, kind: &str, modality: Modality) -> Result<(), ApiError> {
        let Some(processor) = &self.processor else { return Err(self.refused(kind)) };
        let limit = processor.limit(modality);
        let count = self.items.iter().filter(|item| item.modality == modality).count();
        match count < limit {
            true => Ok(()),
            false => Err(too_many(modality, limit)),
        }
    }

    /// Rejects embeddings that the model or the settings do not take. As in vLLM, a limit of zero
    /// leaves them unlimited.
    fn check_embeds(&self, kind: &str, modality: Modality) -> Result<(), ApiError> {
        let Some(processor) = &self.processor else { return Err(self.refused(kind)) };
        processor.check_embeds(modality)?;
        match processor.limit(modality) {
            0 if self.items.len() < EMBEDS_ITEMS_MAX => Ok(()),
            _ => self.check(kind, modality),
        }
    }

    fn push(
        &mut self,
        modality: Modality,
        content: Option<Content>,
        uuid: Option<Arc<str>>,
    ) -> Result<Option<Value>, ApiError> {
        let content = match (content, &uuid) {
            (Some(content), _) => content,
            (None, Some(_)) => Content::Here(MediaSource::Named),
            (None, None) => {
                let kind = modality.as_str();
                let index = self.items.iter().filter(|item| item.modality == modality).count();
                return Err(ApiError::bad_request(format!(
                    "multi_modal_data['{kind}'][{index}] is empty but \
                     multi_modal_uuids['{kind}'][{index}] is missing."
                )));
            }
        };
        self.items.push(Item { modality, content, uuid });
        Ok(Some(json!({ "type": modality.as_str() })))
    }

    /// Returns why the model does not take a part of this kind, if it is one of media.
    pub(in crate::server) fn refusal(&self, kind: &str) -> Option<ApiError> {
        let known = PARTS.iter().chain(&EMBEDS).map(|(kind, _)| *kind);
        let mut known = known.chain([INPUT_AUDIO]).chain(UNKNOWN);
        known.any(|known| known == kind).then(|| self.refused(kind))
    }

    fn refused(&self, kind: &str) -> ApiError {
        let AskedModel { name, serves_text_alone } = self.model;
        let message = match (&self.processor, serves_text_alone) {
            (Some(_), _) => {
                let known: Vec<&str> = PARTS.iter().map(|(kind, _)| *kind).collect();
                format!(
                    "'{kind}' parts are not supported by this server; send {} or {INPUT_AUDIO}",
                    known.join(", ")
                )
            }
            (None, true) => format!(
                "{name} takes no '{kind}' parts: only its text model is served, its parts for \
                 images, video and audio are not served yet"
            ),
            (None, false) => {
                format!("{name} is not a multimodal model: it takes no '{kind}' parts")
            }
        };
        ApiError::invalid("messages", message)
    }
}

/// Returns the most memory in which the items of a prompt are decoded, one after the other.
pub(in crate::server) fn working_bytes(state: &AppState, media: &[RawMedia]) -> usize {
    let Some(processor) = state.engine.codec().media() else { return 0 };
    media.iter().map(|item| processor.working_bytes(item)).max().unwrap_or(0)
}

/// Returns the error of a prompt with too many items of a kind.
fn too_many(modality: Modality, limit: usize) -> ApiError {
    let kind = modality.as_str();
    let message =
        format!("At most {limit} {kind}(s) may be provided in one prompt. (parameter={kind})");
    ApiError::invalid(kind, message)
}

#[cfg(test)]
mod tests;
