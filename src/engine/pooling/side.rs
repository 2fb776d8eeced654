//! One side of a pair that is scored: a text, or the parts of a message with their images.

use std::sync::Arc;

use playhouse_actors::{
    error::RequestError,
    message::input_processor::Prompt,
    ports::{ChatPrompt, RawMedia},
};
use serde_json::{Value, json};

use crate::engine::media::CONTENT_ALONE;

/// One side of a pair.
#[derive(Debug, Clone)]
pub(crate) enum PairSide {
    /// A text.
    Text(Arc<str>),
    /// The parts of a message, with its images, videos and sounds.
    Parts { parts: Vec<Value>, media: Arc<[RawMedia]> },
}

/// A prompt with its images, videos and sounds.
pub(crate) type PromptWithMedia = (Prompt, Arc<[RawMedia]>);

impl From<String> for PairSide {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl PairSide {
    /// Returns the bytes of its text.
    pub(super) fn bytes(&self) -> usize {
        let of_part = |part: &Value| part.get("text").and_then(Value::as_str).map_or(0, str::len);
        match self {
            Self::Text(text) => text.len(),
            Self::Parts { parts, .. } => parts.iter().map(of_part).sum(),
        }
    }

    /// Returns the prompt of this side alone.
    pub(super) fn alone(self) -> PromptWithMedia {
        match self {
            Self::Text(text) => (Prompt::Text(text.as_ref().to_owned()), [].into()),
            Self::Parts { parts, media } => {
                (written(CONTENT_ALONE, vec![message("user", parts.into())]), media)
            }
        }
    }

    /// Returns the text of a side that is nothing else.
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] if it has parts.
    pub(super) fn text(&self) -> Result<&str, RequestError> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Parts { .. } => {
                let accepted =
                    "texts, because the model's prompt for pairs has no place for images";
                Err(RequestError::invalid("documents", "a content of parts", accepted))
            }
        }
    }

    /// Returns the content of a message.
    pub(super) fn content(&self) -> Value {
        match self {
            Self::Text(text) => Value::from(text.as_ref()),
            Self::Parts { parts, .. } => Value::from(parts.clone()),
        }
    }

    /// Returns the images, videos and sounds of both sides.
    pub(super) fn media_with(&self, other: &Self) -> Arc<[RawMedia]> {
        match (self, other) {
            (Self::Text(_), Self::Text(_)) => [].into(),
            (Self::Parts { media, .. }, Self::Text(_))
            | (Self::Text(_), Self::Parts { media, .. }) => Arc::clone(media),
            (Self::Parts { media, .. }, Self::Parts { media: others, .. }) => {
                media.iter().chain(others.iter()).cloned().collect()
            }
        }
    }
}

/// Returns a message of a conversation.
pub(super) fn message(role: &str, content: Value) -> Value {
    json!({"role": role, "content": content})
}

/// Returns the prompt that `template` writes of messages.
pub(super) fn written(template: &str, messages: Vec<Value>) -> Prompt {
    let chat_template = Some(template.to_owned());
    let chat =
        ChatPrompt { messages, chat_template, joins_placeholders: true, ..ChatPrompt::default() };
    Prompt::Chat(Arc::new(chat))
}
