//! Turns the items of a conversation into the messages that chat templates know.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value, json};

use super::items::{FunctionCall, Item, ItemStatus, Message, Output, Part, Reasoning, Role};
use crate::server::http::error::ApiError;

/// Returns the messages. The assistant's thoughts, text and calls in a row become one message.
///
/// # Errors
/// If a function's output belongs to no call.
pub(super) fn messages<'a>(
    instructions: Option<&str>,
    items: impl IntoIterator<Item = &'a Arc<Item>>,
) -> Result<Vec<Value>, ApiError> {
    let mut messages = Messages::default();
    if let Some(instructions) = instructions {
        messages.done.push(json!({"role": "system", "content": instructions}));
    }
    for item in items {
        messages.push(item)?;
    }
    messages.flush();
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
    fn push(&mut self, item: &'a Item) -> Result<(), ApiError> {
        match item {
            Item::Reasoning(reasoning) => self.think(reasoning),
            Item::Message(message) if message.role == Role::Assistant => self.say(message),
            Item::Message(message) => {
                self.flush();
                let content = content(&message.content);
                self.done.push(json!({"role": message.role, "content": content}));
            }
            Item::FunctionCall(call) => self.call(call),
            Item::FunctionCallOutput(output) => {
                self.flush();
                let call_id = output.call_id.as_str();
                if !self.calls.contains(call_id) {
                    let message = format!(
                        "No tool call found for function call output with call_id {call_id}."
                    );
                    return Err(ApiError::invalid("input", message));
                }
                let content = match &output.output {
                    Output::Text(text) => Value::from(text.as_str()),
                    Output::Parts(parts) => content(parts),
                };
                self.done
                    .push(json!({"role": "tool", "tool_call_id": call_id, "content": content}));
            }
        }
        Ok(())
    }

    /// Adds thoughts, which come before text and calls.
    fn think(&mut self, reasoning: &Reasoning) {
        if self.turn.content.is_some() || !self.turn.calls.is_empty() {
            self.flush();
        }
        let parts = [&reasoning.content, &reasoning.summary];
        let parts = parts.into_iter().find(|parts| !parts.is_empty());
        parts.into_iter().flatten().for_each(|part| self.turn.reasoning.push_str(part.text()));
    }

    /// Adds text, which comes before calls.
    fn say(&mut self, message: &'a Message) {
        if self.turn.content.is_some() || !self.turn.calls.is_empty() {
            self.flush();
        }
        self.turn.content = Some(&message.content);
    }

    /// Adds a call. One that was cut off is left out: its arguments are no JSON.
    fn call(&mut self, call: &'a FunctionCall) {
        if call.status == ItemStatus::Incomplete {
            return;
        }
        self.calls.insert(&call.call_id);
        let function = json!({"name": call.name, "arguments": call.arguments});
        let call = json!({"id": call.call_id, "type": "function", "function": function});
        self.turn.calls.push(call);
    }

    fn flush(&mut self) {
        let AssistantTurn { reasoning, content: parts, calls } = std::mem::take(&mut self.turn);
        if reasoning.is_empty() && parts.is_none() && calls.is_empty() {
            return;
        }
        let mut message = Map::new();
        message.insert("role".to_owned(), Value::from("assistant"));
        if !reasoning.is_empty() {
            message.insert("reasoning".to_owned(), Value::from(reasoning));
        }
        message.insert("content".to_owned(), parts.map_or(Value::Null, content));
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), Value::from(calls));
        }
        self.done.push(Value::Object(message));
    }
}

/// Returns one part as a text. The template joins several parts.
fn content(parts: &[Part]) -> Value {
    match parts {
        [part] => Value::from(part.text()),
        parts => parts.iter().map(|part| json!({"type": "text", "text": part.text()})).collect(),
    }
}
