//! The answer to a path that no route has. Some paths exist only on servers of another task, and
//! then the answer says how to start one.

use axum::http::Method;

use super::http::error::ApiError;

/// Routes of models that generate text.
const GENERATING: [&str; 4] =
    ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"];
/// Routes of models that pool.
const POOLING: [&str; 8] = [
    "/v1/embeddings",
    "/v2/embed",
    "/pooling",
    "/score",
    "/v1/score",
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
];
const POOL: &str = "this server generates text; one started with --runner pooling makes vectors";
const GENERATE: &str = "this server pools; one started with --runner generate writes text, if the \
                        model can";

/// Returns the error of a path without a route on a server whose model generates, or pools alone.
pub(super) fn not_found(method: &Method, path: &str, generates: bool) -> ApiError {
    let mut error = ApiError::not_found(method, path);
    let hint = match generates {
        true => POOLING.contains(&path).then_some(POOL),
        false => GENERATING.contains(&path).then_some(GENERATE),
    };
    if let Some(hint) = hint {
        error.message = format!("{}; {hint}", error.message);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_of_another_task_says_how_to_get_it() {
        let told = |path, generates| not_found(&Method::POST, path, generates).message;
        assert!(told("/v1/embeddings", true).ends_with(POOL));
        assert!(told("/v1/chat/completions", false).ends_with(GENERATE));
        // A model of speech generates, and has no chat.
        for (path, generates) in [("/v1/chat/completions", true), ("/nothing", false)] {
            assert!(told(path, generates).ends_with("lists all routes"), "{path}");
        }
    }
}
