//! Bearer tokens. `/v1` and the routes that change the engine are guarded once there is a key;
//! health, metrics and the tokenizer stay open, as in vLLM.

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header::AUTHORIZATION},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::state::AppState;

const GUARDED: [&str; 5] = ["/v1", "/v2", "/inference", "/cohere", "/reset_prefix_cache"];

/// Digests of the keys that open the server. Comparing digests takes the same time whatever the
/// key, its length included.
#[derive(Debug, Default)]
pub(super) struct ApiKeys(Vec<[u8; 32]>);

impl ApiKeys {
    pub(super) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key)).collect())
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (scheme, token) = header.and_then(|value| value.split_once(' ')).unwrap_or_default();
        let given = digest(token.trim());
        // Every key is compared to its end: no early exit tells which byte was wrong.
        let known = self.0.iter().fold(false, |known, key| known | equal(key, &given));
        known && scheme.eq_ignore_ascii_case("bearer")
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let difference = a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

fn is_guarded(method: &Method, path: &str) -> bool {
    method != Method::OPTIONS && GUARDED.iter().any(|prefix| path.starts_with(prefix))
}

/// Middleware: 401 where a key is needed and none of ours is given.
pub(super) async fn authenticate(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    let keys = &state.keys;
    let open = keys.0.is_empty() || !is_guarded(request.method(), request.uri().path());
    if open || keys.admits(request.headers()) {
        return next.run(request).await;
    }
    (StatusCode::UNAUTHORIZED, Json(json!({"error": "Unauthorized"}))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(header: &'static str) -> bool {
        let keys = ApiKeys::new(&["first".to_owned(), "second".to_owned()]);
        keys.admits(&HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]))
    }

    #[test]
    fn any_of_the_keys_opens() {
        assert!(admits("Bearer first"));
        assert!(admits("bearer second"));
        for wrong in ["Bearer third", "Bearer ", "Bearer firs", "Basic first", "first"] {
            assert!(!admits(wrong), "{wrong}");
        }
        assert!(!ApiKeys::new(&["first".to_owned()]).admits(&HeaderMap::new()));
    }

    #[test]
    fn only_what_matters_is_guarded() {
        assert!(is_guarded(&Method::GET, "/v1/models"));
        assert!(is_guarded(&Method::POST, "/reset_prefix_cache"));
        assert!(!is_guarded(&Method::OPTIONS, "/v1/models"));
        for open in ["/health", "/metrics", "/tokenize"] {
            assert!(!is_guarded(&Method::GET, open), "{open}");
        }
    }
}
