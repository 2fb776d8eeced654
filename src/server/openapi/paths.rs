//! All routes, a line each. A route in the router needs a line here.

use serde_json::Value;
use utoipa::openapi::{
    HttpMethod, Object, Required, Type,
    path::{Parameter, ParameterBuilder, ParameterIn},
};

use super::document::Document;
use crate::server::{
    admin::{AbortRequest, RpcRequest, WeightVersionRequest},
    audio::{Transcription, Translation},
    chat::{ChatCompletion, ChatRequest},
    completions::{Completion, CompletionRequest},
    generative_scoring::{ItemScores, ScoringRequest},
    lora::{LoadAdapterRequest, UnloadAdapterRequest},
    messages::{CountTokensRequest, Message, MessagesRequest, TokensCount},
    models::{ModelCard, ModelList},
    ollama::{
        Line, ModelTags, OllamaChatRequest, OllamaEmbedRequest, OllamaEmbedded, OllamaEmbedding,
        OllamaEmbeddingsRequest, OllamaGenerateRequest, OllamaPullRequest, OllamaShowRequest,
        Progress, RunningModels, Shown, Version,
    },
    pooling::{
        Classes, EmbedRequest, Embedded, Embeddings, PoolingRequest, Poolings, Ranking,
        RerankRequest, ScoreRequest, Scores,
    },
    responses::{InputTokens, ResponsesRequest},
    snapshots::EngineSnapshot,
    swap::SwapModelRequest,
    tokenize::{DetokenizeRequest, Detokenized, TokenizeRequest, Tokenized},
};

pub(super) fn describe(document: &mut Document) {
    let d = document;
    d.post_or_stream::<CompletionRequest, Completion>(
        "/v1/completions",
        "Text that continues a prompt",
    );
    d.post_or_stream::<ChatRequest, ChatCompletion>(
        "/v1/chat/completions",
        "The next message of a conversation",
    );
    d.post_any::<ChatCompletion>(
        "/v1/chat/completions/batch",
        "The next messages of several conversations",
    );
    d.post_any::<Value>("/invocations", "A chat, a completion or pooling, depending on its fields");
    d.post::<ScoringRequest, ItemScores>(
        "/generative_scoring",
        "How likely a token follows a query with each item",
    );
    d.post_or_stream::<ResponsesRequest, Value>(
        "/v1/responses",
        "The next turn of a conversation, as in OpenAI's Responses API",
    );
    d.one_of::<Value>(
        HttpMethod::Get,
        "/v1/streams/{id}",
        "The rest of a stream whose connection was cut, or a kept answer",
    );
    d.post::<ResponsesRequest, InputTokens>(
        "/v1/responses/input_tokens",
        "The length of such a turn's prompt",
    );
    d.one_of::<Value>(HttpMethod::Get, "/v1/responses/{id}", "A response that was stored");
    d.one_of::<Value>(HttpMethod::Delete, "/v1/responses/{id}", "Forget a response");
    d.one_of::<Value>(HttpMethod::Post, "/v1/responses/{id}/cancel", "Cancel a running response");
    d.one_of::<Value>(
        HttpMethod::Get,
        "/v1/responses/{id}/input_items",
        "The items that a response was given",
    );
    d.post_or_stream::<MessagesRequest, Message>(
        "/v1/messages",
        "The next message of a conversation, as in Anthropic's API",
    );
    d.post::<CountTokensRequest, TokensCount>(
        "/v1/messages/count_tokens",
        "The length of such a message's prompt",
    );
    d.get::<ModelList>("/v1/models", "The names of the model");
    d.one_of::<ModelCard>(HttpMethod::Get, "/v1/models/{id}", "One of the names");
    d.post::<TokenizeRequest, Tokenized>("/tokenize", "The tokens of a text or a conversation");
    d.post::<DetokenizeRequest, Detokenized>("/detokenize", "The text of tokens");
    d.probe(HttpMethod::Get, "/health", "Whether the engine works on accepted requests");
    d.probe(HttpMethod::Get, "/ping", "The same");
    d.probe(HttpMethod::Post, "/ping", "The same");
    d.probe(HttpMethod::Get, "/livez", "Whether the server may recover without a restart");
    d.probe(HttpMethod::Get, "/readyz", "Whether new requests are accepted");
    d.get::<Value>("/version", "The version of the server");
    d.get::<Value>("/load", "The number of open requests");
    d.get_text("/metrics", "text/plain", "Metrics for Prometheus");
    d.get::<Value>("/openapi.json", "This document");
    d.get_text("/docs", "text/html", "This document as a page");
    d.get_text("/docs/style.css", "text/css", "The page's style sheet");
    d.get::<EngineSnapshot>("/house", "A snapshot of the actors, the requests and the KV cache");
    d.get_events("/house/events", "Snapshots, one in each event's data");
    d.get::<Value>("/tokenizer_info", "The tokenizer's configuration, where it is enabled");
    d.post_any::<Transcription>("/v1/audio/transcriptions", "The words of a sound, from a form");
    d.post_any::<Translation>("/v1/audio/translations", "The words of a sound in English");
    d.get_web_socket("/v1/realtime", "The words of a sound that arrives while it is spoken");
    pooling(d);
    ollama(d);
    admin(d);
}

