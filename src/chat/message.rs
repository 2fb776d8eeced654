//! The messages of a conversation.

use serde_json::{Map, Value, json};

use crate::{api::RawMedia, turn::ToolCall};

/// A message of a conversation. The functions of this type make the usual ones.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Message {
    /// The speaker: `system`, `user`, `assistant`, `tool`, or another word that the model's chat
    /// template knows.
    pub role: String,
    /// The text, with images and sounds between its parts.
    pub content: Vec<ContentPart>,
    /// The thoughts before an answer of the assistant.
    pub reasoning: Option<String>,
    /// The calls of the assistant.
    pub tool_calls: Vec<ToolCall>,
    /// The call whose result the message is.
    pub tool_call_id: Option<String>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ContentPart {
    /// Text.
    Text(String),
    /// An image, a video or a sound.
    Media(RawMedia),
}

impl Message {
    /// Returns a message of `role`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            role: role.into(),
            content: vec![ContentPart::Text(content.into())],
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }

    /// Returns an instruction of the operator.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// Returns a message of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// Returns an answer of the model. [`ChatAnswer::message`](super::ChatAnswer::message) returns
    /// one with its tool calls.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// Returns the result of the tool call with this id.
    pub fn tool(tool_call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_call_id: Some(tool_call_id.into()), ..Self::new("tool", content) }
    }

    /// Adds an image, a video or a sound at the end of the content.
    #[must_use]
    pub fn with_media(mut self, media: RawMedia) -> Self {
        self.content.push(ContentPart::Media(media));
        self
    }

    /// Returns the message in the form that chat templates read, and adds its images and sounds to
    /// `media`.
    pub(super) fn render(self, media: &mut Vec<RawMedia>) -> Value {
        let mut fields = Map::new();
        fields.insert("role".to_owned(), self.role.into());
        fields.insert("content".to_owned(), content(self.content, media));
        if let Some(reasoning) = self.reasoning {
            fields.insert("reasoning".to_owned(), reasoning.into());
        }
        if !self.tool_calls.is_empty() {
            let calls = self.tool_calls.into_iter().map(|ToolCall { id, name, arguments }| {
                let function = json!({"name": name, "arguments": arguments});
                json!({"id": id, "type": "function", "function": function})
            });
            fields.insert("tool_calls".to_owned(), calls.collect());
        }
        if let Some(id) = self.tool_call_id {
            fields.insert("tool_call_id".to_owned(), id.into());
        }
        Value::Object(fields)
    }
}

/// Returns a single text as a string, and all other content as a list of parts.
fn content(mut parts: Vec<ContentPart>, media: &mut Vec<RawMedia>) -> Value {
    match parts.as_mut_slice() {
        [] => return Value::Null,
        [ContentPart::Text(text)] => return std::mem::take(text).into(),
        _ => {}
    }
    let parts = parts.into_iter().map(|part| match part {
        ContentPart::Text(text) => json!({"type": "text", "text": text}),
        ContentPart::Media(item) => {
            let place = json!({ "type": item.modality.as_str() });
            media.push(item);
            place
        }
    });
    parts.collect()
}
