//! Turns blocks into the messages that chat templates know.

use serde_json::{Map, Value, json};

use crate::server::{
    http::{error::ApiError, fields::flag},
    media::MediaParts,
};

/// A conversation in the form of chat completions.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    messages: Vec<Message>,
    /// Whether the last block was text. The answer can continue only text.
    ends_in_text: bool,
}

/// One message. Its role decides which fields it has.
#[derive(Debug)]
struct Message {
    role: Role,
    /// Texts, and the places of images.
    parts: Vec<Value>,
    reasoning: Vec<String>,
    tool_calls: Vec<Value>,
    tool_call_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    System,
    User,
    Assistant,
    Tool,
}

/// The beginning of the block that Claude Code puts before its instructions. It differs in each
/// request, so no prefix of the prompt would be found in the cache. vLLM leaves it out, too.
const ATTRIBUTION: &str = "x-anthropic-billing-header";

impl Conversation {
    /// Reads the fields `system` and `messages`. Neighbours with the same role become one message,
    /// and each tool result a message of its own. The content of images is added to `media`.
    ///
    /// # Errors
    /// If a message is malformed or holds a block that is not supported. The error names the place.
    pub(super) fn read(
        system: Option<&Value>,
        messages: &[Value],
        media: &mut MediaParts<'_>,
    ) -> Result<Self, ApiError> {
        if messages.is_empty() {
            return Err(ApiError::validation("body.messages", "at least one message is required"));
        }
        let mut conversation = Self::default();
        if let Some(system) = system {
            conversation.content(Role::System, "body.system", system, media)?;
            conversation.messages.pop_if(|system| system.parts.is_empty());
        }
        for (index, message) in messages.iter().enumerate() {
            let place = format!("body.messages.{index}");
            let role = match string(message, &place, "role")? {
                // Claude Code has names of its own, which vLLM takes as well.
                "user" | "ctx" | "msg" => Role::User,
                "assistant" => Role::Assistant,
                "system" => Role::System,
                _ => {
                    let wanted = "Input should be 'user', 'assistant' or 'system'";
                    return Err(ApiError::validation(&format!("{place}.role"), wanted));
                }
            };
            let place = format!("{place}.content");
            match message.get("content") {
                None => return Err(ApiError::validation(&place, "Field required")),
                Some(content) => conversation.content(role, &place, content, media)?,
            }
        }
        if conversation.goes_on() && !conversation.ends_in_text {
            let message = "messages: the answer goes on with the last message, so it has to end \
                           with text; end with a user message instead";
            return Err(ApiError::invalid("messages", message));
        }
        Ok(conversation)
    }

    /// Returns whether the answer continues the last message, instead of beginning one.
    pub(super) fn goes_on(&self) -> bool {
        self.messages.last().is_some_and(|last| last.role == Role::Assistant)
    }

    /// Returns the conversation with all system messages as one, at the beginning. Neighbours that
    /// were apart become one message.
    pub(super) fn with_one_system(self) -> Self {
        let is_system = |message: &Message| message.role == Role::System;
        let (systems, others): (Vec<_>, Vec<_>) = self.messages.into_iter().partition(is_system);
        let parts: Vec<Value> = systems.into_iter().flat_map(|system| system.parts).collect();
        let mut messages = Vec::with_capacity(1 + others.len());
        if !parts.is_empty() {
            messages.push(Message { parts, ..Message::new(Role::System) });
        }
        for message in others {
            match messages.last_mut() {
                Some(last) if last.role == message.role && message.role != Role::Tool => {
                    last.parts.extend(message.parts);
                    last.reasoning.extend(message.reasoning);
                    last.tool_calls.extend(message.tool_calls);
                }
                _ => messages.push(message),
            }
        }
        Self { messages, ends_in_text: self.ends_in_text }
    }

    /// Returns the messages as JSON.
    pub(super) fn into_messages(self) -> Vec<Value> {
        self.messages.into_iter().map(|message| Value::Object(message.into_json())).collect()
    }

