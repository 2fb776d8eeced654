//! Compares answers with those that vLLM gave to the same requests. The recordings and the
//! comparing program stand beside the repository. Without them, the test prints a note and passes.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

mod serving;

use std::{path::PathBuf, process::Command};

use playhouse::{EngineConfig, config::Dtype, server::ServerConfig};
use serde_json::Value;
use serving::Served;

/// Returns the folder of the recordings, if it exists.
fn recordings() -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let places = [root.join("../shared/conformance"), root.join("shared/conformance")];
    places.into_iter().find(|place| place.join("conform.py").is_file())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_are_met() {
    let Some(folder) = recordings() else {
        println!("skipped: no ../shared/conformance beside the repository");
        return;
    };
    if !Command::new("python3").arg("--version").output().is_ok_and(|out| out.status.success()) {
        println!("skipped: there is no python3");
        return;
    }
    let engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(2048),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(folder.join("model"))
    };
    let served = Served::start(engine, ServerConfig::default()).await;

    let mut conform = Command::new("python3");
    conform.arg(folder.join("conform.py")).args(["--base-url", &served.url]);
    let output = tokio::task::spawn_blocking(move || conform.output()).await.unwrap().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    println!("{report}{}", String::from_utf8_lossy(&output.stderr));
    served.stop().await;

    let cases = std::fs::read_to_string(folder.join("cases.jsonl")).unwrap();
    let cases: Vec<Value> = cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let differing: Vec<&str> = report
        .lines()
        .filter_map(|line| line.strip_prefix("differs  ")?.split_once(": "))
        .map(|(name, _)| name)
        .collect();
    assert!(differing.is_empty(), "differ: {differing:?}");
    let agreeing = cases.len() - differing.len();
    let summary = format!("{agreeing} of {} agree", cases.len());
    assert!(report.contains(&summary), "the report does not end with {summary:?}");
}
