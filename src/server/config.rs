//! What an operator can set about the HTTP surface.

use serde::{Deserialize, Serialize};

/// The `[server]` table of the configuration file. Every field has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address to listen on. The default is reachable from this machine alone.
    pub host: String,
    /// Port to listen on; 0 takes any that is free.
    pub port: u16,
    /// Bearer tokens that open `/v1` and the administrative routes; none: everything is open.
    pub api_keys: Vec<String>,
    /// Largest request body, bytes. More is answered with 413.
    pub body_limit_bytes: usize,
    /// Longest a client may take to send its body, seconds.
    pub body_timeout_secs: u64,
    /// How long streams in flight may go on once the server is told to stop, seconds.
    pub shutdown_timeout_secs: u64,
    /// Answer every request with an `X-Request-Id`: the client's own, or a new one.
    pub enable_request_id_headers: bool,
    /// Name tokens as `token_id:N` in log-probabilities unless a request says otherwise.
    pub return_tokens_as_token_ids: bool,
    /// Tell in `usage` how many prompt tokens came from the prefix cache.
    pub enable_prompt_tokens_details: bool,
    /// Send usage with every chunk of every stream, asked for or not.
    pub enable_force_include_usage: bool,
    /// Let requests bring a chat template of their own.
    pub trust_request_chat_template: bool,
    /// Origins of web pages that may call this server from a browser; `*` for all of them.
    pub allowed_origins: Vec<String>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8000,
            api_keys: Vec::new(),
            body_limit_bytes: 32 << 20,
            body_timeout_secs: 60,
            shutdown_timeout_secs: 30,
            enable_request_id_headers: false,
            return_tokens_as_token_ids: false,
            enable_prompt_tokens_details: false,
            enable_force_include_usage: false,
            trust_request_chat_template: false,
            allowed_origins: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_overrides_defaults_and_unknown_keys_are_refused() {
        let config: ServerConfig = toml::from_str("port = 9000").unwrap();
        assert_eq!(config, ServerConfig { port: 9000, ..Default::default() });
        let error = toml::from_str::<ServerConfig>("prot = 9000").unwrap_err().to_string();
        assert!(error.contains("unknown field `prot`"), "{error}");
    }
}
