//! Compares encoders with transformers and sentence-transformers in float32. `make_encoders.py`
//! made the models and their answers. `make_authors_encoders.py` made those whose code is in the
//! folders of their authors.

use std::path::PathBuf;

use playhouse::{
    Engine, EngineConfig,
    api::{How, PoolingParams, PoolingTask, Prompt, RawRequest, Role},
    config::{Device, Dtype, PoolerConfig, PoolerTask, Quantization},
    engine::PooledPrompt,
};
use serde::Deserialize;

/// Largest accepted difference of an element, relative to elements above 1.
const TOLERANCE: f32 = 1e-4;

/// The content of a model's `golden.json`.
#[derive(Deserialize)]
struct Golden {
    task: PoolingTask,
    texts: Vec<Text>,
    #[serde(default)]
    pairs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    rows: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct Pair {
    text_1: String,
    text_2: String,
    score: f32,
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/encoders").join(name)
}

fn golden(name: &str) -> Golden {
    let text = std::fs::read(folder(name).join("golden.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

async fn engine(name: &str, task: PoolingTask, device: Device) -> Engine {
    engine_of(EngineConfig::new(folder(name)), task, device).await
}

async fn engine_of(config: EngineConfig, task: PoolingTask, device: Device) -> Engine {
    engine_in(Dtype::Float32, config, task, device).await
}

async fn engine_in(
    dtype: Dtype,
    config: EngineConfig,
    task: PoolingTask,
    device: Device,
) -> Engine {
    let task = Some(match task {
        PoolingTask::Embed => PoolerTask::Embed,
        PoolingTask::TokenEmbed => PoolerTask::TokenEmbed,
        PoolingTask::Classify => PoolerTask::Classify,
        PoolingTask::TokenClassify => PoolerTask::TokenClassify,
    });
    let config = EngineConfig {
        allow_chaos: true,
        device,
        dtype,
        pooler_config: Some(PoolerConfig { task, ..PoolerConfig::default() }),
        max_num_seqs: 4,
        ..config
    };
    Engine::start(config).await.unwrap()
}

fn requests(golden: &Golden) -> Vec<RawRequest> {
    let request = |text: &Text| {
        RawRequest::pool(Prompt::Text(text.text.clone()), PoolingParams::new(golden.task))
    };
    golden.texts.iter().map(request).collect()
}

fn values(results: &[PooledPrompt]) -> Vec<Vec<f32>> {
    results.iter().map(|result| result.pooled.values.to_vec()).collect()
}

fn is_close(one: f32, other: f32) -> bool {
    (one - other).abs() <= TOLERANCE * other.abs().max(1.0)
}

/// Checks results against the recorded ones.
fn check_rows(name: &str, golden: &Golden, results: &[PooledPrompt]) {
    assert_eq!(results.len(), golden.texts.len(), "{name}");
    for (text, result) in golden.texts.iter().zip(results) {
        let rows: Vec<_> = result.pooled.rows().collect();
        assert_eq!(rows.len(), text.rows.len(), "{name}: {}", text.text);
        for (row, expected) in rows.iter().zip(&text.rows) {
            assert_eq!(row.len(), expected.len(), "{name}");
            for (value, expected) in row.iter().zip(expected) {
                assert!(is_close(*value, *expected), "{name}: {}: {value} {expected}", text.text);
            }
        }
    }
}

/// Encoders with each kind of positions and attention.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encoders_on_a_gpu_answer_as_transformers_does() {
    let Some(device) = crate::gpu::setting() else { return };
    for name in ["bert-mean", "modernbert-mean", "mpnet-mean", "t5-mean"] {
        let golden = golden(name);
        let engine = engine(name, golden.task, device).await;
        let results = engine.pool(requests(&golden)).await.unwrap();
        check_rows(name, &golden, &results);
        engine.shutdown().await;
    }
}

/// Checks results against the recorded ones. Checks that a batch, and one whose actors die, give
/// the same bytes.
async fn check(name: &str) {
    let golden = golden(name);
    let engine = engine(name, golden.task, Device::Cpu).await;
    assert_eq!(engine.model_info().kv_spec.groups, [], "{name} keeps nothing of a prompt");
    let mut alone = Vec::new();
    for request in requests(&golden) {
        alone.extend(engine.pool([request]).await.unwrap());
    }
    check_rows(name, &golden, &alone);
    for Pair { text_1, text_2, score } in &golden.pairs {
        let found = engine.score(std::slice::from_ref(text_1), std::slice::from_ref(text_2)).await;
        let found = found.unwrap()[0];
        assert!(is_close(found, *score), "{name}: {text_2}: {found} {score}");
    }
    let batched = engine.pool(requests(&golden)).await.unwrap();
    assert_eq!(values(&batched), values(&alone), "{name}: in batches");
    let killer = async {
        for role in [Role::Worker, Role::Scheduler, Role::KvCacheManager] {
            let _ = engine.chaos().strike(role, 0, How::Kill);
            tokio::task::yield_now().await;
        }
    };
    let (results, ()) = tokio::join!(engine.pool(requests(&golden)), killer);
    assert_eq!(values(&results.unwrap()), values(&alone), "{name}: after deaths");
    engine.shutdown().await;
}

fn cosine(one: &[f32], other: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}

/// Where the CPU multiplies bfloat16 in vectors, so does attention: to all keys, within windows,
/// and with biases. transformers in bfloat16 has cosines above 0.99998 here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bfloat16_is_close_and_independent_of_the_batch() {
    for (quantization, least) in [(Quantization::None, 0.9999), (Quantization::Int8, 0.99)] {
        for name in ["bert-mean", "modernbert-mean", "mpnet-mean"] {
            let golden = golden(name);
            let config = EngineConfig { quantization, ..EngineConfig::new(folder(name)) };
            let engine = engine_in(Dtype::Bfloat16, config, golden.task, Device::Cpu).await;
            let mut alone = Vec::new();
            for request in requests(&golden) {
                alone.extend(engine.pool([request]).await.unwrap());
            }
            for (text, result) in golden.texts.iter().zip(&alone) {
                let cosine = cosine(&result.pooled.values, &text.rows[0]);
                assert!(cosine > least, "{name} {quantization:?}: {}: {cosine}", text.text);
            }
            let batched = engine.pool(requests(&golden)).await.unwrap();
            assert_eq!(values(&batched), values(&alone), "{name} {quantization:?}: in batches");
            engine.shutdown().await;
        }
    }
}

/// The files are of llama.cpp's converter, with all weights as in the folder. Some have its
/// vocabulary, and the others take that of the folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encoders_in_gguf_files_answer_as_their_folders() {
    let files = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/formats/converted_encoders");
    for (name, has_vocabulary) in [
        ("bert-mean", true),
        ("distilbert-mean", true),
        ("roberta-mean", false),
        ("xlmr-cls", false),
        ("t5-mean", false),
        ("nomic-authors", true),
        ("modernbert-mean", false),
        ("eurobert-mean", false),
        ("nemotron-embed", false),
        ("jina-bert-mean", false),
        ("gemma3-published", false),
        ("roberta-score", true),
        ("xlmr-score", false),
        ("distilbert-class", true),
        ("modernbert-class", false),
        ("lfm2-cls", false),
    ] {
        let golden = golden(name);
        let mut config = EngineConfig::new(files.join(format!("{name}.gguf")));
        config.tokenizer = (!has_vocabulary).then(|| folder(name));
        let engine = engine_of(config, golden.task, Device::Cpu).await;
        let results = engine.pool(requests(&golden)).await.unwrap();
        check_rows(name, &golden, &results);
        for Pair { text_1, text_2, score } in &golden.pairs {
            let texts = [text_1, text_2].map(std::slice::from_ref);
            let found = engine.score(texts[0], texts[1]).await.unwrap()[0];
            assert!(is_close(found, *score), "{name}: {text_2}: {found} {score}");
        }
        engine.shutdown().await;
    }
}

/// vLLM's users choose its class by a setting. The published config has that of XLM-RoBERTa.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bge_m3_has_vectors_and_weights_of_tokens() {
    const NAME: &str = "bge-m3";
    let overrides = r#"{"architectures": ["BgeM3EmbeddingModel"]}"#;
    for task in ["token_embed", "token_classify"] {
        let text = std::fs::read(folder(NAME).join(format!("{task}.json"))).unwrap();
        let golden: Golden = serde_json::from_slice(&text).unwrap();
        let mut config = EngineConfig::new(folder(NAME));
        config.hf_overrides = Some(serde_json::from_str(overrides).unwrap());
        let engine = engine_of(config, golden.task, Device::Cpu).await;
        let results = engine.pool(requests(&golden)).await.unwrap();
        check_rows(NAME, &golden, &results);
        let whole = self::golden(NAME);
        check_rows(NAME, &whole, &engine.pool(requests(&whole)).await.unwrap());
        engine.shutdown().await;
    }
}

