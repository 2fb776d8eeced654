//! Compares late chunking with sentence-transformers in float32: each text's mean over the tokens
//! of all texts together. `make_late_chunking.py` recorded the answers.

use std::{collections::BTreeMap, path::PathBuf};

use playhouse::{
    Engine, EngineConfig,
    api::{PoolingParams, PoolingTask, Prompt, RawRequest},
    config::{Device, Dtype, Runner},
};
use serde::Deserialize;

/// Largest accepted difference of an element, relative to elements above 1.
const TOLERANCE: f32 = 1e-4;

/// Texts that are read as one, and the vector of each.
#[derive(Deserialize)]
struct List {
    texts: Vec<String>,
    rows: Vec<Vec<f32>>,
    num_tokens: usize,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity")
}

fn recorded() -> BTreeMap<String, Vec<List>> {
    let text = std::fs::read(folder().join("late_chunking.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Starts a model. A decoder computes prompts in chunks of a few tokens.
async fn engine(name: &str) -> Engine {
    let mut config = EngineConfig {
        device: Device::Cpu,
        dtype: Dtype::Float32,
        runner: Runner::Pooling,
        kv_cache_memory_bytes: Some(16 << 20),
        ..EngineConfig::new(folder().join(name))
    };
    if name.starts_with("poolers/") {
        (config.max_num_batched_tokens, config.max_num_seqs) = (7, 4);
    }
    Engine::start(config).await.unwrap()
}

fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (value, expected) in found.iter().zip(expected) {
            let is_close = (value - expected).abs() <= TOLERANCE * expected.abs().max(1.0);
            assert!(is_close, "{what}: {value} {expected}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_of_texts_are_means_within_the_whole() {
    for (name, lists) in recorded() {
        let engine = engine(&name).await;
        for List { texts, rows, num_tokens } in lists {
            let what = format!("{name}: {texts:?}");
            let found = engine.embed_late_chunking(texts.clone()).await.unwrap();
            assert_close(&found, &rows, &what);
            let prompt = Prompt::Chunks(texts.into());
            let request = RawRequest::pool(prompt, PoolingParams::new(PoolingTask::Embed));
            let pooled = engine.pool([request.clone(), request]).await.unwrap();
            assert_eq!(pooled[0].prompt_token_ids.len(), num_tokens, "{what}");
            for pooled in pooled {
                let again: Vec<_> = pooled.pooled.rows().map(<[f32]>::to_vec).collect();
                assert_eq!(again, found, "{what}: in a batch");
            }
        }
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_text_alone_has_its_usual_vector() {
    let engine = engine("encoders/bert-mean").await;
    let text = "The curtain rose.".to_owned();
    let late = engine.embed_late_chunking(vec![text.clone()]).await.unwrap();
    assert_eq!(late, engine.embed([Prompt::Text(text)]).await.unwrap());
    engine.shutdown().await;
}
