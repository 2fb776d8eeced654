//! Flags of the server and of the log.

use clap::Args;
use serde::Serialize;

use crate::config::layer::Entry;

/// Flags of `playhouse serve`.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerFlags {
    /// Address to listen on; 0.0.0.0 for all of this machine's [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<String>,
    /// Port to listen on; 0 for any that is free [default: 8000]
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<String>,
    /// Key that clients must bring (Authorization: Bearer KEY); may be repeated
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Vec<String>,
    /// Bytes at most of a request's body [default: 32MiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) body_limit_bytes: Option<String>,
    /// Seconds that a client may take to send its body [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) body_timeout: Option<String>,
    /// Seconds that a client may take nothing of what is sent to it [default: 60]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) write_timeout: Option<String>,
    /// Seconds that a request may take; X-Request-Timeout may ask for less [default: no limit]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) request_timeout: Option<String>,
    /// Seconds that requests get to end after SIGTERM or SIGINT [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) shutdown_timeout: Option<String>,
    /// Responses of /v1/responses to keep at most; 0: none [default: 10000]
    #[arg(long, value_name = "N")]
    pub(crate) responses_store_max_count: Option<String>,
    /// Memory for them at most [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) responses_store_max_bytes: Option<String>,
    /// Seconds that they are kept [default: 86400]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) responses_store_ttl: Option<String>,
    /// Origin of web pages that may call the server, or *; may be repeated [default: none]
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',')]
    pub(crate) allowed_origins: Vec<String>,
    /// Answer every request with an X-Request-Id header [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_request_id_headers: Option<String>,
    /// Tell in `usage` how many prompt tokens were cached [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_prompt_tokens_details: Option<String>,
    /// Send usage with every chunk of every stream [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_force_include_usage: Option<String>,
    /// Name tokens as token_id:N in log-probabilities [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) return_tokens_as_token_ids: Option<String>,
    /// Tell in answers that are not streamed how long they took [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_per_request_metrics: Option<String>,
    /// Let requests bring a chat template of their own [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) trust_request_chat_template: Option<String>,
    /// Parser of tool calls, by name; auto: as the chat template suggests [default: auto]
    #[arg(long, value_name = "NAME")]
    pub(crate) tool_call_parser: Option<String>,
    /// Parser of thoughts, by name; auto: as the chat template suggests [default: auto]
    #[arg(long, value_name = "NAME")]
    pub(crate) reasoning_parser: Option<String>,
    /// Let the model call tools as it likes [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_auto_tool_choice: Option<String>,
    /// Do not show tools to a model that is not to call them [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) exclude_tools_when_tool_choice_none: Option<String>,
    /// Serve /pause, /sleep, /abort_requests and such to key holders and this machine [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_admin_routes: Option<String>,
    /// Serve /tokenizer_info [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_tokenizer_info_endpoint: Option<String>,
}

/// The engine's own seed, for commands whose `--seed` does not mean a request's.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub(crate) struct SeedFlag {
    /// Seeds the draw of seeds for requests that bring none [default: 0]
    #[arg(long, value_name = "N", help_heading = "Scheduling")]
    pub(crate) seed: Option<String>,
}

/// Flags of every command that logs.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LogFlags {
    /// error, warn, info, debug, trace, or directives such as info,playhouse=debug
    #[arg(long, global = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Seconds between two lines about throughput while the server is busy; 0: none [default: 10]
    #[arg(long, global = true, value_name = "SECONDS")]
    pub(crate) log_stats_interval_s: Option<String>,
}

/// [`LogFlags`] under the names of their settings.
#[derive(Serialize)]
struct LogSettingsGiven<'a> {
    level: &'a Option<String>,
    stats_interval_s: &'a Option<String>,
}

impl LogFlags {
    /// The settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let (level, stats_interval_s) = (&self.log_level, &self.log_stats_interval_s);
        super::entries("log", &LogSettingsGiven { level, stats_interval_s })
    }
}
