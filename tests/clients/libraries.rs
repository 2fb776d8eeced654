//! Runs heavier client libraries, unmodified, against servers with a key: one that generates and
//! one that pools. `.ci/long clients` installs them. `PLAYHOUSE_TEST_PYTHON` names a Python that
//! has them, and Node finds its own beside the scripts.

use std::process::Command;

use playhouse::{EngineConfig, config::Runner, server::ServerConfig};

use crate::{python, serving::Served};

const KEY: &str = "secret";

async fn serve(runner: Runner) -> Served {
    let engine = EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        runner,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    let server = ServerConfig {
        api_keys: vec![KEY.to_owned()],
        // lm-eval reads the ends of texts there.
        enable_tokenizer_info_endpoint: true,
        ..ServerConfig::default()
    };
    Served::start(engine, server).await
}

/// Runs a script of `clients/libraries`. A library that is not installed fails the test.
async fn run(script: &str) {
    let (generating, pooling) = (serve(Runner::Auto).await, serve(Runner::Pooling).await);
    let args = [&generating.url, &pooling.url, KEY];
    if script.ends_with(".py") {
        let said = python::run(&format!("clients/libraries/{script}"), &args).await;
        assert!(said.is_some(), "there is no Python");
    } else {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/libraries");
        let mut node = Command::new("node");
        node.arg(script).args(args).current_dir(folder);
        let output = tokio::task::spawn_blocking(move || node.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    generating.stop().await;
    pooling.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs heavy packages: .ci/long clients"]
async fn litellm_is_served() {
    run("litellm_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs heavy packages: .ci/long clients"]
async fn langchain_is_served() {
    run("langchain_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs heavy packages: .ci/long clients"]
async fn llama_index_is_served() {
    run("llama_index_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs heavy packages: .ci/long clients"]
async fn pydantic_ai_is_served() {
    run("pydantic_ai_client.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs heavy packages: .ci/long clients"]
async fn the_ai_sdk_is_served() {
    run("ai_sdk_client.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs heavy packages: .ci/long clients"]
async fn lm_eval_scores_what_the_server_answers() {
    run("lm_eval_client.py").await;
}
