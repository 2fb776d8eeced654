//! Turns blocks into the messages that chat templates know.

use serde_json::{Map, Value, json};

use crate::server::http::error::ApiError;

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
    texts: Vec<String>,
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

impl Conversation {
    /// Reads the fields `system` and `messages`. Neighbours with the same role become one message,
    /// and each tool result a message of its own.
    ///
    /// # Errors
    /// If a message is malformed or holds a block other than text. The error names the place.
    pub(super) fn read(system: Option<&Value>, messages: &[Value]) -> Result<Self, ApiError> {
        if messages.is_empty() {
            return Err(ApiError::validation("body.messages", "at least one message is required"));
        }
        let mut conversation = Self::default();
        if let Some(system) = system {
            conversation.content(Role::System, "body.system", system)?;
        }
        for (index, message) in messages.iter().enumerate() {
            let place = format!("body.messages.{index}");
            let role = match string(message, &place, "role")? {
                "user" => Role::User,
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
                Some(content) => conversation.content(role, &place, content)?,
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

    /// Returns the messages as JSON.
    pub(super) fn into_messages(self) -> Vec<Value> {
        self.messages.into_iter().map(|message| Value::Object(message.into_json())).collect()
    }

    fn content(&mut self, role: Role, place: &str, content: &Value) -> Result<(), ApiError> {
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
        let mut blocks = blocks.iter().enumerate();
        blocks.try_for_each(|(index, block)| self.block(role, &format!("{place}.{index}"), block))
    }

    fn block(&mut self, role: Role, place: &str, block: &Value) -> Result<(), ApiError> {
        let kind = string(block, place, "type")?;
        self.ends_in_text = false;
        match (role, kind) {
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
                let result = tool_result(place, block)?;
                self.drop_empty();
                self.messages.push(result);
            }
            _ => return Err(unsupported(role, place, kind)),
        }
        Ok(())
    }

    fn text(&mut self, role: Role, text: &str) {
        self.message(role).texts.push(text.to_owned());
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
        self.messages.pop_if(|last| last.role == Role::User && last.texts.is_empty());
    }
}

impl Message {
    fn new(role: Role) -> Self {
        let (texts, reasoning, tool_calls) = (Vec::new(), Vec::new(), Vec::new());
        Self { role, texts, reasoning, tool_calls, tool_call_id: None }
    }

    fn into_json(self) -> Map<String, Value> {
        let mut json = Map::from_iter([("role".to_owned(), Value::from(self.role.as_str()))]);
        let content = match <[String; 1]>::try_from(self.texts) {
            Ok([text]) => Value::from(text),
            Err(texts) if texts.is_empty() && self.role == Role::Assistant => Value::Null,
            Err(texts) if texts.is_empty() => Value::from(""),
            Err(texts) => {
                texts.into_iter().map(|text| json!({"type": "text", "text": text})).collect()
            }
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

fn tool_result(place: &str, block: &Value) -> Result<Message, ApiError> {
    let id = string(block, place, "tool_use_id")?.to_owned();
    let mut texts = Vec::new();
    match block.get("content") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => texts.push(text.clone()),
        Some(Value::Array(blocks)) => {
            for (index, block) in blocks.iter().enumerate() {
                let place = format!("{place}.content.{index}");
                match string(block, &place, "type")? {
                    "text" => texts.push(string(block, &place, "text")?.to_owned()),
                    kind => return Err(unsupported(Role::Tool, &place, kind)),
                }
            }
        }
        Some(_) => {
            let wanted = "Input should be a valid string or a list of blocks";
            return Err(ApiError::validation(&format!("{place}.content"), wanted));
        }
    }
    match block.get("is_error") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        // Templates have no other way to show it.
        Some(Value::Bool(true)) => texts.insert(0, "Error:".to_owned()),
        Some(_) => {
            let wanted = "Input should be a valid boolean";
            return Err(ApiError::validation(&format!("{place}.is_error"), wanted));
        }
    }
    Ok(Message { texts, tool_call_id: Some(id), ..Message::new(Role::Tool) })
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