/// Each route of a `Router` is served by its own folder, with the modules behind the router.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_routes_of_a_router_are_served_by_their_folders() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/routes/bert-router");
    for route in ["query", "document"] {
        let text = std::fs::read(root.join(format!("{route}.json"))).unwrap();
        let golden: Golden = serde_json::from_slice(&text).unwrap();
        let config = EngineConfig::new(root.join(format!("{route}_0_Transformer")));
        let engine = engine_of(config, golden.task, Device::Cpu).await;
        let results = engine.pool(requests(&golden)).await.unwrap();
        check_rows(route, &golden, &results);
        assert_eq!(engine.prompt_of("query"), Ok("find: "));
        engine.shutdown().await;
    }
    let why = Engine::start(EngineConfig::new(root)).await.unwrap_err().to_string();
    assert!(why.contains("query_0_Transformer, document_0_Transformer"), "{why}");
}

/// `llama-quantize` writes a table of one row with one side (`ggml_n_dims` of ggml).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_type_of_an_encoder_in_a_gguf_file_may_be_a_vector() {
    const NAME: &str = "xlmr-cls";
    let path = format!("tests/formats/converted_encoders/{NAME}.gguf");
    let mut file = std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let end_of = |file: &[u8], name: &[u8]| {
        file.windows(name.len()).position(|found| found == name).unwrap() + name.len()
    };
    // Behind the name of a tensor are the number of its sides, these, its type and its place.
    let table = end_of(&file, b"token_types.weight");
    let sides = [&2u32.to_le_bytes()[..], &48u64.to_le_bytes(), &1u64.to_le_bytes()].concat();
    assert_eq!(file[table..table + 20], sides);
    file[table] = 1;
    file.drain(table + 12..table + 20);
    // The data stays in its place, behind the entry of the last tensor.
    let data = file.split_off(end_of(&file, b"blk.2.ffn_down.weight") + 4 + 2 * 8 + 4 + 8);
    let temporary = tempfile::tempdir().unwrap();
    let model = temporary.path().join("model.gguf");
    std::fs::write(&model, [&file[..], &[0; 8], &data].concat()).unwrap();
    let golden = golden(NAME);
    let mut config = EngineConfig::new(model);
    config.tokenizer = Some(folder(NAME));
    let engine = engine_of(config, golden.task, Device::Cpu).await;
    let results = engine.pool(requests(&golden)).await.unwrap();
    check_rows(NAME, &golden, &results);
    engine.shutdown().await;
}

