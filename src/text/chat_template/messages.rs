//! Messages as a client sends them, made into what templates expect.

use std::collections::BTreeMap;

use playhouse_actors::{
    logic::request::media::Modality,
    ports::{ChatPrompt, MediaProcessor, TextError},
};
use serde_json::{Map, Value, json};

use super::ContentFormat;
use super::strings::StringRoles;

/// The names of the reasoning field in messages. Templates read the first one.
pub(super) const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The newer name of the role whose messages hold instructions.
const DEVELOPER: &str = "developer";

/// The kinds of message that a template accepts.
#[derive(Clone, Copy)]
pub(super) struct Accepts<'a> {
    /// The form of content.
    pub(super) content: ContentFormat,
    /// The roles that keep a string where the form is a list of parts.
    pub(super) strings: StringRoles,
    /// Whether it knows the role `developer`. Otherwise that role becomes `system`.
    pub(super) developers: bool,
    /// The processor of the model's images and sounds, if it takes some.
    pub(super) media: Option<&'a dyn MediaProcessor>,
    /// The text behind each placeholder, before a text.
    pub(super) separator: &'static str,
}

impl<'a> Accepts<'a> {
    /// Returns the kinds of message that the template `source` accepts.
    pub(super) fn of(source: &str, content: ContentFormat, strings: StringRoles) -> Self {
        // As in vLLM, the word alone is no role: it may stand in a comment.
        let developers = ["'developer'", "\"developer\""].iter().any(|role| source.contains(role));
        Self { content, strings, developers, media: None, separator: "\n" }
    }

    /// Returns the same for a model with these media.
    pub(super) fn with_media(self, media: Option<&'a dyn MediaProcessor>) -> Self {
        Self { media, ..self }
    }

    /// Returns the same with the separator of `chat`.
    pub(super) fn for_chat(self, chat: &ChatPrompt) -> Self {
        Self { separator: if chat.joins_placeholders { "" } else { self.separator }, ..self }
    }

    /// Returns the form of `content` in a message of `role`.
    fn form(self, role: Option<&Value>, content: &Value) -> ContentFormat {
        let role = role.and_then(Value::as_str).unwrap_or_default();
        let keeps_strings = self.strings.has(role);
        match content {
            Value::String(_) | Value::Null if keeps_strings => ContentFormat::String,
            // A result of a tool in parts is text to most templates, and to vLLM.
            Value::Array(parts) if keeps_strings && role == "tool" => {
                match parts.iter().all(|part| part_text(part).is_ok()) {
                    true => ContentFormat::String,
                    false => self.content,
                }
            }
            _ => self.content,
        }
    }
}

