//! Who may use the operator's routes.

use std::net::IpAddr;

use crate::server::{ServerConfig, auth::Identity, error::ApiError, state::AppState};
use axum::{
    extract::{Request, State},
    http::header::ORIGIN,
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Middleware, inside of the one that knows keys.
pub(super) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let has_key = request.extensions().get::<Identity>().is_some();
    let is_from_a_page = request.headers().contains_key(ORIGIN);
    match check(&state.config, state.keys.are_needed(), has_key, is_from_a_page) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

fn check(
    config: &ServerConfig,
    needs_key: bool,
    has_key: bool,
    is_from_a_page: bool,
) -> Result<(), ApiError> {
    if has_key {
        return Ok(());
    }
    if needs_key {
        return Err(ApiError::unauthorized());
    }
    if config.uds.is_none() && !is_local(&config.host) {
        let message = "administrative routes need an API key on a server that other machines reach";
        return Err(ApiError::forbidden(message));
    }
    // A browser on this machine says so when a page sends a request, wherever the page is from.
    if is_from_a_page && config.allowed_origins.is_empty() {
        return Err(ApiError::forbidden("administrative routes are not for web pages"));
    }
    Ok(())
}

/// Whether only this machine reaches what listens on `host`.
fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(host: &str, needs_key: bool, has_key: bool, is_from_a_page: bool) -> u16 {
        let config = ServerConfig { host: host.to_owned(), ..ServerConfig::default() };
        let checked = check(&config, needs_key, has_key, is_from_a_page);
        checked.map_or_else(|error| error.status.as_u16(), |()| 200)
    }

    #[test]
    fn without_keys_only_this_machine_is_let_in() {
        for host in ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost"] {
            assert_eq!(status(host, false, false, false), 200, "{host}");
            assert_eq!(status(host, false, false, true), 403, "{host}, from a page");
        }
        for host in ["0.0.0.0", "::", "192.168.1.4", "playhouse.example"] {
            assert_eq!(status(host, false, false, false), 403, "{host}");
        }
    }

    #[test]
    fn a_unix_socket_is_of_this_machine() {
        let uds = Some("/run/playhouse.sock".into());
        let config = ServerConfig { host: "0.0.0.0".to_owned(), uds, ..ServerConfig::default() };
        assert!(check(&config, false, false, false).is_ok());
    }

    #[test]
    fn where_there_are_keys_one_is_needed() {
        for host in ["127.0.0.1", "0.0.0.0"] {
            assert_eq!(status(host, true, false, false), 401);
            assert_eq!(status(host, true, true, true), 200);
        }
    }
}
