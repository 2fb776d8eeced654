//! Token counts, and the chunks of a stream that report them.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::server::{
    ServerConfig,
    http::{error::ApiError, fields::flag},
};

/// The tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::server) struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
    completion_tokens: usize,
    prompt_tokens_details: Option<PromptTokensDetails>,
    completion_tokens_details: Option<CompletionTokensDetails>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
struct PromptTokensDetails {
    cached_tokens: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
struct CompletionTokensDetails {
    reasoning_tokens: usize,
}

impl Usage {
    /// Returns the counts alone.
    pub(in crate::server) fn new(prompt_tokens: usize, completion_tokens: usize) -> Self {
        let total_tokens = prompt_tokens + completion_tokens;
        Self {
            prompt_tokens,
            total_tokens,
            completion_tokens,
            prompt_tokens_details: None,
            completion_tokens_details: None,
        }
    }

    /// Adds the prompt tokens that came from the prefix cache.
    #[must_use]
    pub(in crate::server) fn with_cached(self, cached_tokens: Option<usize>) -> Self {
        let details = cached_tokens.map(|cached_tokens| PromptTokensDetails { cached_tokens });
        Self { prompt_tokens_details: details, ..self }
    }

    /// Adds the completion tokens that are thoughts, if thoughts are distinguished.
    #[must_use]
    pub(in crate::server) fn with_reasoning(self, reasoning_tokens: Option<usize>) -> Self {
        let details =
            reasoning_tokens.map(|tokens| CompletionTokensDetails { reasoning_tokens: tokens });
        Self { completion_tokens_details: details, ..self }
    }
}

/// `stream_options` as the client sent it.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct StreamOptions {
    #[serde(deserialize_with = "given_flag")]
    #[schema(value_type = Option<bool>)]
    include_usage: Option<Option<bool>>,
    #[serde(deserialize_with = "given_flag")]
    #[schema(value_type = Option<bool>)]
    continuous_usage_stats: Option<Option<bool>>,
}

/// Reads a flag that is there, if only as null.
fn given_flag<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<bool>>, D::Error> {
    flag(from).map(Some)
}

impl StreamOptions {
    /// Whether the client sent none, which is the same as no options.
    fn is_empty(&self) -> bool {
        self.include_usage.is_none() && self.continuous_usage_stats.is_none()
    }

    /// Returns the reports that the options ask for.
    fn reports(&self) -> UsageReports {
        let asks = |flag: Option<Option<bool>>| flag.flatten().unwrap_or(false);
        let at_end = asks(self.include_usage);
        UsageReports { at_end, continuous: at_end && asks(self.continuous_usage_stats) }
    }
}

/// The chunks of a stream that report usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::server) struct UsageReports {
    /// A chunk of its own, after the last choice.
    pub(in crate::server) at_end: bool,
    /// Every chunk.
    pub(in crate::server) continuous: bool,
}

impl UsageReports {
    /// Returns the reports that the client asks for, and those that the operator forces.
    ///
    /// # Errors
    /// If there are options but no stream.
    pub(in crate::server) fn new(
        options: Option<&StreamOptions>,
        is_stream: bool,
        config: &ServerConfig,
    ) -> Result<Self, ApiError> {
        if options.is_some_and(|options| !options.is_empty()) && !is_stream {
            let message = "Stream options can only be defined when `stream=True`.";
            return Err(ApiError::invalid("stream_options", message));
        }
        if config.enable_force_include_usage {
            return Ok(Self { at_end: true, continuous: true });
        }
        Ok(options.map(StreamOptions::reports).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(options: &str, force: bool) -> UsageReports {
        let options: Option<StreamOptions> = serde_json::from_str(options).unwrap();
        let config = ServerConfig { enable_force_include_usage: force, ..Default::default() };
        UsageReports::new(options.as_ref(), true, &config).unwrap()
    }

    #[test]
    fn continuous_usage_needs_usage() {
        let nothing = UsageReports::default();
        assert_eq!(reports("null", false), nothing);
        assert_eq!(reports("{}", false), nothing);
        assert_eq!(reports(r#"{"continuous_usage_stats": true}"#, false), nothing);
        let at_end = UsageReports { at_end: true, continuous: false };
        assert_eq!(reports(r#"{"include_usage": true}"#, false), at_end);
        let both = UsageReports { at_end: true, continuous: true };
        assert_eq!(
            reports(r#"{"include_usage": true, "continuous_usage_stats": true}"#, false),
            both
        );
        assert_eq!(reports("null", true), both);
    }

    #[test]
    fn options_need_a_stream() {
        let whole = |options: &str| {
            let options: StreamOptions = serde_json::from_str(options).unwrap();
            UsageReports::new(Some(&options), false, &ServerConfig::default())
        };
        let error = whole(r#"{"include_usage": null}"#).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("stream_options"));
        // As vLLM, which asks whether the dictionary is empty.
        assert_eq!(whole("{}").unwrap(), UsageReports::default());
    }
}
