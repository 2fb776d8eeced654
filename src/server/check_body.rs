//! Checks a body as a route reads it, without a server: everything that needs no model.

use super::{
    admin::AbortRequest,
    chat::{BatchRequest, ChatRequest},
    completions::CompletionRequest,
    generative_scoring::ScoringRequest,
    http::extract::{JsonRequest, decode},
    invocations::Invocation,
    messages::{CountTokensRequest, MessagesRequest},
    ollama::{
        OllamaChatRequest, OllamaEmbedRequest, OllamaEmbeddingsRequest, OllamaGenerateRequest,
        OllamaPullRequest, OllamaShowRequest,
    },
    pooling::{EmbedRequest, PoolingRequest, RerankRequest, ScoreRequest},
    responses::ResponsesRequest,
    tokenize::{DetokenizeRequest, TokenizeRequest},
};
use crate::config::LimitSettings;

/// Why a body is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// No route at this path takes a body.
    #[error("no route takes a body at {0}")]
    NoRoute(String),
    /// The route rejects it.
    #[error("{message}")]
    Refused {
        /// HTTP's status code.
        status: u16,
        /// The error text that a client would get.
        message: String,
    },
}

/// The paths of the routes that take a body.
pub const ROUTES_WITH_BODY: [&str; 27] = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/chat/completions/batch",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/invocations",
    "/tokenize",
    "/detokenize",
    "/abort_requests",
    "/v1/embeddings",
    "/v2/embed",
    "/pooling",
    "/classify",
    "/score",
    "/v1/score",
    "/rerank",
    "/v1/rerank",
    "/v2/rerank",
    "/generative_scoring",
    "/api/chat",
    "/api/generate",
    "/api/embed",
    "/api/embeddings",
    "/api/show",
    "/api/pull",
];

/// Reads a body as the route at `path` does: its text, its fields' types, and its sizes. Facts that
/// depend on the model are not checked.
///
/// # Errors
/// [`BodyError`] with what the route would answer.
pub fn check_body(path: &str, body: &[u8], limits: &LimitSettings) -> Result<(), BodyError> {
    match path {
        "/v1/completions" => read::<CompletionRequest>(path, body, limits),
        "/v1/chat/completions" => read::<ChatRequest>(path, body, limits),
        "/v1/chat/completions/batch" => read::<BatchRequest>(path, body, limits),
        "/v1/responses" | "/v1/responses/input_tokens" => {
            read::<ResponsesRequest>(path, body, limits)
        }
        "/v1/messages" => read::<MessagesRequest>(path, body, limits),
        "/v1/messages/count_tokens" => read::<CountTokensRequest>(path, body, limits),
        "/invocations" => read::<Invocation>(path, body, limits),
        "/tokenize" => read::<TokenizeRequest>(path, body, limits),
        "/detokenize" => read::<DetokenizeRequest>(path, body, limits),
        "/abort_requests" => read::<AbortRequest>(path, body, limits),
        "/v1/embeddings" => read::<PoolingRequest>(path, body, limits),
        "/v2/embed" => read::<EmbedRequest>(path, body, limits),
        "/pooling" => read::<PoolingRequest>(path, body, limits),
        "/classify" => read::<PoolingRequest>(path, body, limits),
        "/score" | "/v1/score" => read::<ScoreRequest>(path, body, limits),
        "/rerank" | "/v1/rerank" | "/v2/rerank" => read::<RerankRequest>(path, body, limits),
        "/generative_scoring" => read::<ScoringRequest>(path, body, limits),
        "/api/chat" => read::<OllamaChatRequest>(path, body, limits),
        "/api/generate" => read::<OllamaGenerateRequest>(path, body, limits),
        "/api/embed" => read::<OllamaEmbedRequest>(path, body, limits),
        "/api/embeddings" => read::<OllamaEmbeddingsRequest>(path, body, limits),
        "/api/show" => read::<OllamaShowRequest>(path, body, limits),
        "/api/pull" => read::<OllamaPullRequest>(path, body, limits),
        _ => Err(BodyError::NoRoute(path.to_owned())),
    }
}

fn read<T: JsonRequest>(path: &str, body: &[u8], limits: &LimitSettings) -> Result<(), BodyError> {
    let read = decode::<T>(body, path, limits).map(drop);
    read.map_err(|error| BodyError::Refused {
        status: error.status.as_u16(),
        message: error.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_reads_its_body_and_says_why_it_does_not() {
        let limits = LimitSettings::default();
        for path in ROUTES_WITH_BODY {
            for (body, status) in [("[1", 400), ("\u{fe}", 400), ("7", 400)] {
                let refused = check_body(path, body.as_bytes(), &limits).unwrap_err();
                let BodyError::Refused { status: told, message } = refused else {
                    panic!("{path}: {refused}")
                };
                assert!(told == status && !message.is_empty(), "{path}: {told} {message}");
            }
        }
        let chat = br#"{"messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}"#;
        assert_eq!(check_body("/v1/chat/completions", chat, &limits), Ok(()));
        let none = LimitSettings { max_messages: 0, ..limits };
        assert!(check_body("/v1/chat/completions", chat, &none).is_err());
    }

    /// pydantic's forms, with which vLLM reads every boolean.
    #[test]
    fn every_boolean_may_be_a_word_or_a_number() {
        type Body = fn(&str) -> String;
        let tools = |value: &str| {
            format!(
                r#"{{"max_tokens": 1, "messages": [{{"role": "user", "content": "a"}}],
                "stream": {value}, "tool_choice": {{"disable_parallel_tool_use": {value}}},
                "tools": [{{"name": "a", "input_schema": {{}}, "strict": {value}}}]}}"#
            )
        };
        let constraint = |value: &str| {
            format!(
                r#"{{"prompt": "a", "structured_outputs": {{"json_object": {value},
                "disable_any_whitespace": {value}, "disable_additional_properties": {value}}}}}"#
            )
        };
        let scores = |value: &str| {
            format!(
                r#"{{"query": "a", "items": ["b"], "label_token_ids": [1, 2],
                "apply_softmax": {value}, "item_first": {value}, "add_special_tokens": {value}}}"#
            )
        };
        let ranks = |value: &str| {
            format!(r#"{{"query": "a", "documents": ["b"], "return_documents": {value}}}"#)
        };
        let bodies: [(&str, Body); 4] = [
            ("/v1/messages", tools),
            ("/v1/completions", constraint),
            ("/generative_scoring", scores),
            ("/rerank", ranks),
        ];
        for (path, body) in bodies {
            let read = |value| check_body(path, body(value).as_bytes(), &LimitSettings::default());
            for value in ["true", "false", "\"yes\"", "\"False\"", "1", "0.0", "null"] {
                assert_eq!(read(value), Ok(()), "{path}: {value}");
            }
            assert!(read("\"maybe\"").is_err() && read("2").is_err(), "{path}");
        }
    }

    #[test]
    fn a_path_without_a_body_has_no_route() {
        let nowhere = check_body("/health", b"{}", &LimitSettings::default());
        assert_eq!(nowhere, Err(BodyError::NoRoute("/health".to_owned())));
    }
}
