//! Runs Anthropic's own Python client, unmodified, against the server. `PLAYHOUSE_TEST_PYTHON`
//! names a Python that has it. Without one, the test prints a note and passes.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

use crate::{contrived, python, serving::Served};
use playhouse::{EngineConfig, config::ParserChoice, server::ServerConfig};

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
    // The demo model's template would turn on a reasoning parser by default.
    let unread = ServerConfig { reasoning_parser: ParserChoice::None, ..ServerConfig::default() };
    let plain = Served::start(engine(), unread).await;
    let one_at_a_time = EngineConfig { quota_max_open_requests: Some(1), ..engine() };
    let api_keys = vec!["secret".to_owned()];
    let with_keys = contrived::reading(ServerConfig { api_keys, ..ServerConfig::default() });
    let reading = Served::of(contrived::engine(one_at_a_time).await, with_keys).await;
    python::run("clients/anthropic_client.py", &[&plain.url, &reading.url]).await;
    plain.stop().await;
    reading.stop().await;
}