/// Adds Ollama's API.
fn ollama(d: &mut Document) {
    d.post_or_lines::<OllamaChatRequest, Line>(
        "/api/chat",
        "The next message of a conversation, as in Ollama's API",
    );
    d.post_or_lines::<OllamaGenerateRequest, Line>("/api/generate", "The answer to a prompt");
    d.post::<OllamaEmbedRequest, OllamaEmbedded>("/api/embed", "A vector for each text");
    d.post::<OllamaEmbeddingsRequest, OllamaEmbedding>("/api/embeddings", "The vector of a text");
    d.post::<OllamaShowRequest, Shown>("/api/show", "The facts about the model");
    d.get::<ModelTags>("/api/tags", "The names of the model and of its adapters");
    d.get::<RunningModels>("/api/ps", "The same: the model is always loaded");
    d.get::<Version>("/api/version", "The version of Ollama whose API this is");
    d.post_or_lines::<OllamaPullRequest, Progress>(
        "/api/pull",
        "Whether the server has a model; another one is refused",
    );
    for path in ["/api/push", "/api/create", "/api/copy"] {
        d.absent(HttpMethod::Post, path, "Refused: operators choose the model");
    }
    d.absent(HttpMethod::Delete, "/api/delete", "Refused: no model is removed");
}

/// Adds the routes of models that pool. A server has those of its model's task.
fn pooling(d: &mut Document) {
    d.post::<PoolingRequest, Embeddings>("/v1/embeddings", "A vector for each input");
    d.post::<EmbedRequest, Embedded>("/v2/embed", "The same, in the shape of Cohere's API");
    d.post::<PoolingRequest, Poolings>("/pooling", "The result of the model's task for each input");
    d.post::<PoolingRequest, Classes>("/classify", "The class of each input");
    for path in ["/score", "/v1/score"] {
        d.post::<ScoreRequest, Scores>(path, "How well the texts of pairs go together");
    }
    for path in ["/rerank", "/v1/rerank", "/v2/rerank"] {
        d.post::<RerankRequest, Ranking>(path, "Documents by their relevance to a query");
    }
}

/// Adds the operator's routes.
fn admin(d: &mut Document) {
    d.get::<Value>("/server_info", "The settings in force");
    d.post::<LoadAdapterRequest, Value>("/v1/load_lora_adapter", "Load an adapter");
    d.post::<UnloadAdapterRequest, Value>("/v1/unload_lora_adapter", "Unload an adapter");
    d.post::<AbortRequest, Value>("/abort_requests", "End requests");
    d.post::<RpcRequest, Value>("/collective_rpc", "Ask the worker whether it is well");
    d.get_with::<Value>("/get_world_size", "The number of workers", vec![flag("include_dp")]);
    d.get::<Value>("/weight_info", "The operator's name for the weights");
    d.post::<WeightVersionRequest, Value>("/update_weight_version", "Name the weights");
    d.command::<Value>("/release_kv_cache_memory", "Release the memory of a pause", vec![]);
    d.get::<Value>("/kv_event_sources", "The publishers of KV events: none");
    d.command::<Value>("/is_scaling_elastic_ep", "Whether workers come or go: never", vec![]);
    for path in [
        "/v1/chat/completions/render",
        "/v1/chat/completions/derender",
        "/v1/completions/render",
        "/v1/completions/derender",
        "/v1/messages/render",
        "/v1/responses/render",
        "/inference/v1/generate",
        "/inference/v1/abort_requests",
    ] {
        d.absent(HttpMethod::Post, path, "Refused: no part of the work is another server's");
    }
    d.post::<SwapModelRequest, Value>("/swap_model", "Serve another model from now on");
    let upgrade = "Serve by a new process of the program's file";
    d.command::<Value>("/upgrade", upgrade, vec![count("timeout")]);
    let mode = || text("mode");
    d.command::<Value>("/pause", "Pause requests", vec![mode(), flag("clear_cache")]);
    d.command::<Value>("/resume", "Resume requests", vec![]);
    d.get::<Value>("/is_paused", "Whether requests are paused");
    d.get::<Value>("/engines", "The engines of this server, where they are processes");
    let engine = || in_path("engine");
    d.command::<Value>(
        "/engines/{engine}/drain",
        "Let an engine have no new requests",
        vec![engine(), mode()],
    );
    d.command::<Value>(
        "/engines/{engine}/undrain",
        "Let an engine have requests again",
        vec![engine()],
    );
    d.command::<Value>("/sleep", "Pause, and release memory", vec![count("level"), mode()]);
    d.command::<Value>("/wake_up", "Take the memory again, and resume", vec![text("tags")]);
    d.get::<Value>("/is_sleeping", "Whether the engine is paused or sleeps");
    d.command::<Value>(
        "/reset_prefix_cache",
        "Forget cached prefixes",
        vec![flag("reset_running_requests"), flag("reset_external")],
    );
    d.command::<Value>("/reset_mm_cache", "Forget processed images and sounds", vec![]);
    d.command::<Value>("/reset_encoder_cache", "Forget encoded images and sounds", vec![]);
}

fn flag(name: &str) -> Parameter {
    parameter(name, Type::Boolean)
}

fn text(name: &str) -> Parameter {
    parameter(name, Type::String)
}

fn count(name: &str) -> Parameter {
    parameter(name, Type::Integer)
}

fn in_path(name: &str) -> Parameter {
    let number = Object::with_type(Type::Integer);
    let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
    parameter.required(Required::True).schema(Some(number)).build()
}

fn parameter(name: &str, kind: Type) -> Parameter {
    let schema = Object::with_type(kind);
    ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query).schema(Some(schema)).build()
}
