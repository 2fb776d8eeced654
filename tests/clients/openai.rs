//! Runs OpenAI's own Python client, unmodified, against the server. `PLAYHOUSE_TEST_PYTHON` names a
//! Python that has it. Without one, the test prints a note and passes.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

use crate::{python, serving::Served};
use playhouse::{EngineConfig, server::ServerConfig};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_client_streams() {
    let engine = EngineConfig {
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    let served = Served::start(engine, ServerConfig::default()).await;
    python::run("clients/openai_client.py", &[&served.url]).await;
    served.stop().await;
}
