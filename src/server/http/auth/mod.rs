//! Bearer tokens. If there are keys, every route needs one, except the open routes. An open route
//! reports whether the server is alive, or its answer is the same on every server of this version.

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
pub(in crate::server) use self::keys::{ApiKeys, Identity, Role};
use crate::server::{page, state::AppState};

/// Routes that never need a key. The only fact about this server in the API's document is its
/// `root_path`.
const OPEN: [&str; 8] = [
    "/health",
    "/ping",
    "/livez",
    "/readyz",
    "/version",
    "/openapi.json",
    "/docs",
    "/docs/style.css",
];
/// The route of the metrics. It is open unless the operator's settings close it.
const METRICS: &str = "/metrics";

/// Returns whether `path` needs no key. The page's files are open, the data on the page is not.
pub(in crate::server) fn is_open(path: &str, open_metrics: bool) -> bool {
    OPEN.contains(&path) || (path == METRICS && open_metrics) || page::is_file(path)
}

fn is_guarded(method: &Method, path: &str, open_metrics: bool) -> bool {
    // Browsers ask for permissions before they send a request, and this question carries no key.
    method != Method::OPTIONS && !is_open(path, open_metrics)
}

/// Answers 401 if a key is needed and the request has no known one. It is a middleware. Handlers
/// find the tenant in the [`Identity`].
pub(in crate::server) async fn authenticate(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let keys = &state.keys;
    let (method, path) = (request.method(), request.uri().path());
    let open = !keys.are_needed() || !is_guarded(method, path, state.config.open_metrics);
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
    fn only_routes_without_private_data_are_open() {
        for guarded in ["/v1/models", "/reset_prefix_cache", "/chaos/kill", "/healthy", "/nothing"]
            .into_iter()
            .chain(["/house", "/house/events", "/pages", "/tokenize", "/load", "/health/"])
        {
            assert!(is_guarded(&Method::GET, guarded, true), "{guarded}");
        }
        assert!(!is_guarded(&Method::OPTIONS, "/v1/models", true));
        for open in ["/health", "/openapi.json", "/", "/page/main.js"] {
            assert!(!is_guarded(&Method::GET, open, false), "{open}");
        }
        assert!(!is_guarded(&Method::GET, "/metrics", true));
        assert!(is_guarded(&Method::GET, "/metrics", false));
    }
}
