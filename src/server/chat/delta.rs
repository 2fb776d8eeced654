//! The part of a message in one chunk.

use serde::Serialize;

use crate::server::turn::TurnEvent;

/// `choices[].delta`
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCallDelta>,
}

/// A part of a call. The first part has the call's id, its type and the function's name.
#[derive(Debug, PartialEq, Serialize)]
struct ToolCallDelta {
    index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    function: FunctionDelta,
}

#[derive(Debug, PartialEq, Serialize)]
struct FunctionDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    arguments: String,
}

impl Delta {
    /// Returns the first delta: the role, and the text that the message continues.
    pub(super) fn opening(role: &str, content: &str) -> Self {
        let (role, content) = (Some(role.to_owned()), Some(content.to_owned()));
        Self { role, content, ..Self::default() }
    }

    /// Returns the delta for `events`.
    pub(super) fn of(events: Vec<TurnEvent>) -> Self {
        let mut delta = Self::default();
        for event in events {
            match event {
                TurnEvent::Reasoning(text) => {
                    delta.reasoning.get_or_insert_default().push_str(&text);
                }
                TurnEvent::Content(text) => delta.content.get_or_insert_default().push_str(&text),
                TurnEvent::ToolCallStart { index, id, name } => {
                    let function = FunctionDelta { name: Some(name), arguments: String::new() };
                    let (id, kind) = (Some(id), Some("function"));
                    delta.tool_calls.push(ToolCallDelta { index, id, r#type: kind, function });
                }
                TurnEvent::ToolCallArguments { index, delta: text } => {
                    delta.add_arguments(index, text);
                }
                TurnEvent::ToolCallEnd { .. } | TurnEvent::ToolCallBroken { .. } => {}
            }
        }
        delta
    }

    fn add_arguments(&mut self, index: usize, text: String) {
        match self.tool_calls.last_mut() {
            Some(last) if last.index == index => last.function.arguments.push_str(&text),
            _ => {
                let function = FunctionDelta { name: None, arguments: text };
                self.tool_calls.push(ToolCallDelta { index, id: None, r#type: None, function });
            }
        }
    }

    /// Returns whether the delta has no content.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn a_call_is_named_once_and_its_arguments_follow() {
        let (index, id, name) = (0, "id".to_owned(), "now".to_owned());
        let start = TurnEvent::ToolCallStart { index, id, name };
        let piece = |delta: &str| TurnEvent::ToolCallArguments { index, delta: delta.to_owned() };
        let first = Delta::of(vec![TurnEvent::Content("a".to_owned()), start, piece("{")]);
        let function = json!({"name": "now", "arguments": "{"});
        let call = json!({"index": 0, "id": "id", "type": "function", "function": function});
        assert_eq!(to_value(first).unwrap(), json!({"content": "a", "tool_calls": [call]}));
        let rest = Delta::of(vec![piece("\"a\""), piece(":1}"), TurnEvent::ToolCallEnd { index }]);
        let call = json!({"index": 0, "function": {"arguments": "\"a\":1}"}});
        assert_eq!(to_value(rest).unwrap(), json!({ "tool_calls": [call] }));
        assert!(Delta::of(vec![TurnEvent::ToolCallEnd { index }]).is_empty());
    }

    #[test]
    fn thoughts_stand_beside_content() {
        let events = ["a", "b"].map(|text| TurnEvent::Reasoning(text.to_owned()));
        let delta = Delta::of(events.into());
        assert_eq!(to_value(delta).unwrap(), json!({"reasoning": "ab"}));
    }
}
