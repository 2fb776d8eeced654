//! Vectors of texts with a prompt whose tokens are not pooled (`include_prompt: false`), with each
//! pooling. `make_prompts.py` recorded those of sentence-transformers.

use std::path::{Path, PathBuf};

use playhouse::{
    Engine, EngineConfig,
    api::{PoolingParams, PoolingTask, Prompt, RawRequest},
    config::{Device, Dtype, Runner},
};
use serde::Deserialize;
use serde_json::Value;

/// Largest accepted difference of an element.
const TOLERANCE: f32 = 1e-4;

#[derive(Deserialize)]
struct Recorded {
    model: String,
    /// The file of the `Pooling`.
    pooling: Value,
    /// `config_sentence_transformers.json`.
    prompts: Value,
    /// The name of a prompt, a text and its vector.
    rows: Vec<(String, String, Vec<f32>)>,
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => std::fs::write(&to, std::fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
}

async fn check(recorded: &Recorded) {
    let folder = tempfile::tempdir().unwrap();
    copy(&tests().join(&recorded.model), folder.path());
    let write = |file: &str, content: &Value| {
        std::fs::write(folder.path().join(file), content.to_string()).unwrap();
    };
    write("1_Pooling/config.json", &recorded.pooling);
    write("config_sentence_transformers.json", &recorded.prompts);
    let config = |max_num_batched_tokens: usize| EngineConfig {
        device: Device::Cpu,
        dtype: Dtype::Float32,
        runner: Runner::Pooling,
        kv_cache_memory_bytes: Some(16 << 20),
        max_num_batched_tokens,
        max_num_seqs: 4,
        ..EngineConfig::new(folder.path().to_owned())
    };
    // An encoder reads a prompt in one step, a decoder also in several.
    let budgets = if recorded.model.contains("llama") { &[2048, 5][..] } else { &[2048] };
    for budget in budgets {
        let engine = Engine::start(config(*budget)).await.unwrap();
        let requests = recorded.rows.iter().map(|(kind, text, _)| {
            let prompt = engine.prompt_of(kind).unwrap();
            let num_left_out = engine.num_left_out(prompt).unwrap();
            let params = PoolingParams { num_left_out, ..PoolingParams::new(PoolingTask::Embed) };
            RawRequest::pool(Prompt::Text(format!("{prompt}{text}")), params)
        });
        let found = engine.pool(requests.collect::<Vec<_>>()).await.unwrap();
        for ((kind, text, expected), found) in recorded.rows.iter().zip(found) {
            let what = format!("{}, {}: {kind}, {text}", recorded.model, recorded.pooling);
            assert_eq!(found.pooled.values.len(), expected.len(), "{what}");
            for (value, expected) in found.pooled.values.iter().zip(expected) {
                let difference = (value - expected).abs();
                assert!(difference <= TOLERANCE * expected.abs().max(1.0), "{what}: {difference}");
            }
        }
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tokens_of_a_prompt_are_left_out() {
    let all = std::fs::read(tests().join("prompts.json")).unwrap();
    let all: Vec<Recorded> = serde_json::from_slice(&all).unwrap();
    assert_eq!(all.len(), 21);
    for recorded in &all {
        check(recorded).await;
    }
}
