//! Late chunking over HTTP and in Rust: the texts of a request are read as one, and each has the
//! mean of its own tokens.

use playhouse::{
    EngineConfig,
    api::{PoolingParams, PoolingTask, Prompt},
    config::{Device, PoolerConfig, Runner, SequencePooling},
    server::ServerConfig,
};
use reqwest::Client;
use serde_json::{Value, json};

use crate::serving::Served;

const TEXTS: [&str; 3] = ["A small theatre has a stage.", " The curtain rose", ". It rained."];

async fn served(pooling: SequencePooling) -> Served {
    let pooler = PoolerConfig {
        seq_pooling_type: Some(pooling),
        enable_chunked_processing: true,
        max_embed_len: Some(1024),
        ..PoolerConfig::default()
    };
    let config = EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        device: Device::Cpu,
        runner: Runner::Pooling,
        max_model_len: Some(64),
        max_num_batched_tokens: 16,
        max_num_seqs: 4,
        pooler_config: Some(pooler),
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    Served::start(config, ServerConfig::default()).await
}

async fn post(served: &Served, route: &str, body: Value) -> (u16, Value) {
    let answer = Client::new().post(format!("{}{route}", served.url)).json(&body).send();
    let answer = answer.await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

fn vectors(answer: &Value) -> Vec<Vec<f32>> {
    let data = answer["data"].as_array().unwrap().iter();
    data.map(|item| serde_json::from_value(item["embedding"].clone()).unwrap()).collect()
}

/// Returns the means of tokens between `ends`, computed from the vector of each token.
async fn means(served: &Served, ids: &[u32], ends: &[usize]) -> Vec<Vec<f32>> {
    let params = PoolingParams {
        use_activation: Some(false),
        ..PoolingParams::new(PoolingTask::TokenEmbed)
    };
    let tokens = served.engine.encode([Prompt::Tokens(ids.to_vec())], params).await.unwrap();
    let rows: Vec<&[f32]> = tokens[0].pooled.rows().collect();
    let starts = std::iter::once(&0).chain(ends);
    let mean = |(start, end): (&usize, &usize)| {
        let rows = &rows[*start..*end];
        let sum = |index: usize| rows.iter().map(|row| row[index]).sum::<f32>();
        (0..rows[0].len()).map(|index| sum(index) / rows.len() as f32).collect()
    };
    starts.zip(ends).map(mean).collect()
}

fn assert_close(one: &[Vec<f32>], other: &[Vec<f32>]) {
    assert_eq!(one.len(), other.len());
    for (a, b) in one.iter().flatten().zip(other.iter().flatten()) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_input_has_the_mean_of_its_tokens_within_all() {
    let served = served(SequencePooling::Mean).await;
    let plain = json!({"late_chunking": true, "use_activation": false});
    let body = |input: Value| {
        let mut body = plain.clone();
        body["input"] = input;
        body
    };
    let ids: Vec<u32> = (20..45).collect();
    let lists = json!([&ids[..7], &ids[7..20], &ids[20..]]);
    let (status, answer) = post(&served, "/v1/embeddings", body(lists)).await;
    assert_eq!((status, &answer["usage"]["prompt_tokens"]), (200, &json!(25)), "{answer}");
    assert_close(&vectors(&answer), &means(&served, &ids, &[7, 20, 25]).await);
    let (status, answer) = post(&served, "/v1/embeddings", body(json!(TEXTS))).await;
    assert_eq!((status, &answer["data"][2]["index"]), (200, &json!(2)), "{answer}");
    let of_texts = vectors(&answer);
    let (_, apart) = post(
        &served,
        "/v1/embeddings",
        json!({"input": TEXTS, "use_activation": false, "late_chunking": false}),
    )
    .await;
    assert_ne!(vectors(&apart)[1], of_texts[1], "the second text depends on the first one");
    let texts = TEXTS.map(str::to_owned).to_vec();
    let in_rust = served.engine.embed_late_chunking(texts).await.unwrap();
    let (_, normalized) =
        post(&served, "/v1/embeddings", json!({"input": TEXTS, "late_chunking": true})).await;
    assert_close(&vectors(&normalized), &in_rust);
    assert_eq!(served.engine.embed_late_chunking(Vec::new()).await, Ok(Vec::new()));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_as_one_is_refused() {
    let means = served(SequencePooling::Mean).await;
    let message = json!({"role": "user", "content": "a"});
    for (body, param) in [
        (json!({"input": ["a", ""]}), Some("input[1]")),
        (json!({"input": [vec![7; 40], vec![7; 25]]}), Some("input_tokens")),
        (json!({"input": ["a b c ".repeat(20), "rain ".repeat(40)]}), Some("input_tokens")),
        (json!({"input": ["a"], "truncate_prompt_tokens": 5}), Some("truncate_prompt_tokens")),
        (json!({"input": ["a"], "padding": "max_length"}), Some("padding")),
        (json!({"messages": [message]}), Some("late_chunking")),
        (json!({"input": []}), None),
    ] {
        let mut body = body;
        body["late_chunking"] = json!(true);
        let (status, answer) = post(&means, "/v1/embeddings", body).await;
        assert_eq!((status, answer["error"]["param"].as_str()), (400, param), "{answer}");
    }
    let body = json!({"input": ["a"], "late_chunking": true});
    let (status, answer) = post(&means, "/pooling", body.clone()).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("late_chunking")), "{answer}");
    // vLLM's own kind, a vector for so many tokens.
    let body_of_vllm = json!({"input": ["a"], "late_chunking_params": {"chunk_size": 4}});
    let (status, answer) = post(&means, "/pooling", body_of_vllm).await;
    let param = json!("late_chunking_params");
    assert_eq!((status, &answer["error"]["param"]), (400, &param), "{answer}");
    means.stop().await;
    let last = served(SequencePooling::Last).await;
    let (status, answer) = post(&last, "/v1/embeddings", body).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("late_chunking")), "{answer}");
    let text = answer["error"]["message"].as_str().unwrap();
    assert!(text.contains("does not pool vectors by the mean"), "{text}");
    last.stop().await;
}
