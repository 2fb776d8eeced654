//! Bearer tokens. Once there is a key everything is guarded but what tells of the server's state and
//! the tokenizer, which are open as in vLLM, and the files of the page, which asks for the key.

mod keys;

use axum::{
    Json,
    extract::{Request, State},
    http::{Method, StatusCode},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;

pub use self::keys::KeyFileError;
pub(super) use self::keys::{ApiKeys, Identity};
use super::{page, state::AppState};

/// Routes that need no key.
const OPEN: [&str; 10] = [
    "/health",
    "/ping",
    "/livez",
    "/readyz",
    "/version",
    "/load",
    "/metrics",
    "/tokenize",
    "/detokenize",
    "/openapi.json",
];

/// Whether `path` needs no key.
pub(super) fn is_open(path: &str) -> bool {
    OPEN.contains(&path) || page::is_file(path)
}

fn is_guarded(method: &Method, path: &str) -> bool {
    method != Method::OPTIONS && !is_open(path)
}

/// Middleware: 401 where a key is needed and none of ours is given. Who brings one is known to the
/// handlers by their [`Identity`].
pub(super) async fn authenticate(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let keys = &state.keys;
    let open = !keys.are_needed() || !is_guarded(request.method(), request.uri().path());
    let identity = keys.identify(request.headers());
    if let Some(identity) = identity {
        request.extensions_mut().insert(identity);
    }
    if open || identity.is_some() {
        return next.run(request).await;
    }
    (StatusCode::UNAUTHORIZED, Json(json!({"error": "Unauthorized"}))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_costs_nothing_is_open() {
        for guarded in ["/v1/models", "/reset_prefix_cache", "/chaos/kill", "/healthy", "/nothing"]
            .into_iter()
            .chain(["/house", "/house/events", "/pages"])
        {
            assert!(is_guarded(&Method::GET, guarded), "{guarded}");
        }
        assert!(!is_guarded(&Method::OPTIONS, "/v1/models"));
        for open in ["/health", "/metrics", "/tokenize", "/", "/page/main.js"] {
            assert!(!is_guarded(&Method::GET, open), "{open}");
        }
    }
}
