//! The settings of the HTTP server.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    choice::{CertReqs, FileMode, ParserChoice},
    limits::LimitSettings,
    quantity,
};
use crate::parsers::Registry;

/// What `playhouse serve` is told about its socket and its clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerSettings {
    /// Address to listen on. The default is reachable from this machine alone.
    pub host: String,
    /// Port to listen on; 0 takes any that is free.
    #[serde(deserialize_with = "quantity::port")]
    pub port: u16,
    /// Path of a Unix socket to listen on, in place of host and port.
    pub uds: Option<PathBuf>,
    /// Who may connect to it.
    pub uds_mode: FileMode,
    /// File with the certificate chain to show to clients, PEM. With it, TLS is all that is spoken.
    pub ssl_certfile: Option<PathBuf>,
    /// File with its private key, PEM; `None`: it stands in `ssl_certfile`.
    pub ssl_keyfile: Option<PathBuf>,
    /// File with the authorities that clients' certificates come from, PEM.
    pub ssl_ca_certs: Option<PathBuf>,
    /// Whether clients must show a certificate.
    pub ssl_cert_reqs: CertReqs,
    /// Read the three files again when they change.
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_ssl_refresh: bool,
    /// Path that a proxy serves this server under, such as `/llm`. Routes answer with and without.
    pub root_path: String,
    /// Bearer tokens of clients. Without any key, ordinary or of an operator, everything is open.
    #[serde(rename = "api_key", deserialize_with = "quantity::secrets")]
    pub api_keys: Vec<String>,
    /// File with further ones, one a line; it is read again when it changes.
    pub api_key_file: Option<PathBuf>,
    /// Bearer tokens of operators, which open their routes as well. With ordinary keys alone those
    /// routes are closed.
    #[serde(rename = "admin_api_key", deserialize_with = "quantity::secrets")]
    pub admin_api_keys: Vec<String>,
    /// File with further ones, as `api_key_file`.
    pub admin_api_key_file: Option<PathBuf>,
    /// Serve `/metrics` without a key where others need one.
    #[serde(deserialize_with = "quantity::switch")]
    pub open_metrics: bool,
    /// Let requests with different keys share the KV blocks of a common prefix. Who shares can tell
    /// by the time to the first token what others have sent.
    #[serde(deserialize_with = "quantity::switch")]
    pub share_prefix_cache_between_keys: bool,
    /// Connections at most; further ones wait to be accepted.
    #[serde(deserialize_with = "quantity::count")]
    pub max_connections: usize,
    /// Header lines of a request at most. More is answered with 431.
    #[serde(deserialize_with = "quantity::count")]
    pub h11_max_header_count: usize,
    /// Bytes of a request's headers at most. More is answered with 431.
    #[serde(deserialize_with = "quantity::bytes_usize")]
    pub h11_max_incomplete_event_size: usize,
    /// Longest that a client may take for its TLS handshake, and for the headers of a request,
    /// seconds.
    #[serde(rename = "header_timeout", deserialize_with = "quantity::count_u64")]
    pub header_timeout_secs: u64,
    /// How long a connection without a request is kept, seconds.
    #[serde(rename = "timeout_keep_alive", deserialize_with = "quantity::count_u64")]
    pub keep_alive_timeout_secs: u64,
    /// Largest request body, bytes. More is answered with 413.
    #[serde(deserialize_with = "quantity::bytes_usize")]
    pub body_limit_bytes: usize,
    /// Longest a client may take to send its body, seconds.
    #[serde(rename = "body_timeout", deserialize_with = "quantity::count_u64")]
    pub body_timeout_secs: u64,
    /// Longest a client may take nothing of what is sent to it, seconds: then its connection is cut
    /// and its requests are aborted. Over HTTP/2 that goes by stream.
    #[serde(rename = "write_timeout", deserialize_with = "quantity::count_u64")]
    pub write_timeout_secs: u64,
    /// Longest that a request may take from its arrival to its end, seconds; `X-Request-Timeout`
    /// may ask for less. `None`: no such limit.
    #[serde(rename = "request_timeout", deserialize_with = "quantity::some_number")]
    pub request_timeout_secs: Option<f64>,
    /// How long streams in flight may go on once the server is told to stop, seconds.
    #[serde(rename = "shutdown_timeout", deserialize_with = "quantity::count_u64")]
    pub shutdown_timeout_secs: u64,
    /// Seconds without an event after which a stream sends a comment, so that nobody on the way
    /// takes it for dead; 0: never.
    #[serde(rename = "sse_keep_alive_interval", deserialize_with = "quantity::count_u64")]
    pub sse_keep_alive_interval_secs: u64,
    /// Answer every request with an `X-Request-Id`: the client's own, or a new one.
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_request_id_headers: bool,
    /// Name tokens as `token_id:N` in log-probabilities unless a request says otherwise.
    #[serde(deserialize_with = "quantity::switch")]
    pub return_tokens_as_token_ids: bool,
    /// Tell in `usage` how many prompt tokens came from the prefix cache.
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_prompt_tokens_details: bool,
    /// Send usage with every chunk of every stream, asked for or not.
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_force_include_usage: bool,
    /// Tell in answers, and beside the usage at the end of streams, how long they took (`metrics`).
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_per_request_metrics: bool,
    /// Let requests bring a chat template of their own: at most 64 KiB, which may work for some seconds.
    #[serde(deserialize_with = "quantity::switch")]
    pub trust_request_chat_template: bool,
    /// What finds tool calls in the answers of a model that may call.
    pub tool_call_parser: ParserChoice,
    /// What tells thoughts from the rest of an answer.
    pub reasoning_parser: ParserChoice,
    /// Let the model call tools as it likes (`tool_choice: "auto"`), given a parser for its calls.
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_auto_tool_choice: bool,
    /// Do not show tools to a model that is not to call them (`tool_choice: "none"`).
    #[serde(deserialize_with = "quantity::switch")]
    pub exclude_tools_when_tool_choice_none: bool,
    /// The parsers that these names stand for. A program that embeds the server adds its own.
    #[serde(skip)]
    pub parsers: Registry,
    /// Serve the operator's routes (`/pause`, `/sleep`, `/server_info`, …): with an operator's key,
    /// or, without keys, to this machine alone.
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_admin_routes: bool,
    /// Serve `/tokenizer_info`: the tokenizer's configuration, its chat template included.
    #[serde(deserialize_with = "quantity::switch")]
    pub enable_tokenizer_info_endpoint: bool,
    /// Most responses of `/v1/responses` to keep; 0: none, and no conversation goes on from another
    /// response.
    #[serde(deserialize_with = "quantity::count")]
    pub responses_store_max_count: usize,
    /// Most memory for them, bytes of JSON, and no more than a quarter of the memory for requests:
    /// those that nobody asked for longest go first.
    #[serde(deserialize_with = "quantity::bytes_usize")]
    pub responses_store_max_bytes: usize,
    /// How long they are kept, seconds.
    #[serde(rename = "responses_store_ttl", deserialize_with = "quantity::count_u64")]
    pub responses_store_ttl_secs: u64,
    /// Origins of web pages that may call this server from a browser; `*` for all of them.
    #[serde(deserialize_with = "quantity::texts")]
    pub allowed_origins: Vec<String>,
    /// Methods that they may use; `*` for all of them.
    #[serde(deserialize_with = "quantity::texts")]
    pub allowed_methods: Vec<String>,
    /// Headers that they may send; `*` for all of them.
    #[serde(deserialize_with = "quantity::texts")]
    pub allowed_headers: Vec<String>,
    /// Let them send cookies and client certificates.
    #[serde(deserialize_with = "quantity::switch")]
    pub allow_credentials: bool,
    /// What one request may hold: the section `[limits]` of the file.
    #[serde(skip)]
    pub limits: LimitSettings,
}

