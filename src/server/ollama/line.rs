//! The lines of answers. An answer in one piece is one line.

use axum::body::Bytes;
use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::server::{generate::logprobs::ChatLogprob, http::error::ApiError};

/// One line of an answer: new output, or its end.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OllamaLine)]
pub(in crate::server) struct Line {
    pub(super) model: String,
    pub(super) created_at: String,
    /// The output of a chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<LineMessage>,
    /// The output for a prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response: Option<String>,
    /// The thoughts before the output for a prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logprobs: Option<Vec<ChatLogprob>>,
    pub(super) done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) done_reason: Option<&'static str>,
    #[serde(flatten)]
    pub(super) counts: Counts,
}

/// A message, or a part of it.
#[derive(Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = OllamaMessage)]
pub(super) struct LineMessage {
    pub(super) role: &'static str,
    pub(super) content: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<LineCall>,
}

/// A tool call, which is always complete.
#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = OllamaToolCall)]
pub(super) struct LineCall {
    pub(super) id: String,
    pub(super) function: LineFunction,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = OllamaFunction)]
pub(super) struct LineFunction {
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) arguments: Map<String, Value>,
}

/// Tokens, and times in nanoseconds. Only the last line of an answer has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = OllamaCounts)]
pub(super) struct Counts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total_duration: Option<u64>,
    /// Zero: the model is always loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load_duration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_eval_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_eval_duration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) eval_count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) eval_duration: Option<u64>,
}

impl Line {
    /// Returns a line without output.
    pub(super) fn new(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            created_at: now(),
            message: None,
            response: None,
            thinking: None,
            logprobs: None,
            done: false,
            done_reason: None,
            counts: Counts::default(),
        }
    }

    /// Returns the end of an answer without output.
    pub(super) fn ended(model: &str, done_reason: &'static str) -> Self {
        Self { done: true, done_reason: Some(done_reason), ..Self::new(model) }
    }
}

/// Returns the time as this API writes it.
pub(super) fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Nanos, true)
}

/// Returns one line of JSON.
pub(super) fn line(value: &impl Serialize) -> Bytes {
    let written = serde_json::to_vec(value).or_else(|error| {
        let error = ApiError::internal(error.to_string());
        serde_json::to_vec(&error.body())
    });
    // The body of an error has only strings and integers, so writing it cannot fail.
    let mut line = written.unwrap_or_default();
    line.push(b'\n');
    Bytes::from(line)
}
