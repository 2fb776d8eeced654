//! Bearer tokens. Once there is a key, every route needs one but those in a list of open ones: what
//! tells whether the server lives, and what is the same for every server of this version.

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

/// Routes that need no key, ever. The document has nothing of this server but its `root_path`.
const OPEN: [&str; 6] = ["/health", "/ping", "/livez", "/readyz", "/version", "/openapi.json"];
/// Open, unless the operator says otherwise.
const METRICS: &str = "/metrics";

/// Whether `path` needs no key. The files of the page are open, what it shows is not.
pub(in crate::server) fn is_open(path: &str, open_metrics: bool) -> bool {
    OPEN.contains(&path) || (path == METRICS && open_metrics) || page::is_file(path)
}

fn is_guarded(method: &Method, path: &str, open_metrics: bool) -> bool {
    // Browsers ask what they may send before they send it, and bring no key.
    method != Method::OPTIONS && !is_open(path, open_metrics)
}

/// Middleware: 401 where a key is needed and none of ours is given. Handlers know whose
/// key it was by the [`Identity`].
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
    fn only_what_tells_nothing_is_open() {
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
