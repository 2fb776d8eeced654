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
    /// Unix socket to listen on, in place of host and port
    #[arg(long, value_name = "PATH")]
    pub(crate) uds: Option<String>,
    /// Permissions of the Unix socket, in octal [default: 600]
    #[arg(long, value_name = "MODE")]
    pub(crate) uds_mode: Option<String>,
    /// Certificate chain to speak TLS with, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ssl_certfile: Option<String>,
    /// Its private key, PEM [default: in the same file]
    #[arg(long, value_name = "FILE")]
    pub(crate) ssl_keyfile: Option<String>,
    /// Authorities that clients' certificates come from, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ssl_ca_certs: Option<String>,
    /// Whether clients show a certificate: none, optional or required [default: none]
    #[arg(long, value_name = "WORD")]
    pub(crate) ssl_cert_reqs: Option<String>,
    /// Read these files again when they change [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_ssl_refresh: Option<String>,
    /// Path that a proxy serves this server under, such as /llm
    #[arg(long, value_name = "PATH")]
    pub(crate) root_path: Option<String>,
    /// Key that clients must bring (Authorization: Bearer KEY); may be repeated
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Vec<String>,
    /// File with further keys, one a line; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<String>,
    /// Key of an operator, which opens the operators' routes as well; may be repeated
    #[arg(long, value_name = "KEY")]
    pub(crate) admin_api_key: Vec<String>,
    /// File with further keys of operators, one a line; read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_api_key_file: Option<String>,
    /// Serve /metrics without a key where others need one [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) open_metrics: Option<String>,
    /// Let requests with different keys share cached prefixes [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) share_prefix_cache_between_keys: Option<String>,
    /// Connections at most; further ones wait [default: 16384]
    #[arg(long, value_name = "N")]
    pub(crate) max_connections: Option<String>,
    /// Header lines at most of a request [default: 256]
    #[arg(long, value_name = "N")]
    pub(crate) h11_max_header_count: Option<String>,
    /// Bytes at most of a request's headers [default: 64KiB]
    #[arg(long, value_name = "BYTES")]
    pub(crate) h11_max_incomplete_event_size: Option<String>,
    /// Seconds for a TLS handshake, and for the headers of a request [default: 10]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) header_timeout: Option<String>,
    /// Seconds that a connection is kept without a request [default: 75]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout_keep_alive: Option<String>,
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
    /// Seconds without an event after which a stream sends a comment; 0: never [default: 15]
    #[arg(long, value_name = "SECONDS")]
    pub(crate) sse_keep_alive_interval: Option<String>,
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
    /// Method that they may use, or *; may be repeated [default: *]
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    pub(crate) allowed_methods: Vec<String>,
    /// Header that they may send, or *; may be repeated [default: *]
    #[arg(long, value_name = "HEADER", value_delimiter = ',')]
    pub(crate) allowed_headers: Vec<String>,
    /// Let them send cookies and client certificates [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) allow_credentials: Option<String>,
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
    /// Tell in answers how long they took [default: false]
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
    /// Serve /pause, /sleep and other routes to operators' keys and this machine [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_admin_routes: Option<String>,
    /// Serve /tokenizer_info [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) enable_tokenizer_info_endpoint: Option<String>,
}

/// Flags about what one request may hold.
#[derive(Debug, Clone, Default, Args, Serialize)]
#[command(next_help_heading = "Limits on a request")]
pub(crate) struct LimitFlags {
    /// Deepest nesting of its JSON [default: 100]
    #[arg(long, value_name = "N")]
    pub(crate) max_json_depth: Option<String>,
    /// Prompts of one completion request [default: 1024]
    #[arg(long, value_name = "N")]
    pub(crate) max_completion_prompts: Option<String>,
    /// Choices: n times its prompts [default: 16384]
    #[arg(long, value_name = "N")]
    pub(crate) max_n_sequences: Option<String>,
    /// Stop strings [default: 4]
    #[arg(long, value_name = "N")]
    pub(crate) max_stop_strings: Option<String>,
    /// Words in bad_words [default: 128]
    #[arg(long, value_name = "N")]
    pub(crate) max_num_bad_words: Option<String>,
    /// Messages of a conversation [default: 4096]
    #[arg(long, value_name = "N")]
    pub(crate) max_messages: Option<String>,
    /// Tools on offer [default: 1024]
    #[arg(long, value_name = "N")]
    pub(crate) max_tools: Option<String>,
}

/// The engine's own seed, for commands whose `--seed` does not mean a request's.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub(crate) struct SeedFlag {
    /// Seeds the draw of seeds for requests that bring none [default: 0]
    #[arg(long, value_name = "N", help_heading = "Scheduling")]
    pub(crate) seed: Option<String>,
}

/// What a server logs of its own accord.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub(crate) struct StatsFlag {
    /// Seconds between two lines about throughput while the server is busy; 0: none [default: 10]
    #[arg(long, value_name = "SECONDS", help_heading = "Server")]
    #[serde(rename = "stats_interval_s")]
    pub(crate) log_stats_interval_s: Option<String>,
}

/// Flags of every command that logs.
#[derive(Debug, Clone, Default, Args, Serialize)]
pub(crate) struct LogFlags {
    /// error, warn, info, debug, trace, or directives such as info,playhouse=debug
    #[arg(long, global = true, value_name = "LEVEL")]
    #[serde(rename = "level")]
    pub(crate) log_level: Option<String>,
}

impl LogFlags {
    /// The settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        super::entries("log", self)
    }
}
