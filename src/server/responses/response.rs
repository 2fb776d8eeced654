//! A response as clients see it.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::items::{Item, Items};
use crate::server::{http::error::ApiError, state::unix_seconds};

/// The body of `/v1/responses`, complete at any time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::server) struct Response {
    pub(super) id: String,
    object: Cow<'static, str>,
    created_at: u64,
    completed_at: Option<u64>,
    pub(super) status: Status,
    pub(super) error: Option<ResponseError>,
    pub(super) incomplete_details: Option<IncompleteDetails>,
    pub(super) output: Arc<Items>,
    pub(super) usage: Option<ResponseUsage>,
    #[serde(flatten)]
    pub(super) asked: Arc<Asked>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Queued,
    InProgress,
    Completed,
    /// Cut off. `incomplete_details` has the reason.
    Incomplete,
    Failed,
    Cancelled,
}

/// The client's fields, with the defaults of absent ones.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) instructions: Option<String>,
    pub(super) previous_response_id: Option<String>,
    pub(super) background: bool,
    pub(super) store: bool,
    pub(super) max_output_tokens: Option<u32>,
    pub(super) max_tool_calls: Option<u32>,
    pub(super) tools: Vec<Value>,
    pub(super) tool_choice: Value,
    pub(super) parallel_tool_calls: bool,
    pub(super) reasoning: ReasoningAsked,
    pub(super) text: TextAsked,
    pub(super) temperature: f32,
    pub(super) top_p: f32,
    pub(super) presence_penalty: f32,
    pub(super) frequency_penalty: f32,
    pub(super) top_logprobs: u32,
    pub(super) truncation: Cow<'static, str>,
    pub(super) service_tier: Cow<'static, str>,
    pub(super) metadata: Map<String, Value>,
    pub(super) user: Option<String>,
    pub(super) prompt_cache_key: Option<String>,
    pub(super) prompt_cache_options: Option<CacheOptions>,
    pub(super) prompt_cache_retention: Option<CacheRetention>,
    pub(super) safety_identifier: Option<String>,
}

/// How the client wants prompts cached. It is repeated, and has no effect.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct CacheOptions {
    mode: CacheMode,
    ttl: CacheTime,
    comparison_response_id: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum CacheMode {
    #[default]
    Implicit,
    Explicit,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
enum CacheTime {
    #[default]
    #[serde(rename = "30m")]
    HalfHour,
}

/// How long the client wants prompts cached. It is repeated, and has no effect.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub(super) enum CacheRetention {
    #[serde(rename = "in_memory", alias = "in-memory")]
    InMemory,
    #[serde(rename = "24h")]
    Day,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ReasoningAsked {
    pub(super) effort: Option<String>,
    pub(super) summary: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct TextAsked {
    pub(super) format: Value,
    pub(super) verbosity: Cow<'static, str>,
}

/// Why a response failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResponseError {
    pub(super) code: Cow<'static, str>,
    pub(super) message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IncompleteDetails {
    pub(super) reason: Cow<'static, str>,
}

/// The tokens of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: InputTokensDetails,
    output_tokens: usize,
    output_tokens_details: OutputTokensDetails,
    total_tokens: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct InputTokensDetails {
    cached_tokens: usize,
    /// Tokens charged for writing the cache: always zero.
    cache_write_tokens: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct OutputTokensDetails {
    reasoning_tokens: usize,
}

impl Response {
    /// Returns a response without output.
    pub(super) fn new(id: String, created_at: u64, status: Status, asked: Asked) -> Self {
        Self {
            id,
            object: "response".into(),
            created_at,
            completed_at: None,
            status,
            error: None,
            incomplete_details: None,
            output: Arc::default(),
            usage: None,
            asked: Arc::new(asked),
        }
    }

    /// Ends the response.
    pub(super) fn end(&mut self, status: Status, output: Vec<Item>, usage: Option<ResponseUsage>) {
        self.status = status;
        self.output = Arc::new(output.into_iter().map(Arc::new).collect());
        self.usage = usage;
        self.completed_at = (status == Status::Completed).then(unix_seconds);
        if status == Status::Incomplete {
            self.incomplete_details =
                Some(IncompleteDetails { reason: "max_output_tokens".into() });
        }
    }
}

impl Status {
    /// Returns whether the response has ended.
    pub(super) fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::InProgress)
    }
}

impl ResponseUsage {
    pub(super) fn new(input: usize, cached: usize, output: usize, reasoning: usize) -> Self {
        Self {
            input_tokens: input,
            input_tokens_details: InputTokensDetails {
                cached_tokens: cached,
                cache_write_tokens: 0,
            },
            output_tokens: output,
            output_tokens_details: OutputTokensDetails { reasoning_tokens: reasoning },
            total_tokens: input + output,
        }
    }
}

impl From<&ApiError> for ResponseError {
    fn from(error: &ApiError) -> Self {
        let code = match error.status.as_u16() {
            429 => "rate_limit_exceeded",
            400..500 => "invalid_prompt",
            _ => "server_error",
        };
        Self { code: code.into(), message: error.message.clone() }
    }
}
