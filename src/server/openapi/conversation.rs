//! The shapes of messages, tools and tool choices in chat completions. Requests read them as JSON
//! values, because templates may use fields that this server does not know. These types exist only
//! for the document.
#![allow(dead_code, reason = "only their schemas are used")]

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// One message of a conversation. Templates may know further fields.
#[derive(Serialize, ToSchema)]
pub(in crate::server) struct ChatMessageParam {
    /// `system`, `developer`, `user`, `assistant`, `tool`, or another role that the template knows.
    role: String,
    content: Option<MessageContent>,
    /// The name of the participant, where several have the same role.
    name: Option<String>,
    /// The assistant's thoughts before the content.
    reasoning: Option<String>,
    /// The assistant's calls.
    tool_calls: Option<Vec<ToolCallParam>>,
    /// The id of the call whose result this message is.
    tool_call_id: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
enum MessageContent {
    Text(String),
    Parts(Vec<ContentPartParam>),
}

/// One part of a message's content. The key of its text depends on its type.
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
    /// JSON as text.
    arguments: String,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum FunctionType {
    Function,
}

/// A tool that the model may call.
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
    /// Whether every call must match the schema.
    strict: Option<bool>,
}

/// Whether the model may or must call a tool.
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

/// The model may call only some of the tools.
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
    /// The tools, at least one.
    tools: Vec<NamedToolChoice>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum AllowedToolsMode {
    /// The model may call one.
    Auto,
    /// The model must call at least one.
    Required,
}

#[derive(Serialize, ToSchema)]
struct FunctionName {
    name: String,
}
