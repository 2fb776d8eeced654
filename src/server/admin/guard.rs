//! Access to the operators' routes.

use axum::{
    extract::{Request, State},
    http::{
        header::{HOST, ORIGIN},
        uri::Authority,
    },
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::server::{
    ServerConfig,
    http::{
        auth::{Identity, Role},
        error::ApiError,
    },
    state::AppState,
};

/// Middleware, inside the one that identifies keys: lets only operators in.
pub(super) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    answer(state, &[Role::Operator], request, next).await
}

/// Lets operators in, and clients for their own requests.
pub(super) async fn guard_own(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    answer(state, &[Role::Operator, Role::Client], request, next).await
}

async fn answer(state: AppState, roles: &[Role], request: Request, next: Next) -> Response {
    let role = request.extensions().get::<Identity>().map(|identity| identity.role);
    let is_from_a_page = request.headers().contains_key(ORIGIN);
    let checked = match state.keys.are_needed() {
        true => check_key(roles, role),
        false => check_origin(&state.config, is_from_a_page),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// Middleware of the chaos routes: without keys, they are for this machine and for the server's own
/// page.
pub(in crate::server) async fn guard_chaos(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    let role = request.extensions().get::<Identity>().map(|identity| identity.role);
    let checked = match state.keys.are_needed() {
        true => check_key(&[Role::Operator], role),
        false => check_page(&request),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

/// Checks that a page which sends the request is this server's. A page of another site could name a
/// host that leads to this machine, so the host must be one of this machine's own names.
fn check_page(request: &Request) -> Result<(), ApiError> {
    let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = text(ORIGIN) else { return Ok(()) };
    let host = text(HOST).or_else(|| request.uri().authority().map(Authority::as_str));
    let own = host.filter(|host| is_this_machine(host));
    let of_origin = origin.split_once("://").map(|(_, host)| host);
    match own.is_some() && own == of_origin {
        true => Ok(()),
        false => Err(ApiError::forbidden("faults on purpose are not for pages of other sites")),
    }
}

/// Returns whether `authority`, a host with or without a port, names this machine to itself.
fn is_this_machine(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().to_owned();
    ServerConfig { host, ..ServerConfig::default() }.is_local()
}

/// Checks the key's role, where there are keys.
fn check_key(roles: &[Role], role: Option<Role>) -> Result<(), ApiError> {
    match role {
        Some(role) if roles.contains(&role) => Ok(()),
        Some(_) => Err(ApiError::forbidden(
            "this route is for operators: it needs a key of the settings admin_api_key and \
             admin_api_key_file",
        )),
        None => Err(ApiError::unauthorized()),
    }
}

/// Checks the origin, where there are no keys.
fn check_origin(config: &ServerConfig, is_from_a_page: bool) -> Result<(), ApiError> {
    if !config.is_local() {
        return Err(ApiError::forbidden(
            "this route is for operators: on a server that other machines reach it needs a key of \
             the settings admin_api_key and admin_api_key_file",
        ));
    }
    // A browser on this machine marks a request that a page sends, wherever the page is from.
    if is_from_a_page && config.allowed_origins.is_empty() {
        return Err(ApiError::forbidden("administrative routes are not for web pages"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(checked: Result<(), ApiError>) -> u16 {
        checked.map_or_else(|error| error.status.as_u16(), |()| 200)
    }

    fn from(host: &str, is_from_a_page: bool) -> u16 {
        let config = ServerConfig { host: host.to_owned(), ..ServerConfig::default() };
        status(check_origin(&config, is_from_a_page))
    }

    #[test]
    fn without_keys_only_this_machine_is_let_in() {
        for host in ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost"] {
            assert_eq!(from(host, false), 200, "{host}");
            assert_eq!(from(host, true), 403, "{host}, from a page");
        }
        for host in ["0.0.0.0", "::", "192.168.1.4", "playhouse.example"] {
            assert_eq!(from(host, false), 403, "{host}");
        }
    }

    #[test]
    fn a_unix_socket_is_of_this_machine() {
        let uds = Some("/run/playhouse.sock".into());
        let config = ServerConfig { host: "0.0.0.0".to_owned(), uds, ..ServerConfig::default() };
        assert!(check_origin(&config, false).is_ok());
    }

    #[test]
    fn faults_are_for_the_servers_own_page() {
        let sent = |origin: Option<&str>, host: &str| {
            let request = Request::builder().header(HOST, host);
            let request = match origin {
                Some(origin) => request.header(ORIGIN, origin),
                None => request,
            };
            status(check_page(&request.body(axum::body::Body::empty()).unwrap()))
        };
        assert_eq!(sent(None, "127.0.0.1:8000"), 200);
        for host in ["127.0.0.1:8000", "localhost:8000", "[::1]:8000"] {
            assert_eq!(sent(Some(&format!("http://{host}")), host), 200, "{host}");
        }
        // A page of another site, one whose name leads here, and a page without a site.
        assert_eq!(sent(Some("https://evil.example"), "127.0.0.1:8000"), 403);
        assert_eq!(sent(Some("http://evil.example:8000"), "evil.example:8000"), 403);
        assert_eq!(sent(Some("null"), "127.0.0.1:8000"), 403);
    }

    #[test]
    fn where_there_are_keys_an_operators_is_needed() {
        assert_eq!(status(check_key(&[Role::Operator], None)), 401);
        assert_eq!(status(check_key(&[Role::Operator], Some(Role::Client))), 403);
        assert_eq!(status(check_key(&[Role::Operator], Some(Role::Operator))), 200);
        assert_eq!(status(check_key(&[Role::Operator, Role::Client], Some(Role::Client))), 200);
    }
}
