//! Adapters of models that pool: vectors, sparse vectors and classes equal those of transformers
//! with peft, in a batch with the base model. `fidelity/make_pooler_adapters.py` made the adapters
//! and the answers, and `fidelity/make_authors_adapters.py` those of encoders with code of their
//! own.

use std::path::PathBuf;

use playhouse::{
    Engine, EngineConfig, LoraError,
    api::{PoolingParams, PoolingTask, Prompt, RawRequest},
    config::{Device, Dtype, Runner},
    server::ServerConfig,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{folder, serving::Served};

/// Largest accepted difference of an element, relative to elements above 1.
const TOLERANCE: f32 = 1e-4;

/// The result of one text.
#[derive(Deserialize)]
struct Recorded {
    adapter: Option<String>,
    text: String,
    row: Vec<f32>,
}

fn recorded(model: &str) -> Vec<Recorded> {
    let path = adapters(model).join("answers.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn adapters(model: &str) -> PathBuf {
    folder().join("pooler_adapters").join(model)
}

fn config(model: &str) -> EngineConfig {
    let kinds = ["encoders", "poolers"].map(|kind| folder().join(kind).join(model));
    let path = kinds.into_iter().find(|path| path.is_dir()).unwrap();
    EngineConfig {
        device: Device::Cpu,
        dtype: Dtype::Float32,
        kv_cache_memory_bytes: Some(16 << 20),
        runner: Runner::Pooling,
        enable_lora: true,
        max_loras: 2,
        max_lora_rank: 8,
        ..EngineConfig::new(path)
    }
}

fn assert_close(what: &str, row: &[f32], expected: &[f32]) {
    assert_eq!(row.len(), expected.len(), "{what}");
    for (value, expected) in row.iter().zip(expected) {
        let difference = (value - expected).abs();
        assert!(difference <= TOLERANCE * expected.abs().max(1.0), "{what}: {value} {expected}");
    }
}

async fn check(model: &str) {
    let engine = Engine::start(config(model)).await.unwrap();
    let (recorded, mut requests) = (recorded(model), Vec::new());
    let mut loaded = Vec::new();
    for name in ["a", "b", "c"] {
        let path = adapters(model).join(name);
        if path.is_dir() {
            engine.load_lora_adapter(name, &path.to_string_lossy(), false).await.unwrap();
            let has_answer = recorded.iter().any(|each| each.adapter.as_deref() == Some(name));
            assert!(has_answer, "{model}: no answer of adapter {name}");
            loaded.push(name);
        }
    }
    if model.starts_with("nomic-moe") {
        assert_eq!(loaded, ["a", "b", "c"], "{model}: each set of the parameters of experts");
    }
    for Recorded { adapter, text, .. } in &recorded {
        let lora = match adapter {
            Some(name) => Some(engine.lora_adapter(name).await.unwrap()),
            None => None,
        };
        let params = PoolingParams::new(engine.pooling_task().unwrap());
        let request = RawRequest::pool(Prompt::Text(text.clone()), params);
        requests.push(RawRequest { lora, ..request });
    }
    let together = engine.pool(requests.clone()).await.unwrap();
    for (recorded, result) in recorded.iter().zip(&together) {
        let what = format!("{model}, adapter {:?}: {}", recorded.adapter, recorded.text);
        assert_close(&what, &result.pooled.values, &recorded.row);
    }
    for (request, result) in requests.into_iter().zip(&together) {
        let alone = engine.pool([request]).await.unwrap();
        assert_eq!(alone[0].pooled, result.pooled, "{model}: a row depends on its batch");
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poolers_with_adapters_equal_those_of_peft() {
    let entries = std::fs::read_dir(adapters("")).unwrap();
    let mut models: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    models.sort();
    assert!(models.len() >= 10, "{models:?}");
    for model in models {
        check(&model).await;
    }
}

async fn vectors(served: &Served, model: &str, texts: &[&str]) -> (u16, Value) {
    let client = reqwest::Client::new();
    let body = json!({"model": model, "input": texts});
    let answer = client.post(format!("{}/v1/embeddings", served.url)).json(&body).send();
    let answer = answer.await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Adapters that were loaded, and those that the resolver finds, are models of `/v1/embeddings`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embeddings_of_an_adapter_over_http() {
    for model in ["bert-mean", "qwen2-last"] {
        let config = EngineConfig {
            served_model_name: vec!["base".to_owned()],
            lora_resolver_dir: Some(adapters(model)),
            ..config(model)
        };
        let served = Served::start(config, ServerConfig::default()).await;
        let a = adapters(model).join("a").to_string_lossy().into_owned();
        served.engine.load_lora_adapter("listed", &a, false).await.unwrap();
        for (name, adapter) in [("base", None), ("listed", Some("a")), ("b", Some("b"))] {
            let own: Vec<_> = recorded(model)
                .into_iter()
                .filter(|recorded| recorded.adapter.as_deref() == adapter)
                .collect();
            let texts: Vec<&str> = own.iter().map(|recorded| &*recorded.text).collect();
            let (status, answer) = vectors(&served, name, &texts).await;
            assert_eq!((status, &answer["model"]), (200, &json!(name)), "{model}: {answer}");
            for (recorded, data) in own.iter().zip(answer["data"].as_array().unwrap()) {
                let row: Vec<f32> = serde_json::from_value(data["embedding"].clone()).unwrap();
                assert_close(&format!("{model}, {name}"), &row, &recorded.row);
            }
        }
        let (status, answer) = vectors(&served, "c", &["a"]).await;
        assert_eq!((status, &answer["error"]["code"]), (404, &json!(404)), "{answer}");
        served.stop().await;
    }
}

/// The layers of a classifier take no adapter. The message names them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adapter_of_another_class_is_refused() {
    let engine = Engine::start(config("bert-mean")).await.unwrap();
    assert_eq!(engine.pooling_task(), Some(PoolingTask::Embed));
    let path = adapters("distilbert-mean").join("a").to_string_lossy().into_owned();
    let refused = engine.load_lora_adapter("other", &path, false).await;
    assert!(matches!(refused, Err(LoraError::Adapter { .. })), "{refused:?}");
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("has no linear layer transformer.layer.0"), "{why}");
    engine.shutdown().await;
}
