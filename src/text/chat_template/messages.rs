//! Messages as a client sends them, made into what templates expect.

use playhouse_actors::ports::TextError;
use serde_json::{Map, Value, json};

use super::ContentFormat;
use super::strings::StringRoles;

/// The names of the reasoning field in messages. Templates read the first one.
pub(super) const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The newer name of the role whose messages hold instructions.
const DEVELOPER: &str = "developer";

/// The kinds of message that a template accepts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accepts {
    /// The form of content.
    pub(super) content: ContentFormat,
    /// The roles that keep a string where the form is a list of parts.
    pub(super) strings: StringRoles,
    /// Whether it knows the role `developer`. Otherwise that role becomes `system`.
    pub(super) developers: bool,
}

impl Accepts {
    /// Returns the kinds of message that the template `source` accepts.
    pub(super) fn of(source: &str, content: ContentFormat, strings: StringRoles) -> Self {
        Self { content, strings, developers: source.contains(DEVELOPER) }
    }

    /// Returns the form of `content` in a message of `role`.
    fn form(self, role: Option<&Value>, content: &Value) -> ContentFormat {
        let keeps_strings = self.strings.has(role.and_then(Value::as_str).unwrap_or_default());
        match content {
            Value::String(_) | Value::Null if keeps_strings => ContentFormat::String,
            _ => self.content,
        }
    }
}

/// Returns messages as a template expects them. Content has the template's format, tool-call
/// arguments are objects, reasoning has every name, and fields without a value are absent. vLLM and
/// transformers do this before they render.
pub(super) fn prepare(messages: &[Value], accepts: Accepts) -> Result<Vec<Value>, TextError> {
    if messages.is_empty() {
        return Err(TextError::InvalidMessage {
            index: 0,
            reason: "missing: a conversation needs at least one message".to_owned(),
        });
    }
    messages
        .iter()
        .enumerate()
        .map(|(index, message)| {
            prepare_one(message, accepts)
                .map(Value::Object)
                .map_err(|reason| TextError::InvalidMessage { index, reason })
        })
        .collect()
}

fn prepare_one(message: &Value, accepts: Accepts) -> Result<Map<String, Value>, String> {
    let Some(message) = message.as_object() else {
        return Err("not an object with `role` and `content`".to_owned());
    };
    let form = |content: &Value| accepts.form(message.get("role"), content);
    let mut prepared = Map::new();
    for (key, value) in message {
        match key.as_str() {
            "content" => {
                prepared.insert(key.clone(), content(value, form(value))?);
            }
            "role" if value == DEVELOPER && !accepts.developers => {
                prepared.insert(key.clone(), Value::from("system"));
            }
            "tool_calls" => {
                let calls = value.as_array().map(Vec::as_slice).unwrap_or_default();
                if !calls.is_empty() {
                    let calls = calls.iter().map(tool_call).collect::<Result<Vec<_>, _>>()?;
                    prepared.insert(key.clone(), Value::Array(calls));
                }
            }
            _ if value.is_null() => {}
            _ => {
                prepared.insert(key.clone(), value.clone());
            }
        }
    }
    if !message.contains_key("content") {
        let content = content(&Value::Null, form(&Value::Null))?;
        prepared.insert("content".to_owned(), content);
    }
    let reasoning = REASONING_FIELDS.iter().find_map(|&field| prepared.get(field)).cloned();
    if let Some(reasoning) = reasoning {
        prepared.insert("reasoning_content".to_owned(), reasoning.clone());
        for field in REASONING_FIELDS {
            prepared.entry(field).or_insert_with(|| reasoning.clone());
        }
    }
    Ok(prepared)
}

/// Returns content as the template takes it. Absent content is empty text.
fn content(value: &Value, format: ContentFormat) -> Result<Value, String> {
    let texts = match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.as_str()],
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(index, part)| part_text(part).map_err(|why| format!("content[{index}]: {why}")))
            .collect::<Result<_, _>>()?,
        _ => return Err("content: expected a string or a list of parts".to_owned()),
    };
    Ok(match format {
        ContentFormat::String => Value::from(texts.join("\n")),
        ContentFormat::OpenAi => {
            texts.into_iter().map(|text| json!({"type": "text", "text": text})).collect()
        }
    })
}

/// Returns the text of a content part, under whichever name it stands.
fn part_text(part: &Value) -> Result<&str, String> {
    if let Some(text) = part.as_str() {
        return Ok(text);
    }
    let kind = part.get("type").and_then(Value::as_str);
    let field = match kind {
        None | Some("text" | "input_text" | "output_text") => "text",
        Some(kind @ ("refusal" | "thinking")) => kind,
        Some(kind) => {
            return Err(format!("parts of type {kind:?} are not supported, only text is"));
        }
    };
    part.get(field)
        .and_then(Value::as_str)
        .ok_or_else(|| format!("a text part needs its text as the string `{field}`"))
}

/// Returns a tool call with its arguments parsed, because clients send them as a JSON string and
/// templates write them as JSON.
fn tool_call(call: &Value) -> Result<Value, String> {
    let mut call = call.clone();
    let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else {
        return Ok(call);
    };
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => json!({}),
        Some(Value::String(text)) if text.is_empty() => json!({}),
        Some(Value::String(text)) => serde_json::from_str(text)
            .map_err(|error| format!("tool_calls: arguments are not valid JSON: {error}"))?,
        Some(_) => return Ok(call),
    };
    function.insert("arguments".to_owned(), arguments);
    Ok(call)
}
