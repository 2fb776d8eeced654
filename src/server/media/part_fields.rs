//! The fields of parts that are images, videos and sounds.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use super::{access::Content, data_url};
use crate::{
    api::{MediaSource, Modality},
    server::http::error::ApiError,
};

/// Longest name that a client gives to an item, bytes.
const UUID_BYTES_MAX: usize = 512;
/// Most tensors of an item that comes as embeddings.
const EMBEDS_FIELDS_MAX: usize = 8;

/// The parts that have a URL, by `type`, with the kind of their item. The type is also the name of
/// the field with the URL, except for `input_image`. Parts with an object may come without `type`.
pub(super) const PARTS: [(&str, Modality); 5] = [
    ("image_url", Modality::Image),
    ("input_image", Modality::Image),
    ("image", Modality::Image),
    ("audio_url", Modality::Audio),
    ("video_url", Modality::Video),
];
/// The part whose content is an object with base64.
pub(super) const INPUT_AUDIO: &str = "input_audio";
/// The parts whose content is a tensor in base64, or an object of tensors. The type is also the
/// name of the field with them.
pub(super) const EMBEDS: [(&str, Modality); 2] =
    [("image_embeds", Modality::Image), ("audio_embeds", Modality::Audio)];
/// The parts that this server takes in no form.
pub(super) const UNKNOWN: [&str; 7] =
    ["image_pil", "video", "file", "input_file", "computer_screenshot", "video_embeds", "audio"];

/// Returns the kind of a part: its `type`, or without one the field that it has.
pub(super) fn kind(part: &Map<String, Value>) -> Option<(&'static str, Modality)> {
    let known = PARTS.iter().copied().chain([(INPUT_AUDIO, Modality::Audio)]).chain(EMBEDS);
    match part.get("type") {
        Some(Value::String(kind)) => known.into_iter().find(|(name, _)| name == kind),
        Some(Value::Null) | None => {
            let mut known = known.filter(|(name, _)| *name != "image" && *name != "input_image");
            known.find(|(name, _)| part.contains_key(*name))
        }
        Some(_) => None,
    }
}

/// Returns whether the content of such parts are embeddings.
pub(super) fn is_embeds(kind: &str) -> bool {
    EMBEDS.iter().any(|(name, _)| *name == kind)
}

/// Returns the client's own name for an item, if it has one.
pub(super) fn uuid(place: &str, part: &Map<String, Value>) -> Result<Option<Arc<str>>, ApiError> {
    let wrong = |why: &str| Err(ApiError::validation(&format!("{place}.uuid"), why));
    match part.get("uuid") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(uuid)) if uuid.is_empty() => Ok(None),
        Some(Value::String(uuid)) if uuid.len() > UUID_BYTES_MAX => {
            wrong(&format!("String should have at most {UUID_BYTES_MAX} bytes"))
        }
        Some(Value::String(uuid)) => Ok(Some(uuid.as_str().into())),
        Some(_) => wrong("Input should be a valid string"),
    }
}

/// Returns the sound of an `input_audio` part: `{"data": base64, "format": "wav"}`.
fn input_audio(place: &str, audio: Option<&Value>) -> Result<Option<Content>, ApiError> {
    let place = format!("{place}.{INPUT_AUDIO}");
    match audio {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(audio)) => match audio.get("data") {
            Some(Value::String(data)) if data.is_empty() => Ok(None),
            Some(Value::String(data)) => {
                Ok(Some(Content::Here(MediaSource::File(data_url::bytes_among_others(data)?))))
            }
            _ => {
                let wanted = "Input should be a valid string";
                Err(ApiError::validation(&format!("{place}.data"), wanted))
            }
        },
        Some(_) => Err(ApiError::validation(&place, "Input should be a valid dictionary")),
    }
}

/// Returns the tensors of a part in the field `kind`: base64, or an object of it.
fn embeds(place: &str, kind: &str, given: Option<&Value>) -> Result<Option<Content>, ApiError> {
    let place = format!("{place}.{kind}");
    let text = |place: &str, value: &Value| match value {
        Value::String(base64) => data_url::bytes(base64),
        _ => Err(ApiError::validation(place, "Input should be a valid string")),
    };
    let files: BTreeMap<String, Arc<[u8]>> = match given {
        None | Some(Value::Null) => return Ok(None),
        Some(value @ Value::String(_)) => [(kind.to_owned(), text(&place, value)?)].into(),
        Some(Value::Object(fields)) if fields.len() <= EMBEDS_FIELDS_MAX => {
            let file = |(name, value): (&String, &Value)| {
                Ok::<_, ApiError>((name.clone(), text(&format!("{place}.{name}"), value)?))
            };
            fields.iter().map(file).collect::<Result<_, _>>()?
        }
        Some(_) => {
            let wanted = "Input should be a valid string or a dictionary of strings";
            return Err(ApiError::validation(&place, wanted));
        }
    };
    Ok(Some(Content::Here(MediaSource::Embeddings(files))))
}

/// Returns the content of a part, if it has some.
pub(super) fn content(
    place: &str,
    part: &Map<String, Value>,
    kind: &str,
    modality: Modality,
) -> Result<Option<Content>, ApiError> {
    if kind == INPUT_AUDIO {
        return input_audio(place, part.get(kind));
    }
    if is_embeds(kind) {
        return embeds(place, kind, part.get(kind));
    }
    let field = if kind == "input_image" { "image_url" } else { kind };
    // Only these parts have the URL itself in their field.
    let is_plain = kind == "input_image" || kind == "image" || part.get("type").is_none();
    let place = format!("{place}.{field}");
    let url = match part.get(field) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(url)) if is_plain || part.contains_key("uuid") => url,
        Some(Value::Object(object)) => match object.get("url") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(url)) => url,
            Some(_) => {
                let wanted = "Input should be a valid string";
                return Err(ApiError::validation(&format!("{place}.url"), wanted));
            }
        },
        Some(_) if is_plain => {
            return Err(ApiError::validation(&place, "Input should be a valid string"));
        }
        Some(_) => {
            return Err(ApiError::validation(&place, "Input should be a valid dictionary"));
        }
    };
    match url.as_str() {
        "" => Ok(None),
        url => Content::of_url(modality, url).map(Some),
    }
}
