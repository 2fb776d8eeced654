//! Compares answers with those that vLLM gave to the same requests. The recordings and the
//! comparing program stand beside the repository. Without them, the test prints a note and passes.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod serving;

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use playhouse::{
    EngineConfig,
    config::{Convert, Dtype, LoraModule, PoolerConfig, PoolerTask, Runner},
    server::ServerConfig,
};
use serde_json::Value;
use serving::Served;

/// Returns the folder `name` of recordings with its program, if it exists.
fn recordings(name: &str, program: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let places = [root.join("../shared").join(name), root.join("shared").join(name)];
    let found = places.into_iter().find(|place| place.join(program).is_file());
    if found.is_none() {
        println!("skipped: no ../shared/{name} beside the repository");
        return None;
    }
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|out| out.status.success()) {
        println!("skipped: there is no python3");
        return None;
    }
    found
}

/// Serves `engine` and returns the report of `conform` on it.
async fn report(engine: EngineConfig, conform: Command) -> String {
    report_of(engine, ServerConfig::default(), conform).await
}

/// The same with settings of the server.
async fn report_of(engine: EngineConfig, server: ServerConfig, mut conform: Command) -> String {
    let served = Served::start(engine, server).await;
    conform.args(["--base-url", &served.url]);
    let output = tokio::task::spawn_blocking(move || conform.output()).await.unwrap().unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    println!("{report}{}", String::from_utf8_lossy(&output.stderr));
    served.stop().await;
    report
}

/// Checks that the answers to all cases agree.
fn assert_agree(report: &str, num_cases: usize) {
    assert_agree_but(report, num_cases, 0, |_| false);
}

/// The same, but for `num_exempt` cases, whose names are exempt.
fn assert_agree_but(
    report: &str,
    num_cases: usize,
    num_exempt: usize,
    is_exempt: impl Fn(&str) -> bool,
) {
    let differing: Vec<&str> = report
        .lines()
        .filter_map(|line| line.strip_prefix("differs  ")?.split_once(": "))
        .map(|(name, _)| name)
        .filter(|name| !is_exempt(name))
        .collect();
    assert!(differing.is_empty(), "differ: {differing:?}");
    let summary = format!("{} of {num_cases} agree", num_cases - num_exempt);
    assert!(report.contains(&summary), "the report does not end with {summary:?}");
}

