//! Compares poolers of decoders with transformers and sentence-transformers in float32.
//! `make_poolers.py` made the models and their answers.

use std::path::PathBuf;

use playhouse::{
    Engine, EngineConfig,
    api::{How, PoolingParams, PoolingTask, Prompt, RawRequest, Role},
    config::{Device, Dtype, JsonObject, PoolerConfig, Runner},
    engine::PooledPrompt,
};
use serde::Deserialize;

/// Largest accepted difference of an element, relative to elements above 1.
const TOLERANCE: f32 = 1e-4;

/// The content of a model's `golden.json`.
#[derive(Deserialize)]
struct Golden {
    task: PoolingTask,
    #[serde(default)]
    settings: Settings,
    texts: Vec<Text>,
    #[serde(default)]
    pairs: Vec<Pair>,
    list: Option<List>,
}

#[derive(Default, Deserialize)]
struct Settings {
    pooler_config: Option<PoolerConfig>,
    hf_overrides: Option<JsonObject>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    prompt_name: Option<String>,
    rows: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct Pair {
    text_1: String,
    text_2: String,
    score: f32,
}

/// A query with documents that are ranked in one prompt.
#[derive(Deserialize)]
struct List {
    query: String,
    documents: Vec<String>,
    scores: Vec<f32>,
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/poolers").join(name)
}

fn golden(name: &str) -> Golden {
    let text = std::fs::read(folder(name).join("golden.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

async fn engine(name: &str, golden: &Golden, change: impl FnOnce(&mut EngineConfig)) -> Engine {
    let task = Some(match golden.task {
        PoolingTask::Embed => playhouse::config::PoolerTask::Embed,
        PoolingTask::TokenEmbed => playhouse::config::PoolerTask::TokenEmbed,
        PoolingTask::Classify => playhouse::config::PoolerTask::Classify,
        PoolingTask::TokenClassify => playhouse::config::PoolerTask::TokenClassify,
    });
    let pooler_config = golden.settings.pooler_config.clone().unwrap_or_default();
    let mut config = EngineConfig {
        allow_chaos: true,
        device: Device::Cpu,
        dtype: Dtype::Float32,
        runner: Runner::Pooling,
        kv_cache_memory_bytes: Some(16 << 20),
        pooler_config: Some(PoolerConfig { task, ..pooler_config }),
        hf_overrides: golden.settings.hf_overrides.clone(),
        ..EngineConfig::new(folder(name))
    };
    change(&mut config);
    Engine::start(config).await.unwrap()
}

fn requests(engine: &Engine, golden: &Golden) -> Vec<RawRequest> {
    let request = |text: &Text| {
        let prefix = text.prompt_name.as_ref().map_or("", |kind| engine.prompt_of(kind).unwrap());
        let prompt = Prompt::Text(format!("{prefix}{}", text.text));
        RawRequest::pool(prompt, PoolingParams::new(golden.task))
    };
    golden.texts.iter().map(request).collect()
}

fn values(results: &[PooledPrompt]) -> Vec<Vec<f32>> {
    results.iter().map(|result| result.pooled.values.to_vec()).collect()
}

fn is_close(one: f32, other: f32) -> bool {
    (one - other).abs() <= TOLERANCE * other.abs().max(1.0)
}

/// Checks results against the recorded ones, and that each split of the work gives the same bytes.
async fn check(name: &str) {
    let golden = golden(name);
    let whole = engine(name, &golden, |_| ()).await;
    let mut alone = Vec::new();
    for request in requests(&whole, &golden) {
        alone.extend(whole.pool([request]).await.unwrap());
    }
    for (text, result) in golden.texts.iter().zip(&alone) {
        let rows: Vec<_> = result.pooled.rows().collect();
        assert_eq!(rows.len(), text.rows.len(), "{name}: {}", text.text);
        for (row, expected) in rows.iter().zip(&text.rows) {
            assert_eq!(row.len(), expected.len(), "{name}");
            for (value, expected) in row.iter().zip(expected) {
                assert!(is_close(*value, *expected), "{name}: {}: {value} {expected}", text.text);
            }
        }
    }
    for Pair { text_1, text_2, score } in &golden.pairs {
        let found = whole.score(std::slice::from_ref(text_1), std::slice::from_ref(text_2)).await;
        let found = found.unwrap()[0];
        assert!(is_close(found, *score), "{name}: {text_2}: {found} {score}");
    }
    let batched = whole.pool(requests(&whole, &golden)).await.unwrap();
    assert_eq!(values(&batched), values(&alone), "{name}: in one batch");
    whole.shutdown().await;
    let chunked = engine(name, &golden, |config| {
        (config.max_num_batched_tokens, config.max_num_seqs) = (7, 4);
    })
    .await;
    let killer = async {
        for role in [Role::Worker, Role::Scheduler] {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            let _ = chunked.chaos().strike(role, 0, How::Kill);
        }
    };
    let (results, ()) = tokio::join!(chunked.pool(requests(&chunked, &golden)), killer);
    assert_eq!(values(&results.unwrap()), values(&alone), "{name}: in chunks, after deaths");
    chunked.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_ranked_in_one_prompt() {
    let golden = golden("jina-ranking");
    let engine = engine("jina-ranking", &golden, |_| ()).await;
    let List { query, documents, scores } = golden.list.unwrap();
    let found = engine.score(&[query], &documents).await.unwrap();
    assert_eq!(found.len(), scores.len());
    for (found, expected) in found.iter().zip(&scores) {
        assert!(is_close(*found, *expected), "{found} {expected}");
    }
    engine.shutdown().await;
}

/// The key `pooling_type` says that the model makes vectors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_language_model_in_a_gguf_file_may_make_vectors() {
    const NAME: &str = "qwen2-last";
    let files = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/formats/converted_encoders");
    let mut golden = golden(NAME);
    // The file has no prompts.
    golden.texts.retain(|text| text.prompt_name.is_none());
    let config = EngineConfig {
        device: Device::Cpu,
        dtype: Dtype::Float32,
        kv_cache_memory_bytes: Some(16 << 20),
        tokenizer: Some(folder(NAME)),
        ..EngineConfig::new(files.join(format!("{NAME}.gguf")))
    };
    let engine = Engine::start(config).await.unwrap();
    let results = engine.pool(requests(&engine, &golden)).await.unwrap();
    assert_eq!(results.len(), golden.texts.len());
    for (text, found) in golden.texts.iter().zip(values(&results)) {
        let close = found.iter().zip(&text.rows[0]).all(|(found, row)| is_close(*found, *row));
        assert!(close && found.len() == text.rows[0].len(), "{}: {found:?}", text.text);
    }
    engine.shutdown().await;
}

/// The file has the rows of both answers, and the prompt of Qwen3-Reranker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reranker_in_a_gguf_file_takes_its_prompt() {
    const NAME: &str = "qwen3-reranker";
    let files = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/formats/converted_encoders");
    let text = std::fs::read(files.join(format!("{NAME}.golden.json"))).unwrap();
    let golden: Golden = serde_json::from_slice(&text).unwrap();
    let config = EngineConfig {
        device: Device::Cpu,
        dtype: Dtype::Float32,
        kv_cache_memory_bytes: Some(16 << 20),
        tokenizer: Some(folder(NAME)),
        ..EngineConfig::new(files.join(format!("{NAME}.gguf")))
    };
    let engine = Engine::start(config).await.unwrap();
    for Pair { text_1, text_2, score } in &golden.pairs {
        let texts = [text_1, text_2].map(std::slice::from_ref);
        let found = engine.score(texts[0], texts[1]).await.unwrap()[0];
        assert!(is_close(found, *score), "{text_2}: {found} {score}");
    }
    engine.shutdown().await;
}

macro_rules! poolers {
    ($($test:ident: $folder:literal,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { check($folder).await; }
        )*

        #[test]
        fn every_folder_has_a_test() {
            let mut tested = vec![$($folder),*];
            let folders = std::fs::read_dir(folder("")).unwrap();
            let mut found: Vec<String> =
                folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            tested.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, tested);
        }
    };
}

poolers! {
    llama_mean: "llama-mean",
    llama_last: "llama-last",
    gemma2_cls: "gemma2-cls",
    gemma2_mean_dense: "gemma2-mean-dense",
    mistral_mean_dense: "mistral-mean-dense",
    mistral_tokens: "mistral-tokens",
    qwen2_last: "qwen2-last",
    qwen2_last_dense: "qwen2-last-dense",
    gemma_class: "gemma-class",
    gemma_score: "gemma-score",
    qwen2_class: "qwen2-class",
    qwen3_regression: "qwen3-regression",
    gpt2_class: "gpt2-class",
    jamba_score: "jamba-score",
    cohere_class: "cohere-class",
    gemma3_class: "gemma3-class",
    phi3_token_class: "phi3-token-class",
    qwen3_reranker: "qwen3-reranker",
    qwen2_reranker: "qwen2-reranker",
    gemma_reranker: "gemma-reranker",
    internlm2_reward: "internlm2-reward",
    qwen2_reward: "qwen2-reward",
    qwen2_process: "qwen2-process",
    colqwen2_tokens: "colqwen2-tokens",
    jina_5_last: "jina-5-last",
    jina_ranking: "jina-ranking",
}
