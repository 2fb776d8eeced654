//! Runs the Responses API under OpenAI's own Python client, unmodified. `PLAYHOUSE_TEST_PYTHON`
//! names a Python that has it. Without one, the test prints a note and passes.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

use crate::{contrived, python, serving::Served};
use playhouse::{EngineConfig, server::ServerConfig};

fn engine() -> EngineConfig {
    EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_client_is_served() {
    let plain = Served::start(engine(), ServerConfig::default()).await;
    let api_keys = vec!["first".to_owned(), "second".to_owned()];
    let with_keys = contrived::reading(ServerConfig { api_keys, ..ServerConfig::default() });
    let reading = Served::of(contrived::engine(engine()).await, with_keys).await;
    python::run("clients/responses_client.py", &[&plain.url, &reading.url]).await;
    plain.stop().await;
    reading.stop().await;
}
