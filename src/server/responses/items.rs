//! The items of a conversation. Input and output have the same items, so a client may send back the
//! items that it received.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::server::generate::logprobs::ChatLogprob;

/// A message, thought, call, or result of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Item {
    Message(Message),
    Reasoning(Reasoning),
    FunctionCall(FunctionCall),
    FunctionCallOutput(FunctionCallOutput),
    CustomToolCall(CustomToolCall),
    CustomToolCallOutput(FunctionCallOutput),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ItemStatus {
    InProgress,
    Completed,
    Incomplete,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) status: ItemStatus,
    pub(super) role: Role,
    pub(super) content: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    System,
    Developer,
    Assistant,
}

/// A piece of text, whose kind shows its author, or an image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part {
    InputText {
        text: String,
    },
    InputImage {
        image_url: String,
        detail: String,
    },
    OutputText {
        text: String,
        /// Sources that hosted tools would cite. Always empty.
        annotations: [(); 0],
        /// Empty unless the request asks for them.
        logprobs: Vec<ChatLogprob>,
    },
    Refusal {
        refusal: String,
    },
    ReasoningText {
        text: String,
    },
    SummaryText {
        text: String,
    },
}

/// Thoughts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Reasoning {
    pub(super) id: String,
    pub(super) status: ItemStatus,
    pub(super) summary: Vec<Part>,
    pub(super) content: Vec<Part>,
    /// Absent, because thoughts are not encrypted.
    pub(super) encrypted_content: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FunctionCall {
    pub(super) id: String,
    pub(super) status: ItemStatus,
    /// The id that the call's output refers to.
    pub(super) call_id: String,
    /// The namespace of the function, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// JSON as text. It is cut off in an incomplete call.
    pub(super) arguments: String,
}

/// A call of a custom tool. In this API it has no status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct CustomToolCall {
    pub(super) id: String,
    /// The id that the call's output refers to.
    pub(super) call_id: String,
    pub(super) name: String,
    /// Plain text. It is cut off in an incomplete call.
    pub(super) input: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct FunctionCallOutput {
    pub(super) id: String,
    pub(super) status: ItemStatus,
    pub(super) call_id: String,
    pub(super) output: Output,
}

/// The result of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Output {
    Text(String),
    Parts(Vec<Part>),
}

/// Bytes that are counted for an item, and for each of its parts, in addition to its text. Its JSON
/// values for a template take seven times as many.
pub(super) const VALUE_BYTES: usize = 96;

/// Items that a conversation shares with others that refer to them.
pub(super) type Items = Vec<Arc<Item>>;

impl Item {
    /// Returns the bytes of the item in a prompt: those of its text and of the values around it.
    pub(super) fn prompt_bytes(&self) -> usize {
        let bytes = |part: &Part| {
            let url = match part {
                Part::InputImage { image_url, .. } => image_url.len(),
                _ => 0,
            };
            VALUE_BYTES + part.text().len() + url
        };
        let parts = |parts: &[Part]| parts.iter().map(bytes).sum::<usize>();
        let shown = match self {
            Self::Message(message) => parts(&message.content),
            Self::Reasoning(Reasoning { summary, content, .. }) => parts(summary) + parts(content),
            Self::FunctionCall(call) => {
                let name = call.namespace.as_ref().map_or(0, String::len) + call.name.len();
                name + call.call_id.len() + call.arguments.len()
            }
            Self::CustomToolCall(call) => call.name.len() + call.call_id.len() + call.input.len(),
            Self::FunctionCallOutput(FunctionCallOutput { call_id, output, .. })
            | Self::CustomToolCallOutput(FunctionCallOutput { call_id, output, .. }) => {
                match output {
                    Output::Text(text) => call_id.len() + text.len(),
                    Output::Parts(output) => call_id.len() + parts(output),
                }
            }
        };
        VALUE_BYTES + shown
    }

    pub(super) fn id(&self) -> &str {
        match self {
            Self::Message(message) => &message.id,
            Self::Reasoning(reasoning) => &reasoning.id,
            Self::FunctionCall(call) => &call.id,
            Self::CustomToolCall(call) => &call.id,
            Self::FunctionCallOutput(output) | Self::CustomToolCallOutput(output) => &output.id,
        }
    }
}

impl Part {
    pub(super) fn output_text(text: String) -> Self {
        Self::OutputText { text, annotations: [], logprobs: Vec::new() }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::InputText { text }
            | Self::OutputText { text, .. }
            | Self::Refusal { refusal: text }
            | Self::ReasoningText { text }
            | Self::SummaryText { text } => text,
            Self::InputImage { .. } => "",
        }
    }
}
