//! How clients connect: sockets, certificates, HTTP versions, keys and limits.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod certificates;
mod client;
mod connections;
mod drain;
mod freeze;
mod http2;
mod keys;
mod limits;
mod long_texts;
mod pages;
#[path = "../serving/mod.rs"]
mod serving;
mod snapshots;
mod tls;

use std::time::Duration;

use playhouse::{EngineConfig, server::ServerConfig};
use serde_json::{Value, json};

use crate::serving::Served;

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the settings of an engine with the demo model.
fn engine() -> EngineConfig {
    EngineConfig {
        allow_chaos: true,
        served_model_name: vec!["demo".to_owned()],
        max_model_len: Some(4096),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    }
}

async fn serve(server: ServerConfig) -> Served {
    Served::start(engine(), server).await
}

/// Returns a streamed completion request whose last event says that it ended.
fn streamed() -> Value {
    json!({"prompt": "x", "max_tokens": 8, "ignore_eos": true, "stream": true})
}
