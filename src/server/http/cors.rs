//! Permissions for web pages from other origins.

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{HOST, ORIGIN},
};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer};

use crate::config::InvalidSetting;
use crate::server::ServerConfig;

/// Returns the layer that sends permissions to browsers. `None` unless the operator names origins.
pub(in crate::server) fn layer(config: &ServerConfig) -> Result<Option<CorsLayer>, InvalidSetting> {
    if config.allowed_origins.is_empty() {
        return Ok(None);
    }
    let layer = CorsLayer::new()
        .allow_origin(match is_any(&config.allowed_origins) {
            // With credentials, browsers do not accept `*` as an answer.
            true if config.allow_credentials => AllowOrigin::mirror_request(),
            true => AllowOrigin::any(),
            false => AllowOrigin::list(parse("allowed_origins", &config.allowed_origins, origin)?),
        })
        .allow_methods(match is_any(&config.allowed_methods) {
            true => AllowMethods::mirror_request(),
            false => AllowMethods::list(parse("allowed_methods", &config.allowed_methods, method)?),
        })
        .allow_headers(match is_any(&config.allowed_headers) {
            // For browsers, `*` does not include Authorization.
            true => AllowHeaders::mirror_request(),
            false => AllowHeaders::list(parse("allowed_headers", &config.allowed_headers, header)?),
        })
        .allow_credentials(config.allow_credentials);
    Ok(Some(layer))
}

/// Returns whether the page that opens a WebSocket may do so: browsers ask for no permission then.
/// A page of this server may, and one of an origin that the operator names. A client that is no
/// browser names no origin.
pub(in crate::server) fn admits(config: &ServerConfig, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if !headers.contains_key(ORIGIN) {
        return true;
    }
    let Some(origin) = text(ORIGIN) else { return false };
    let own = origin.split_once("://").map(|(_, host)| host);
    let is_own = own.is_some() && own == text(HOST);
    let origins = &config.allowed_origins;
    is_own || is_any(origins) || origins.iter().any(|allowed| allowed == origin)
}

fn is_any(words: &[String]) -> bool {
    words.iter().any(|word| word == "*")
}

fn parse<T>(
    name: &'static str,
    words: &[String],
    read: fn(&str) -> Result<T, &'static str>,
) -> Result<Vec<T>, InvalidSetting> {
    let read = |word: &String| {
        read(word).map_err(|accepted| {
            let accepted = format!("a list of {accepted}, or \"*\"");
            InvalidSetting { name, value: format!("{word:?}"), accepted }
        })
    };
    words.iter().map(read).collect()
}

fn origin(word: &str) -> Result<HeaderValue, &'static str> {
    let has_host = word.split_once("://").is_some_and(|(_, host)| !host.is_empty());
    let value = HeaderValue::from_str(word).ok().filter(|_| has_host && !word.ends_with('/'));
    value.ok_or("origins like \"https://example.org\"")
}

fn method(word: &str) -> Result<Method, &'static str> {
    Method::from_bytes(word.to_ascii_uppercase().as_bytes()).map_err(|_| "methods like \"POST\"")
}

fn header(word: &str) -> Result<HeaderName, &'static str> {
    HeaderName::from_bytes(word.as_bytes()).map_err(|_| "header names like \"Content-Type\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_socket_is_for_pages_of_this_server_and_of_named_origins() {
        let asked = |origin: Option<&str>, allowed: &[&str]| {
            let mut headers = HeaderMap::from_iter([(HOST, "a.example:8000".parse().unwrap())]);
            headers.extend(origin.map(|origin| (ORIGIN, origin.parse().unwrap())));
            let allowed_origins = allowed.iter().map(|&origin| origin.to_owned()).collect();
            admits(&ServerConfig { allowed_origins, ..ServerConfig::default() }, &headers)
        };
        assert!(asked(None, &[]));
        assert!(asked(Some("http://a.example:8000"), &[]));
        assert!(!asked(Some("http://a.example"), &[]));
        assert!(!asked(Some("null"), &[]));
        assert!(!asked(Some("https://b.example"), &[]));
        assert!(!asked(Some("https://b.example"), &["https://c.example"]));
        assert!(asked(Some("https://b.example"), &["https://c.example", "https://b.example"]));
        assert!(asked(Some("https://b.example"), &["*"]));
    }

    #[test]
    fn an_invalid_origin_method_or_header_is_rejected_by_name() {
        let open = || ServerConfig {
            allowed_origins: vec!["https://a.example".to_owned()],
            ..Default::default()
        };
        let bad = |word: &str| vec![word.to_owned()];
        let cases = [
            ("allowed_origins", ServerConfig { allowed_origins: bad("a.example"), ..open() }),
            ("allowed_origins", ServerConfig { allowed_origins: bad("https://a/"), ..open() }),
            ("allowed_methods", ServerConfig { allowed_methods: bad("GET IT"), ..open() }),
            ("allowed_headers", ServerConfig { allowed_headers: bad("a b"), ..open() }),
        ];
        for (name, config) in cases {
            assert_eq!(layer(&config).unwrap_err().name, name);
        }
        assert!(layer(&ServerConfig::default()).unwrap().is_none());
        let credentials = ServerConfig { allow_credentials: true, ..open() };
        assert!(layer(&credentials).unwrap().is_some());
    }
}
