//! What messages, tools and the choice of one look like in chat completions. They are read as JSON
//! values, since templates may use fields that nobody here knows; these types are for the document
//! alone.
#![allow(dead_code, reason = "only their schemas are used")]

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// One message of a conversation. Templates may know further fields.
#[derive(Serialize, ToSchema)]
pub(in crate::server) struct ChatMessageParam {
    /// `system`, `developer`, `user`, `assistant`, `tool`, or whom else the template knows.
    role: String,
    content: Option<MessageContent>,
    /// Who speaks, where several have the same role.
    name: Option<String>,
    /// What an assistant thought before it.
    reasoning: Option<String>,
    /// The calls of an assistant.
    tool_calls: Option<Vec<ToolCallParam>>,
    /// The call that a tool answers.
    tool_call_id: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum MessageContent {
    Text(String),
    Parts(Vec<ContentPartParam>),
}

/// One part of a content, with its text under the key of its type.
#[derive(Serialize, ToSchema)]
struct ContentPartParam {
    r#type: ContentPartType,
    text: Option<String>,
    refusal: Option<String>,
    thinking: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ContentPartType {
    Text,
    InputText,
    OutputText,
    Refusal,
    Thinking,
}

#[derive(Serialize, ToSchema)]
struct ToolCallParam {
    id: String,
    r#type: FunctionType,
    function: CallParam,
}

#[derive(Serialize, ToSchema)]
struct CallParam {
    name: String,
    /// JSON, as text.
    arguments: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FunctionType {
    Function,
}

/// A tool on offer.
#[derive(Serialize, ToSchema)]
pub(in crate::server) struct ToolParam {
    r#type: FunctionType,
    function: FunctionParam,
}

#[derive(Serialize, ToSchema)]
struct FunctionParam {
    name: String,
    description: Option<String>,
    /// A JSON schema.
    parameters: Option<Map<String, Value>>,
    /// Whether every call has to keep to the schema.
    strict: Option<bool>,
}

/// Whether to call one.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(in crate::server) enum ToolChoiceParam {
    Mode(ToolChoiceMode),
    Named(NamedToolChoice),
    Allowed(AllowedToolChoice),
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::server) enum ToolChoiceMode {
    None,
    Auto,
    Required,
}

#[derive(Serialize, ToSchema)]
pub(in crate::server) struct NamedToolChoice {
    r#type: FunctionType,
    function: FunctionName,
}

/// Only some of the tools may be called.
#[derive(Serialize, ToSchema)]
pub(in crate::server) struct AllowedToolChoice {
    r#type: AllowedToolsType,
    allowed_tools: AllowedTools,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AllowedToolsType {
    AllowedTools,
}

#[derive(Serialize, ToSchema)]
struct AllowedTools {
    mode: AllowedToolsMode,
    /// At least one.
    tools: Vec<NamedToolChoice>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AllowedToolsMode {
    /// As the model likes.
    Auto,
    /// One of them at least.
    Required,
}

#[derive(Serialize, ToSchema)]
struct FunctionName {
    name: String,
}
