//! Bearer tokens. `/v1` and what else generates are guarded once there is a key, the operator's
//! routes guard themselves; health, metrics and the tokenizer stay open, as in vLLM.

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, Method, StatusCode, header::AUTHORIZATION},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::state::AppState;
use playhouse_actors::logic::admission::Tenant;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const GUARDED: [&str; 6] = ["/v1", "/v2", "/inference", "/cohere", "/invocations", "/chaos"];

/// Digests of the keys that open the server. Comparing digests takes the same time whatever the
/// key, its length included.
#[derive(Debug, Default)]
pub(super) struct ApiKeys(Vec<[u8; 32]>);

impl ApiKeys {
    pub(super) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key)).collect())
    }

    /// Whose key the headers bring.
    fn tenant(&self, headers: &HeaderMap) -> Option<Tenant> {
        let given = digest(given_key(headers)?);
        // Every key is compared to its end: no early exit tells which byte was wrong.
        let keys = self.0.iter().zip(0..);
        keys.fold(None, |known, (key, index)| {
            let this = equal(key, &given).then_some(Tenant(index));
            known.or(this)
        })
    }
}

/// The key that the headers bring: a Bearer token, or `x-api-key` as Anthropic's clients have it.
fn given_key(headers: &HeaderMap) -> Option<&str> {
    let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(key) = header(X_API_KEY) {
        return Some(key.trim());
    }
    let (scheme, token) = header(AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
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

/// Middleware: 401 where a key is needed and none of ours is given. Who brings one is known to the
/// handlers as a [`Tenant`].
pub(super) async fn authenticate(
    State(state): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let keys = &state.keys;
    let open = keys.0.is_empty() || !is_guarded(request.method(), request.uri().path());
    let tenant = keys.tenant(request.headers());
    if let Some(tenant) = tenant {
        request.extensions_mut().insert(tenant);
    }
    if open || tenant.is_some() {
        return next.run(request).await;
    }
    (StatusCode::UNAUTHORIZED, Json(json!({"error": "Unauthorized"}))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(header: &'static str) -> Option<Tenant> {
        let keys = ApiKeys::new(&["first".to_owned(), "second".to_owned()]);
        keys.tenant(&HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]))
    }

    #[test]
    fn any_of_the_keys_opens_and_tells_whose_it_is() {
        assert_eq!(tenant("Bearer first"), Some(Tenant(0)));
        assert_eq!(tenant("bearer second"), Some(Tenant(1)));
        for wrong in ["Bearer third", "Bearer ", "Bearer firs", "Basic first", "first"] {
            assert_eq!(tenant(wrong), None, "{wrong}");
        }
        let keys = ApiKeys::new(&["first".to_owned()]);
        assert_eq!(keys.tenant(&HeaderMap::new()), None);
        let with = |key: &'static str| {
            keys.tenant(&HeaderMap::from_iter([(X_API_KEY, key.parse().unwrap())]))
        };
        assert_eq!((with("first"), with("second")), (Some(Tenant(0)), None));
    }

    #[test]
    fn only_what_matters_is_guarded() {
        assert!(is_guarded(&Method::GET, "/v1/models"));
        assert!(is_guarded(&Method::POST, "/invocations"));
        assert!(!is_guarded(&Method::OPTIONS, "/v1/models"));
        for open in ["/health", "/metrics", "/tokenize"] {
            assert!(!is_guarded(&Method::GET, open), "{open}");
        }
    }
}
