//! Features of `/v1/completions` and the routes beside it, except sampling.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

mod admin;
mod batch;
mod beam;
mod fields;
mod scoring;

use crate::serving::Served;
use playhouse::{EngineConfig, server::ServerConfig};
use reqwest::{Client, Method};
use serde_json::Value;

fn engine() -> EngineConfig {
    EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        max_model_len: Some(512),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    }
}

async fn serve(config: ServerConfig) -> Served {
    Served::start(engine(), config).await
}

/// Returns the status and the body. The body is null unless it is JSON.
async fn send(served: &Served, method: Method, path: &str, body: Value) -> (u16, Value) {
    let request = Client::new().request(method, format!("{}{path}", served.url)).json(&body);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

async fn post(served: &Served, path: &str, body: Value) -> (u16, Value) {
    send(served, Method::POST, path, body).await
}

async fn get(served: &Served, path: &str) -> (u16, Value) {
    send(served, Method::GET, path, Value::Null).await
}

/// Returns the answer to a request that must succeed.
async fn ask(served: &Served, path: &str, body: Value) -> Value {
    let (status, answer) = post(served, path, body).await;
    assert_eq!(status, 200, "{answer}");
    answer
}