    fn content(
        &mut self,
        role: Role,
        place: &str,
        content: &Value,
        media: &mut MediaParts<'_>,
    ) -> Result<(), ApiError> {
        let blocks = match content {
            Value::String(text) => {
                self.text(role, text);
                return Ok(());
            }
            Value::Array(blocks) => blocks,
            _ => {
                let wanted = "Input should be a valid string or a list of blocks";
                return Err(ApiError::validation(place, wanted));
            }
        };
        self.message(role);
        self.ends_in_text = false;
        for (index, block) in blocks.iter().enumerate() {
            self.block(role, &format!("{place}.{index}"), block, media)?;
        }
        Ok(())
    }

    fn block(
        &mut self,
        role: Role,
        place: &str,
        block: &Value,
        media: &mut MediaParts<'_>,
    ) -> Result<(), ApiError> {
        let kind = string(block, place, "type")?;
        self.ends_in_text = false;
        match (role, kind) {
            (Role::System, "text") if string(block, place, "text")?.starts_with(ATTRIBUTION) => {}
            (_, "text") => self.text(role, string(block, place, "text")?),
            (Role::Assistant, "thinking") => {
                let thinking = string(block, place, "thinking")?;
                // Thoughts that were hidden come back empty.
                if !thinking.is_empty() {
                    self.message(role).reasoning.push(thinking.to_owned());
                }
            }
            // Only the service that encrypted them can read them.
            (Role::Assistant, "redacted_thinking") => {}
            (Role::Assistant, "tool_use") => {
                let call = tool_call(place, block)?;
                self.message(role).tool_calls.push(call);
            }
            (Role::User, "tool_result") => {
                let (result, images) = tool_result(place, block, media)?;
                self.drop_empty();
                self.messages.push(result);
                // Templates have no place for an image in a result.
                if !images.is_empty() {
                    self.message(role).parts.extend(images);
                }
            }
            (Role::User, "image") if media.takes_images() => {
                let image = image(place, block, media)?;
                self.message(role).parts.push(image);
            }
            _ => return Err(unsupported(role, place, kind)),
        }
        Ok(())
    }

    fn text(&mut self, role: Role, text: &str) {
        self.message(role).parts.push(text_part(text));
        self.ends_in_text = true;
    }

    /// Returns the open message of `role`.
    fn message(&mut self, role: Role) -> &mut Message {
        let index = match self.messages.last() {
            Some(last) if last.role == role => self.messages.len() - 1,
            _ => {
                self.messages.push(Message::new(role));
                self.messages.len() - 1
            }
        };
        &mut self.messages[index]
    }

    /// Removes a message that was begun for tool results alone.
    fn drop_empty(&mut self) {
        self.messages.pop_if(|last| last.role == Role::User && last.parts.is_empty());
    }
}

impl Message {
    fn new(role: Role) -> Self {
        let (parts, reasoning, tool_calls) = (Vec::new(), Vec::new(), Vec::new());
        Self { role, parts, reasoning, tool_calls, tool_call_id: None }
    }

    fn into_json(self) -> Map<String, Value> {
        let mut json = Map::from_iter([("role".to_owned(), Value::from(self.role.as_str()))]);
        let mut parts = self.parts;
        let content = match parts.as_mut_slice() {
            [] if self.role == Role::Assistant => Value::Null,
            [] => Value::from(""),
            [part] if part["type"] == "text" => part["text"].take(),
            _ => Value::from(parts),
        };
        json.insert("content".to_owned(), content);
        if !self.reasoning.is_empty() {
            json.insert("reasoning".to_owned(), Value::from(self.reasoning.join("\n")));
        }
        if !self.tool_calls.is_empty() {
            json.insert("tool_calls".to_owned(), Value::from(self.tool_calls));
        }
        if let Some(id) = self.tool_call_id {
            json.insert("tool_call_id".to_owned(), Value::from(id));
        }
        json
    }
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }

    /// Returns the kinds of blocks that its messages may hold.
    fn blocks(self) -> &'static str {
        match self {
            Self::System | Self::Tool => "text",
            Self::User => "text and tool_result",
            Self::Assistant => "text, thinking, redacted_thinking and tool_use",
        }
    }
}