fn cases(folder: &Path) -> Vec<Value> {
    let cases = std::fs::read_to_string(folder.join("cases.jsonl")).unwrap();
    cases.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_are_met() {
    let Some(folder) = recordings("conformance", "conform.py") else { return };
    let engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(2048),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(folder.join("model"))
    };
    let mut conform = Command::new("python3");
    conform.arg(folder.join("conform.py"));
    let report = report(engine, conform).await;
    assert_agree(&report, cases(&folder).len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_with_adapters_are_met() {
    let Some(folder) = recordings("conformance2", "conform2.py") else { return };
    let folder = folder.canonicalize().unwrap();
    // The recorded requests have paths relative to their folder. No other test here uses one.
    std::env::set_current_dir(&folder).unwrap();
    let module = |name: &str, path: &str| LoraModule {
        name: name.to_owned(),
        path: path.to_owned(),
        base_model_name: None,
    };
    let engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(2048),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        enable_lora: true,
        max_loras: 2,
        max_lora_rank: 16,
        max_cpu_loras: Some(3),
        lora_modules: vec![module("a", "models/lora_a"), module("b", "models/lora_b")],
        // A path that is not there has the form of a name on the hub.
        offline: true,
        ..EngineConfig::new(folder.join("../conformance/model"))
    };
    let mut conform = Command::new("python3");
    conform.arg(folder.join("conform2.py")).args(["--server", "lora"]);
    let server = ServerConfig { allow_runtime_lora_updating: true, ..ServerConfig::default() };
    let report = report_of(engine, server, conform).await;
    let is_of_server = |case: &&Value| case["server"] == "lora";
    assert_agree(&report, cases(&folder).iter().filter(is_of_server).count());
}

/// Compares the answers of one set-up of the second kit, which pools.
async fn pooled_answers_are_met(server: &str, model: &str, change: fn(&mut EngineConfig)) {
    let Some(folder) = recordings("conformance2", "conform2.py") else { return };
    let mut engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(512),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(folder.join("models").join(model))
    };
    change(&mut engine);
    let mut conform = Command::new("python3");
    conform.arg(folder.join("conform2.py")).args(["--server", server]);
    let report = report(engine, conform).await;
    let is_of_server = |case: &&Value| case["server"] == server;
    assert_agree(&report, cases(&folder).iter().filter(is_of_server).count());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_embeddings_are_met() {
    pooled_answers_are_met("qwen3_embed", "qwen3_embed", |engine| {
        engine.runner = Runner::Pooling;
        engine.convert = Convert::Embed;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_embeddings_of_tokens_are_met() {
    pooled_answers_are_met("qwen3_tokens", "qwen3_embed", |engine| {
        let task = Some(PoolerTask::TokenEmbed);
        engine.pooler_config = Some(PoolerConfig { task, ..PoolerConfig::default() });
        (engine.runner, engine.convert) = (Runner::Pooling, Convert::Embed);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_classes_are_met() {
    pooled_answers_are_met("qwen3_class", "qwen3_class", |_| ()).await;
}

/// Compares the answers of a set-up of an encoder.
async fn encoded_answers_are_met(
    server: &str,
    model: &str,
    max_model_len: usize,
    pooler_config: Option<PoolerConfig>,
) {
    let Some(folder) = recordings("conformance2", "conform2.py") else { return };
    let engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(max_model_len),
        pooler_config,
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(folder.join("models").join(model))
    };
    let mut conform = Command::new("python3");
    conform.arg(folder.join("conform2.py")).args(["--server", server]);
    let report = report(engine, conform).await;
    let is_of_server = |case: &&Value| case["server"] == server;
    let cases: Vec<Value> = cases(&folder).iter().filter(is_of_server).cloned().collect();
    // The metrics of this server have names of its own.
    let is_exempt = |name: &str| name == "metrics";
    let names = cases.iter().filter_map(|case| case["name"].as_str());
    let num_exempt = names.filter(|name| is_exempt(name)).count();
    assert_agree_but(&report, cases.len(), num_exempt, is_exempt);
}

macro_rules! encoders {
    ($($test:ident: $server:literal, $max_model_len:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                encoded_answers_are_met($server, $server, $max_model_len, None).await;
            }
        )*
    };
}

encoders! {
    recorded_means_are_met: "bert_mean", 128;
    recorded_first_tokens_are_met: "bert_cls", 256;
    recorded_cuts_are_met: "bert_mrl", 256;
    recorded_scores_of_pairs_are_met: "bert_rank", 256;
    recorded_classes_of_texts_are_met: "bert_class", 256;
    recorded_tags_are_met: "bert_ner", 256;
    recorded_late_interactions_are_met: "colbert", 256;
}

/// Compares the answers of one set-up of the second kit whose model takes images.
async fn answers_about_images_are_met(server: &str, limits: &str, settings: ServerConfig) {
    let Some(folder) = recordings("conformance2", "conform2.py") else { return };
    let engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(1024),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        limit_mm_per_prompt: Some(serde_json::from_value(limits.into()).unwrap()),
        ..EngineConfig::new(folder.join("models").join(server))
    };
    let mut conform = Command::new("python3");
    conform.arg(folder.join("conform2.py")).args(["--server", server]);
    let report = report_of(engine, settings, conform).await;
    let is_of_server = |case: &&Value| case["server"] == server;
    let num_cases = cases(&folder).iter().filter(is_of_server).count();
    // The metrics of this server have names of its own.
    assert_agree_but(&report, num_cases, 1, |name| name == "metrics");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_of_llava_are_met() {
    let settings = ServerConfig {
        allowed_media_domains: vec!["example.invalid".to_owned()],
        ..ServerConfig::default()
    };
    answers_about_images_are_met("llava", r#"{"image": 2}"#, settings).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_of_qwen2_5_vl_are_met() {
    let limits = r#"{"image": 2, "video": 0}"#;
    answers_about_images_are_met("qwen2_5_vl", limits, ServerConfig::default()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_of_qwen3_vl_are_met() {
    let settings = ServerConfig { trust_request_mm_kwargs: true, ..ServerConfig::default() };
    answers_about_images_are_met("qwen3_vl", r#"{"image": 2, "video": 0}"#, settings).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_means_of_pieces_are_met() {
    let pooler = PoolerConfig {
        enable_chunked_processing: true,
        max_embed_len: Some(600),
        ..PoolerConfig::default()
    };
    encoded_answers_are_met("bert_long", "bert_mean", 128, Some(pooler)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_transcriptions_are_met() {
    let Some(folder) = recordings("conformance2", "conform2.py") else { return };
    let engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(448),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(folder.join("models/whisper"))
    };
    let mut conform = Command::new("python3");
    conform.arg(folder.join("conform2.py")).args(["--server", "whisper"]);
    let report = report(engine, conform).await;
    let is_of_server = |case: &&Value| case["server"] == "whisper";
    assert_agree(&report, cases(&folder).iter().filter(is_of_server).count());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_routes_of_operators_are_met() {
    let Some(folder) = recordings("conformance2", "conform2.py") else { return };
    let text = folder.join("../conformance/model");
    let engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(2048),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(text)
    };
    let mut conform = Command::new("python3");
    conform.arg(folder.join("conform2.py")).args(["--server", "control"]);
    let report = report(engine, conform).await;
    let is_of_server = |case: &&Value| case["server"] == "control";
    let num_cases = cases(&folder).iter().filter(is_of_server).count();
    // No recorder is installed here. `tests/cli` asks the program for these metrics.
    assert_agree_but(&report, num_cases, 1, |name| name == "metrics");
}