/// Returns messages as a template expects them. Content has the template's format, tool-call
/// arguments are objects, reasoning has every name, and fields without a value are absent. vLLM and
/// transformers do this before they render.
pub(super) fn prepare(messages: &[Value], accepts: Accepts<'_>) -> Result<Vec<Value>, TextError> {
    if messages.is_empty() {
        return Err(TextError::InvalidMessage {
            index: 0,
            reason: "missing: a conversation needs at least one message".to_owned(),
        });
    }
    let Accepts { media, separator, .. } = accepts;
    let mut places = MediaPlaces { media, separator, counts: BTreeMap::new() };
    let prepared = messages
        .iter()
        .enumerate()
        .map(|(index, message)| {
            prepare_one(message, accepts, &mut places)
                .map(Value::Object)
                .map_err(|reason| TextError::InvalidMessage { index, reason })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let is_developer = |message: &Value| message.get("role").is_some_and(|role| role == DEVELOPER);
    match !accepts.developers && messages.iter().any(is_developer) {
        true => Ok(with_one_system(prepared)),
        false => Ok(prepared),
    }
}

/// Returns messages whose system messages are one, at the beginning. As in vLLM, this happens only
/// if developers became the system: many templates refuse a system message anywhere else.
fn with_one_system(messages: Vec<Value>) -> Vec<Value> {
    let is_system = |message: &Value| message["role"] == "system";
    if !messages.iter().skip(1).any(is_system) {
        return messages;
    }
    let (systems, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(is_system);
    let text = |message: &Value| match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part_text(part).ok()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    };
    let texts: Vec<String> = systems.iter().map(text).filter(|text| !text.is_empty()).collect();
    let system = json!({"role": "system", "content": texts.join("\n\n")});
    std::iter::once(system).chain(others).collect()
}

fn prepare_one(
    message: &Value,
    accepts: Accepts<'_>,
    places: &mut MediaPlaces<'_>,
) -> Result<Map<String, Value>, String> {
    let Some(message) = message.as_object() else {
        return Err("not an object with `role` and `content`".to_owned());
    };
    let form = |content: &Value| accepts.form(message.get("role"), content);
    let mut prepared = Map::new();
    for (key, value) in message {
        match key.as_str() {
            "content" => {
                prepared.insert(key.clone(), content(value, form(value), places)?);
            }
            "role" if value == DEVELOPER && !accepts.developers => {
                prepared.insert(key.clone(), Value::from("system"));
            }
            "tool_calls" => {
                let calls = value.as_array().map(Vec::as_slice).unwrap_or_default();
                if !calls.is_empty() {
                    prepared.insert(key.clone(), calls.iter().map(tool_call).collect());
                }
            }
            _ if value.is_null() => {}
            _ => {
                prepared.insert(key.clone(), value.clone());
            }
        }
    }
    if !message.contains_key("content") {
        let content = content(&Value::Null, form(&Value::Null), places)?;
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

/// The items of a conversation, in the texts of templates that take no parts.
struct MediaPlaces<'a> {
    media: Option<&'a dyn MediaProcessor>,
    separator: &'static str,
    /// The items so far, by kind.
    counts: BTreeMap<Modality, usize>,
}

/// A part of content.
enum Part<'a> {
    Text(&'a str),
    Media(Modality),
}

impl MediaPlaces<'_> {
    /// Returns one text. As in vLLM, placeholders that the text does not have stand before it.
    fn text(&mut self, parts: &[Part<'_>]) -> Result<String, String> {
        let texts = parts.iter().filter_map(|part| match part {
            // As in vLLM, an empty text is no line.
            Part::Text(text) => Some(*text).filter(|text| !text.is_empty()),
            Part::Media(_) => None,
        });
        let mut text = texts.collect::<Vec<_>>().join("\n");
        let mut placeholders: Vec<(String, usize)> = Vec::new();
        for part in parts {
            let Part::Media(modality) = part else { continue };
            let count = self.counts.entry(*modality).or_default();
            let placeholder = self.media.and_then(|media| media.placeholder(*modality, *count));
            *count += 1;
            let kind = modality.as_str();
            let placeholder = placeholder.ok_or(format!("the model takes no {kind}"))?;
            let other = self.media.and_then(|media| media.other_placeholder(*modality));
            if let Some(other) = other {
                text = text.replace(other, &placeholder);
            }
            match placeholders.iter_mut().find(|(known, _)| *known == placeholder) {
                Some((_, count)) => *count += 1,
                None => placeholders.push((placeholder, 1)),
            }
        }
        let mut lines = Vec::new();
        for (placeholder, count) in &placeholders {
            let missing = count.checked_sub(text.matches(placeholder.as_str()).count());
            let missing = missing.ok_or(format!(
                "Found more '{placeholder}' placeholders in input prompt than actual multimodal \
                 data items."
            ))?;
            lines.extend(std::iter::repeat_n(placeholder.as_str(), missing));
        }
        if !text.is_empty() || lines.is_empty() {
            lines.push(&text);
        }
        Ok(lines.join(self.separator))
    }
}

/// Returns content as the template takes it. Absent content is empty text.
fn content(
    value: &Value,
    format: ContentFormat,
    places: &mut MediaPlaces<'_>,
) -> Result<Value, String> {
    let parts = match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![Part::Text(text.as_str())],
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(index, part)| read(part).map_err(|why| format!("content[{index}]: {why}")))
            .collect::<Result<_, _>>()?,
        _ => return Err("content: expected a string or a list of parts".to_owned()),
    };
    let mut kinds = parts.iter().filter_map(|part| match part {
        Part::Text(_) => None,
        Part::Media(modality) => Some(*modality),
    });
    if let (Some(modality), None) = (kinds.next_back(), places.media) {
        let kind = modality.as_str();
        return Err(format!("parts of type {kind:?} are not supported, only text is"));
    }
    let shown = |part: &Part<'_>| match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        // Some templates look for the name alone. In transformers it has the content.
        Part::Media(modality) => {
            let kind = modality.as_str();
            json!({"type": kind, kind: ""})
        }
    };
    match format {
        ContentFormat::String => places.text(&parts).map(Value::from),
        ContentFormat::OpenAi => Ok(parts.iter().map(shown).collect()),
    }
}

/// Returns a content part. One of media has nothing but its kind.
fn read(part: &Value) -> Result<Part<'_>, String> {
    let kind = part.get("type").and_then(Value::as_str);
    match Modality::ALL.into_iter().find(|modality| Some(modality.as_str()) == kind) {
        Some(modality) => Ok(Part::Media(modality)),
        None => part_text(part).map(Part::Text),
    }
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

/// Returns a tool call with its arguments as an object, which clients send as JSON in a string.
///
/// As in vLLM, a string that holds no object counts as no arguments. It may come from a call that
/// was cut off, which stays in the history and would fail every later turn.
fn tool_call(call: &Value) -> Value {
    let mut call = call.clone();
    let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else {
        return call;
    };
    let arguments: Value = match function.get("arguments") {
        Some(Value::String(text)) => serde_json::from_str(text).unwrap_or_default(),
        given => given.cloned().unwrap_or_default(),
    };
    let arguments = if arguments.is_object() { arguments } else { json!({}) };
    function.insert("arguments".to_owned(), arguments);
    call
}
