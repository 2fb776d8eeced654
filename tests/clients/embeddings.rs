//! Runs client libraries for vectors and rankings, unmodified, against a server that pools.
//! `PLAYHOUSE_TEST_PYTHON` names a Python that has them. Without one, a test prints a note and
//! passes.

use std::path::Path;

use playhouse::{
    EngineConfig,
    config::{Device, Runner},
    server::ServerConfig,
};

use crate::{python, serving::Served};

async fn run(client: &str) {
    run_with(client, "examples/demo-model").await;
}

async fn run_with(client: &str, model: &str) {
    let engine = EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        device: Device::Cpu,
        runner: Runner::Pooling,
        ..EngineConfig::new(Path::new(env!("CARGO_MANIFEST_DIR")).join(model))
    };
    let served = Served::start(engine, ServerConfig::default()).await;
    python::run("clients/embedding_clients.py", &[client, &served.url]).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openais_client_embeds() {
    run("openai").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coheres_client_embeds_and_ranks() {
    run("cohere").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn langchain_embeds() {
    run("langchain").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retrieval_task_finds_its_documents() {
    run_with("retrieval", "examples/demo-model/embedder").await;
}
