//! Turns the items of a conversation into the messages that chat templates know.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value, json};

use super::{
    freeform,
    items::{Item, ItemStatus, Message, Output, Part, Reasoning, Role},
    tool_names::joined,
};
use crate::server::{http::error::ApiError, media::MediaParts};

/// Returns the messages. The assistant's thoughts, text and calls in a row become one message.
/// The content of images is added to `media`.
///
/// # Errors
/// If a function's output belongs to no call, or an image is not accepted.
pub(super) fn messages<'a>(
    instructions: Option<&str>,
    items: impl IntoIterator<Item = &'a Arc<Item>>,
    media: &mut MediaParts<'_>,
) -> Result<Vec<Value>, ApiError> {
    let mut messages = Messages::default();
    if let Some(instructions) = instructions {
        messages.done.push(json!({"role": "system", "content": instructions}));
    }
    for item in items {
        messages.push(item, media)?;
    }
    messages.flush(media)?;
    Ok(messages.done)
}

#[derive(Default)]
struct Messages<'a> {
    done: Vec<Value>,
    turn: AssistantTurn<'a>,
    calls: BTreeSet<&'a str>,
}

/// The assistant's items since the last item of another role.
#[derive(Default)]
struct AssistantTurn<'a> {
    reasoning: String,
    content: Option<&'a [Part]>,
    calls: Vec<Value>,
}

impl<'a> Messages<'a> {
    fn push(&mut self, item: &'a Item, media: &mut MediaParts<'_>) -> Result<(), ApiError> {
        match item {
            Item::Reasoning(reasoning) => self.think(reasoning, media)?,
            Item::Message(message) if message.role == Role::Assistant => {
                self.say(message, media)?;
            }
            Item::Message(message) => {
                self.flush(media)?;
                let content = content(&message.content, media)?;
                self.done.push(json!({"role": message.role, "content": content}));
            }
            // One that was cut off is left out: its arguments are no JSON.
            Item::FunctionCall(call) if call.status == ItemStatus::Incomplete => {}
            Item::FunctionCall(call) => {
                let shown = call.namespace.as_ref().map(|space| joined(space, &call.name));
                let name = shown.as_ref().unwrap_or(&call.name);
                self.call(&call.call_id, name, &call.arguments);
            }
            Item::CustomToolCall(call) => {
                self.call(&call.call_id, &call.name, &freeform::arguments(&call.input));
            }
            Item::FunctionCallOutput(output) | Item::CustomToolCallOutput(output) => {
                self.flush(media)?;
                let call_id = output.call_id.as_str();
                if !self.calls.contains(call_id) {
                    let message = format!(
                        "No tool call found for function call output with call_id {call_id}."
                    );
                    return Err(ApiError::invalid("input", message));
                }
                let content = match &output.output {
                    Output::Text(text) => Value::from(text.as_str()),
                    Output::Parts(parts) => content(parts, media)?,
                };
                self.done
                    .push(json!({"role": "tool", "tool_call_id": call_id, "content": content}));
            }
        }
        Ok(())
    }

    /// Adds thoughts, which come before text and calls.
    fn think(&mut self, reasoning: &Reasoning, media: &mut MediaParts<'_>) -> Result<(), ApiError> {
        if self.turn.content.is_some() || !self.turn.calls.is_empty() {
            self.flush(media)?;
        }
        let parts = [&reasoning.content, &reasoning.summary];
        let parts = parts.into_iter().find(|parts| !parts.is_empty());
        parts.into_iter().flatten().for_each(|part| self.turn.reasoning.push_str(part.text()));
        Ok(())
    }

    /// Adds text, which comes before calls.
    fn say(&mut self, message: &'a Message, media: &mut MediaParts<'_>) -> Result<(), ApiError> {
        if self.turn.content.is_some() || !self.turn.calls.is_empty() {
            self.flush(media)?;
        }
        self.turn.content = Some(&message.content);
        Ok(())
    }

    fn call(&mut self, call_id: &'a str, name: &str, arguments: &str) {
        self.calls.insert(call_id);
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"id": call_id, "type": "function", "function": function});
        self.turn.calls.push(call);
    }

    fn flush(&mut self, media: &mut MediaParts<'_>) -> Result<(), ApiError> {
        let AssistantTurn { reasoning, content: parts, calls } = std::mem::take(&mut self.turn);
        if reasoning.is_empty() && parts.is_none() && calls.is_empty() {
            return Ok(());
        }
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        if !reasoning.is_empty() {
            message.insert("reasoning".to_owned(), Value::from(reasoning));
        }
        let shown = parts.map(|parts| content(parts, media)).transpose()?;
        message.insert("content".to_owned(), shown.unwrap_or_default());
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), Value::from(calls));
        }
        self.done.push(Value::Object(message));
        Ok(())
    }
}

/// Returns one text as a string. The template joins several parts.
fn content(parts: &[Part], media: &mut MediaParts<'_>) -> Result<Value, ApiError> {
    let shown = |part: &Part| match part {
        Part::InputImage { image_url, .. } => media.image_of_url("input_image", image_url),
        part => Ok(json!({"type": "text", "text": part.text()})),
    };
    match parts {
        [Part::InputImage { .. }] | [] | [_, _, ..] => parts.iter().map(shown).collect(),
        [part] => Ok(Value::from(part.text())),
    }
}
