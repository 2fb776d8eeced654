//! Pooling in Rust and over HTTP. Results do not depend on the batch, the chunks, cached prefixes
//! or the deaths of workers. A server has the routes of its model's task alone.

use std::time::Duration;

use futures_util::future::join_all;
use playhouse::{
    Engine, EngineConfig,
    api::{How, PoolingParams, PoolingTask, Prompt, RawRequest, RequestError, Role},
    config::{Convert, PoolerConfig, Runner, SequencePooling},
    engine::PoolError,
    server::ServerConfig,
};
use reqwest::Client;
use serde_json::{Value, json};

use crate::serving::Served;

fn config(change: impl FnOnce(&mut EngineConfig)) -> EngineConfig {
    let mut config = EngineConfig {
        allow_chaos: true,
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        runner: Runner::Pooling,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    change(&mut config);
    config
}

async fn engine(change: impl FnOnce(&mut EngineConfig)) -> Engine {
    Engine::start(config(change)).await.unwrap()
}

/// Texts that share their beginning.
fn texts() -> Vec<Prompt> {
    let story = "Once upon a time a small theatre had a stage, a curtain and an audience. ";
    (0..6).map(|index| Prompt::Text(format!("{}{index}", story.repeat(3)))).collect()
}

fn pooling(pooling: SequencePooling) -> impl Fn(&mut EngineConfig) {
    move |config| {
        let seq_pooling_type = Some(pooling);
        config.pooler_config = Some(PoolerConfig { seq_pooling_type, ..PoolerConfig::default() });
    }
}

/// Returns the vectors of each text alone.
async fn alone(engine: &Engine) -> Vec<Vec<f32>> {
    let mut vectors = Vec::new();
    for text in texts() {
        vectors.extend(engine.embed([text]).await.unwrap());
    }
    vectors
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vector_depends_on_its_text_alone() {
    for kind in [SequencePooling::Last, SequencePooling::Mean, SequencePooling::Cls] {
        let whole = engine(pooling(kind)).await;
        let expected = alone(&whole).await;
        assert_eq!(whole.embed(texts()).await.unwrap(), expected, "{kind:?}: in one batch");
        assert_eq!(whole.embed(texts()).await.unwrap(), expected, "{kind:?}: again");
        whole.shutdown().await;
        let chunked = engine(|config| {
            pooling(kind)(config);
            (config.max_num_batched_tokens, config.max_num_seqs) = (7, 4);
        })
        .await;
        assert_eq!(chunked.embed(texts()).await.unwrap(), expected, "{kind:?}: in chunks");
        chunked.shutdown().await;
        let length = |vector: &Vec<f32>| vector.iter().map(|x| x * x).sum::<f32>();
        assert!(expected.iter().all(|vector| (length(vector) - 1.0).abs() < 1e-5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mean_is_that_of_all_tokens() {
    let engine = engine(pooling(SequencePooling::Mean)).await;
    let params = |task| PoolingParams { use_activation: Some(false), ..PoolingParams::new(task) };
    let mean = engine.encode(texts(), params(PoolingTask::Embed)).await.unwrap();
    let tokens = engine.encode(texts(), params(PoolingTask::TokenEmbed)).await.unwrap();
    for (mean, tokens) in mean.iter().zip(&tokens) {
        let num_tokens = tokens.prompt_token_ids.len();
        assert_eq!(tokens.pooled.rows().len(), num_tokens);
        for (index, mean) in mean.pooled.values.iter().enumerate() {
            let sum: f64 = tokens.pooled.rows().map(|row| f64::from(row[index])).sum();
            assert!((sum / num_tokens as f64 - f64::from(*mean)).abs() < 1e-5);
        }
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vectors_and_tokens_share_batches_while_actors_die() {
    let engine = engine(|config| {
        (config.runner, config.convert) = (Runner::Generate, Convert::Embed);
        (config.max_num_batched_tokens, config.max_num_seqs) = (16, 8);
    })
    .await;
    let expected = alone(&engine).await;
    let generate = || async {
        let mut request = RawRequest::new(Prompt::Text("Once upon a time".to_owned()));
        (request.params.seed, request.max_tokens) = (Some(3), Some(24));
        let mut submission = engine.submit(request).await.unwrap();
        let mut text = String::new();
        while let Some(delta) = submission.choices[0].next().await {
            text.push_str(&delta.text);
        }
        text
    };
    let told = generate().await;
    let killer = async {
        for role in [Role::Worker, Role::Scheduler, Role::KvCacheManager, Role::Detokenizer] {
            tokio::time::sleep(Duration::from_millis(15)).await;
            let _ = engine.chaos().strike(role, 0, How::Kill);
        }
    };
    let embed = async { join_all((0..4).map(|_| engine.embed(texts()))).await };
    let (vectors, again, ()) = tokio::join!(embed, generate(), killer);
    assert_eq!(again, told);
    for vectors in vectors {
        assert_eq!(vectors.unwrap(), expected);
    }
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_the_model_cannot_do_is_refused() {
    let engine = engine(|_| ()).await;
    let text = || Prompt::Text("Hi".to_owned());
    let refused = engine.submit(RawRequest::new(text())).await.unwrap_err();
    let supported = vec!["embed", "token_embed"];
    assert_eq!(refused, RequestError::Unsupported { task: "generate", supported });
    let refused = engine.classify([text()]).await.unwrap_err();
    assert!(matches!(refused, PoolError::Refused(RequestError::Unsupported { .. })));
    let params = PoolingParams { dimensions: Some(8), ..PoolingParams::new(PoolingTask::Embed) };
    assert!(engine.encode([text()], params).await.is_err());
    assert_eq!(engine.embed([]).await, Ok(Vec::new()));
    let scores = engine.score(&["a".to_owned()], &["a".to_owned(), "b".to_owned()]).await;
    let scores = scores.unwrap();
    assert!((scores[0] - 1.0).abs() < 1e-5 && scores[1] < 1.0, "{scores:?}");
    let documents = ["b".to_owned(), "a".to_owned()];
    let ranking = engine.rerank("a", &documents, Some(1)).await.unwrap();
    assert_eq!(ranking.iter().map(|ranked| ranked.index).collect::<Vec<_>>(), [1]);
    assert_eq!(engine.rerank("a", &[], None).await, Err(PoolError::Lengths));
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_has_the_routes_of_its_model_alone() {
    let served = Served::start(config(|_| ()), ServerConfig::default()).await;
    let post = async |route: &str, body: Value| {
        let answer = Client::new().post(format!("{}{route}", served.url)).json(&body).send();
        let answer = answer.await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap_or_default())
    };
    let (status, answer) = post("/v1/embeddings", json!({"input": ["a", "b c"]})).await;
    assert_eq!((status, answer["data"].as_array().unwrap().len()), (200, 2));
    let vector: Vec<f32> = serde_json::from_value(answer["data"][1]["embedding"].clone()).unwrap();
    let expected = served.engine.embed([Prompt::Text("b c".to_owned())]).await.unwrap();
    assert_eq!([vector], expected[..]);
    let documents = json!({"query": "a", "documents": ["b", "a"], "top_n": 1});
    let (status, answer) = post("/v1/rerank", documents).await;
    assert_eq!((status, answer["results"][0]["index"].as_u64()), (200, Some(1)));
    for route in ["/v1/completions", "/v1/chat/completions", "/v1/messages", "/classify"] {
        assert_eq!(post(route, json!({"prompt": "a", "input": "a"})).await.0, 404, "{route}");
    }
    for (body, param) in [
        (json!({}), Some("body.input")),
        (json!({"input": []}), None),
        (json!({"input": [[]]}), None),
        (json!({"input": ["a", ""]}), Some("prompt")),
        (json!({"input": "a", "dimensions": 4}), None),
        (json!({"input": "a", "encoding_format": "hex"}), Some("body.encoding_format")),
        (json!({"input": vec![1; 100_000]}), Some("input_tokens")),
    ] {
        let (status, answer) = post("/v1/embeddings", body).await;
        assert_eq!((status, answer["error"]["param"].as_str()), (400, param), "{answer}");
    }
    served.stop().await;
}