fn tool_call(place: &str, block: &Value) -> Result<Value, ApiError> {
    let (id, name) = (string(block, place, "id")?, string(block, place, "name")?);
    let place = format!("{place}.input");
    match block.get("input") {
        Some(input @ Value::Object(_)) => {
            let function = json!({"name": name, "arguments": input});
            Ok(json!({"id": id, "type": "function", "function": function}))
        }
        Some(_) => Err(ApiError::validation(&place, "Input should be a valid dictionary")),
        None => Err(ApiError::validation(&place, "Field required")),
    }
}

/// Returns the message of a tool's result, and its images.
fn tool_result(
    place: &str,
    block: &Value,
    media: &mut MediaParts<'_>,
) -> Result<(Message, Vec<Value>), ApiError> {
    let id = string(block, place, "tool_use_id")?.to_owned();
    let (mut parts, mut images) = (Vec::new(), Vec::new());
    match block.get("content") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => parts.push(text_part(text)),
        Some(Value::Array(blocks)) => {
            for (index, block) in blocks.iter().enumerate() {
                let place = format!("{place}.content.{index}");
                match string(block, &place, "type")? {
                    "text" => parts.push(text_part(string(block, &place, "text")?)),
                    "image" if media.takes_images() => images.push(image(&place, block, media)?),
                    kind => return Err(unsupported(Role::Tool, &place, kind)),
                }
            }
        }
        Some(_) => {
            let wanted = "Input should be a valid string or a list of blocks";
            return Err(ApiError::validation(&format!("{place}.content"), wanted));
        }
    }
    match block.get("is_error").map(flag).transpose().map(Option::flatten) {
        Ok(None | Some(false)) => {}
        // Templates have no other way to show it.
        Ok(Some(true)) => parts.insert(0, text_part("Error:")),
        Err(_) => {
            let wanted = "Input should be a valid boolean";
            return Err(ApiError::validation(&format!("{place}.is_error"), wanted));
        }
    }
    Ok((Message { parts, tool_call_id: Some(id), ..Message::new(Role::Tool) }, images))
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Returns the place of an image: `{"source": {"type": "base64", "data": …}}`, or with a URL.
fn image(place: &str, block: &Value, media: &mut MediaParts<'_>) -> Result<Value, ApiError> {
    let place = format!("{place}.source");
    let source = block.get("source").unwrap_or(&Value::Null);
    match string(source, &place, "type")? {
        "base64" => media.image_of_base64("image", string(source, &place, "data")?),
        "url" => media.image_of_url("image", string(source, &place, "url")?),
        _ => {
            let wanted = "Input should be 'base64' or 'url'";
            Err(ApiError::validation(&format!("{place}.type"), wanted))
        }
    }
}

fn unsupported(role: Role, place: &str, kind: &str) -> ApiError {
    let (who, known) = (role.as_str(), role.blocks());
    let message = format!(
        "{place}: '{kind}' blocks are not supported in {who} messages: this server takes {known}"
    );
    ApiError::invalid(place, message)
}

/// Returns a required field that is a string.
fn string<'a>(object: &'a Value, place: &str, field: &str) -> Result<&'a str, ApiError> {
    if !object.is_object() {
        return Err(ApiError::validation(place, "Input should be a valid dictionary"));
    }
    let wrong = match object.get(field) {
        Some(Value::String(text)) => return Ok(text),
        Some(_) => "Input should be a valid string",
        None => "Field required",
    };
    Err(ApiError::validation(&format!("{place}.{field}"), wrong))
}

#[cfg(test)]
mod tests;