impl ServerSettings {
    /// Whether clients must bring a key. A file without keys lets no client in.
    #[must_use]
    pub fn needs_keys(&self) -> bool {
        let has_keys = !self.api_keys.is_empty() || !self.admin_api_keys.is_empty();
        has_keys || self.api_key_file.is_some() || self.admin_api_key_file.is_some()
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8000,
            uds: None,
            uds_mode: FileMode(0o600),
            ssl_certfile: None,
            ssl_keyfile: None,
            ssl_ca_certs: None,
            ssl_cert_reqs: CertReqs::None,
            enable_ssl_refresh: false,
            root_path: String::new(),
            api_keys: Vec::new(),
            api_key_file: None,
            admin_api_keys: Vec::new(),
            admin_api_key_file: None,
            open_metrics: true,
            share_prefix_cache_between_keys: false,
            max_connections: 16_384,
            h11_max_header_count: 256,
            h11_max_incomplete_event_size: 64 << 10,
            header_timeout_secs: 10,
            keep_alive_timeout_secs: 75,
            body_limit_bytes: 32 << 20,
            body_timeout_secs: 60,
            write_timeout_secs: 60,
            request_timeout_secs: None,
            shutdown_timeout_secs: 30,
            sse_keep_alive_interval_secs: 15,
            enable_request_id_headers: false,
            return_tokens_as_token_ids: false,
            enable_prompt_tokens_details: false,
            enable_force_include_usage: false,
            enable_per_request_metrics: false,
            trust_request_chat_template: false,
            tool_call_parser: ParserChoice::default(),
            reasoning_parser: ParserChoice::default(),
            enable_auto_tool_choice: true,
            exclude_tools_when_tool_choice_none: false,
            parsers: Registry::default(),
            enable_admin_routes: true,
            enable_tokenizer_info_endpoint: false,
            responses_store_max_count: 10_000,
            responses_store_max_bytes: 256 << 20,
            responses_store_ttl_secs: 86_400,
            allowed_origins: Vec::new(),
            allowed_methods: vec!["*".to_owned()],
            allowed_headers: vec!["*".to_owned()],
            allow_credentials: false,
            limits: LimitSettings::default(),
        }
    }
}
