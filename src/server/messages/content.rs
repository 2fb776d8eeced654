//! The blocks of an answer in one piece.

use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::partial_input::partial_input;
use crate::server::turn::TurnEvent;

/// A block of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentBlock {
    Text { text: String },
    Thinking { thinking: String, signature: String },
    ToolUse { id: String, name: String, input: Map<String, Value> },
}

impl ContentBlock {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// The signature of thoughts. Clients send it back unchanged, and this server does not check it. It
/// is the digest of the thoughts, so equal thoughts have equal signatures.
#[derive(Default)]
pub(super) struct Signature(Sha256);

impl Signature {
    pub(super) fn update(&mut self, thoughts: &str) {
        self.0.update(thoughts);
    }

    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Returns the id of a call in this API's form. An id in the model's own form stays, because its
/// template may have rules for it.
pub(super) fn tool_use_id(id: String) -> String {
    match id.strip_prefix("chatcmpl-tool-") {
        Some(rest) => format!("toolu_{rest}"),
        None => id,
    }
}

/// Returns the blocks of `events`. An incomplete call has the part of its input that came.
pub(super) fn content(
    events: impl IntoIterator<Item = TurnEvent>,
    shows_thinking: bool,
) -> Vec<ContentBlock> {
    let mut drafts = Vec::new();
    for event in events {
        append(&mut drafts, event);
    }
    drafts.into_iter().map(|draft| draft.block(shows_thinking)).collect()
}

/// A block that may still grow.
enum Draft {
    Text(String),
    Thinking(String),
    ToolUse { id: String, name: String, input: String },
}

fn append(drafts: &mut Vec<Draft>, event: TurnEvent) {
    match (event, drafts.last_mut()) {
        (TurnEvent::Reasoning(more), Some(Draft::Thinking(text)))
        | (TurnEvent::Content(more), Some(Draft::Text(text)))
        | (
            TurnEvent::ToolCallArguments { delta: more, .. },
            Some(Draft::ToolUse { input: text, .. }),
        ) => text.push_str(&more),
        (TurnEvent::Reasoning(text), _) => drafts.push(Draft::Thinking(text)),
        (TurnEvent::Content(text), _) => drafts.push(Draft::Text(text)),
        (TurnEvent::ToolCallStart { id, name, .. }, _) => {
            drafts.push(Draft::ToolUse { id: tool_use_id(id), name, input: String::new() });
        }
        (
            TurnEvent::ToolCallArguments { .. }
            | TurnEvent::ToolCallEnd { .. }
            | TurnEvent::ToolCallBroken { .. },
            _,
        ) => {}
    }
}

impl Draft {
    fn block(self, shows_thinking: bool) -> ContentBlock {
        match self {
            Self::Text(text) => ContentBlock::Text { text },
            Self::Thinking(thoughts) => {
                let mut signature = Signature::default();
                signature.update(&thoughts);
                let thinking = if shows_thinking { thoughts } else { String::new() };
                ContentBlock::Thinking { thinking, signature: signature.finish() }
            }
            Self::ToolUse { id, name, input } => {
                ContentBlock::ToolUse { id, name, input: partial_input(&input) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn blocks(events: Vec<TurnEvent>) -> Value {
        serde_json::to_value(content(events, true)).unwrap()
    }

    fn content_event(text: &str) -> TurnEvent {
        TurnEvent::Content(text.to_owned())
    }

    fn start(index: usize) -> TurnEvent {
        let (id, name) = (format!("chatcmpl-tool-{index}"), "now".to_owned());
        TurnEvent::ToolCallStart { index, id, name }
    }

    fn arguments(index: usize, delta: &str) -> TurnEvent {
        TurnEvent::ToolCallArguments { index, delta: delta.to_owned() }
    }

    #[test]
    fn blocks_keep_their_order() {
        let thought = |text: &str| TurnEvent::Reasoning(text.to_owned());
        let events = vec![
            thought("h"),
            thought("m"),
            content_event("I "),
            content_event("look."),
            start(0),
            arguments(0, "{\"zone\":"),
            arguments(0, " 1}"),
            TurnEvent::ToolCallEnd { index: 0 },
            content_event("And"),
            start(1),
            arguments(1, "{}"),
            TurnEvent::ToolCallEnd { index: 1 },
        ];
        // Made by `printf hm | sha256sum`.
        let signature = "b82e2178ecf4d0c5859dc2e169d7fed8673f9f6eeb9f3591bed5f253b7742408";
        let expected = json!([
            {"type": "thinking", "thinking": "hm", "signature": signature},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_0", "name": "now", "input": {"zone": 1}},
            {"type": "text", "text": "And"},
            {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}},
        ]);
        assert_eq!(blocks(events), expected);
    }

    #[test]
    fn an_incomplete_call_has_the_input_that_came() {
        let broken = TurnEvent::ToolCallBroken { index: 0 };
        let cut = vec![content_event("x"), start(0), arguments(0, "{\"a\": 1, \"b"), broken];
        let call = json!({"type": "tool_use", "id": "toolu_0", "name": "now", "input": {"a": 1}});
        assert_eq!(blocks(cut), json!([{"type": "text", "text": "x"}, call]));
    }

    #[test]
    fn thoughts_may_be_kept_from_the_client() {
        let events = || vec![TurnEvent::Reasoning("hm".to_owned())];
        let [shown, hidden] = [true, false].map(|shows| content(events(), shows));
        let [ContentBlock::Thinking { signature, .. }] = shown.as_slice() else {
            panic!("{shown:?}")
        };
        let (thinking, signature) = (String::new(), signature.clone());
        assert_eq!(hidden, [ContentBlock::Thinking { thinking, signature }]);
    }

    #[test]
    fn nothing_is_no_block() {
        assert_eq!(blocks(vec![]), json!([]));
        assert_eq!(tool_use_id("functions.now:0".to_owned()), "functions.now:0");
    }
}