macro_rules! encoders {
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

encoders! {
    bert_mean: "bert-mean",
    bert_cls_dense: "bert-cls-dense",
    bert_score: "bert-score",
    bert_tokens: "bert-tokens",
    bert_splade: "bert-splade",
    colbert: "colbert",
    roberta_mean: "roberta-mean",
    roberta_class: "roberta-class",
    roberta_score: "roberta-score",
    xlmr_cls: "xlmr-cls",
    xlmr_score: "xlmr-score",
    bge_m3: "bge-m3",
    camembert_tokens: "camembert-tokens",
    distilbert_mean: "distilbert-mean",
    distilbert_class: "distilbert-class",
    distilbert_splade: "distilbert-splade",
    mpnet_mean: "mpnet-mean",
    mpnet_score: "mpnet-score",
    deberta_mean: "deberta-mean",
    deberta_score: "deberta-score",
    deberta_class: "deberta-class",
    deberta_tokens: "deberta-tokens",
    deberta_first: "deberta-first",
    modernbert_mean: "modernbert-mean",
    modernbert_class: "modernbert-class",
    modernbert_tokens: "modernbert-tokens",
    nomic_mean: "nomic-mean",
    nomic_authors: "nomic-authors",
    nomic_class: "nomic-class",
    nomic_moe: "nomic-moe",
    nomic_moe_plain: "nomic-moe-plain",
    jina_bert_mean: "jina-bert-mean",
    jina_bert_reglu: "jina-bert-reglu",
    jina_bert_code: "jina-bert-code",
    jina_bert_code_6: "jina-bert-code-6",
    jina_bert_score: "jina-bert-score",
    jina_colbert_1: "jina-colbert-1",
    jina_colbert_2: "jina-colbert-2",
    jina_flash_mean: "jina-flash-mean",
    jina_flash_tasks: "jina-flash-tasks",
    jina_flash_task: "jina-flash-task",
    eurobert_mean: "eurobert-mean",
    eurobert_late: "eurobert-late",
    eurobert_class: "eurobert-class",
    eurobert_score: "eurobert-score",
    eurobert_tokens: "eurobert-tokens",
    eurobert_splade: "eurobert-splade",
    eurobert_splade_tied: "eurobert-splade-tied",
    ultrabert_cls: "ultrabert-cls",
    ultrabert_mean: "ultrabert-mean",
    ultrabert_score: "ultrabert-score",
    ultrabert_class: "ultrabert-class",
    ultrabert_tokens: "ultrabert-tokens",
    ultrabert_older: "ultrabert-older",
    voyage_last: "voyage-last",
    voyage_mean: "voyage-mean",
    privacy_tokens: "privacy-tokens",
    privacy_tokens_yarn: "privacy-tokens-yarn",
    qwen2_both_sides: "qwen2-both-sides",
    qwen3_both_sides: "qwen3-both-sides",
    llama_both_sides: "llama-both-sides",
    jina_mean: "jina-mean",
    jina_class: "jina-class",
    jina_rerank: "jina-rerank",
    jina_rerank_class: "jina-rerank-class",
    nemotron_embed: "nemotron-embed",
    lfm2_cls: "lfm2-cls",
    lfm2_mean: "lfm2-mean",
    giga_mean: "giga-mean",
    giga_last: "giga-last",
    nemotron_embed_last: "nemotron-embed-last",
    nemotron_rerank: "nemotron-rerank",
    nemotron_class: "nemotron-class",
    gte_cls: "gte-cls",
    new_cls: "new-cls",
    gte_score: "gte-score",
    electra_mean: "electra-mean",
    electra_class: "electra-class",
    electra_tokens: "electra-tokens",
    electra_whole: "electra-whole",
    ernie_mean: "ernie-mean",
    ernie_score: "ernie-score",
    xlmr_xl_cls: "xlmr-xl-cls",
    xlmr_xl_class: "xlmr-xl-class",
    mt5_mean: "mt5-mean",
    t5_whole: "t5-whole",
    bert_whole: "bert-whole",
    gte_whole: "gte-whole",
    bert_layers: "bert-layers",
    modernbert_layers: "modernbert-layers",
    static_table: "static-table",
    static_model2vec: "static-model2vec",
    t5_mean: "t5-mean",
    t5_gated_mean: "t5-gated-mean",
    gemma3_mean_dense: "gemma3-mean-dense",
    gemma3_mean_wide: "gemma3-mean-wide",
    gemma3_published: "gemma3-published",
}
