//! The recorded answers of vLLM with n-gram speculation.

use std::{path::PathBuf, process::Command};

use playhouse::{
    EngineConfig,
    config::{Device, Dtype, NgramLookup, SpeculativeConfig, SpeculativeMethod},
    server::ServerConfig,
};

use crate::serving::Served;

/// Cases in which this engine differs on purpose. vLLM refuses both parameters, because its
/// rejection sampler has no rule for them. Here a guess is compared with the request's own draw.
/// The test's server has no metrics.
const DIFFERENT: [&str; 3] = ["completions/error_min_p", "completions/error_logit_bias", "metrics"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_with_ngrams_are_met() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let kit = root.join("../shared/conformance2");
    let model = root.join("../shared/conformance/model");
    let python = Command::new("python3").arg("--version").output();
    if !kit.join("conform2.py").is_file() || python.is_err() {
        println!("skipped: no ../shared/conformance2 beside the repository, or no python3");
        return;
    }
    let method = SpeculativeMethod::Ngram(NgramLookup { min: 2, max: 4 });
    let engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(2048),
        kv_cache_memory_bytes: Some(64 << 20),
        device: Device::Cpu,
        speculative_config: Some(SpeculativeConfig::new(method, 3)),
        ..EngineConfig::new(model)
    };
    let served = Served::start(engine, ServerConfig::default()).await;
    let mut conform = Command::new("python3");
    conform.arg(kit.join("conform2.py")).args(["--server", "ngram", "--base-url", &served.url]);
    let output = tokio::task::spawn_blocking(move || conform.output()).await.unwrap().unwrap();
    served.stop().await;
    let report = String::from_utf8(output.stdout).unwrap();
    println!("{report}{}", String::from_utf8_lossy(&output.stderr));
    let differing: Vec<&str> = report
        .lines()
        .filter_map(|line| line.strip_prefix("differs  ")?.split_once(": "))
        .map(|(name, _)| name)
        .collect();
    let unexpected: Vec<_> = differing.iter().filter(|name| !DIFFERENT.contains(name)).collect();
    assert!(unexpected.is_empty() && report.contains("agree"), "differ: {unexpected:?}");
}
