//! Pooling over HTTP: long prompts in pieces, padding, lists of ten thousand, aborts, and
//! `/invocations`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use playhouse::{
    EngineConfig,
    api::{PoolingParams, PoolingTask, Prompt},
    config::{Convert, Device, PoolerConfig, Runner},
    server::ServerConfig,
};
use reqwest::Client;
use serde_json::{Value, json};

use crate::serving::Served;

const CONTEXT: usize = 16;

async fn served(change: impl FnOnce(&mut EngineConfig)) -> Served {
    let mut config = EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        device: Device::Cpu,
        runner: Runner::Pooling,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    change(&mut config);
    Served::start(config, ServerConfig::default()).await
}

/// A server whose texts may be longer than its context.
async fn served_in_pieces() -> Served {
    served(|config| {
        config.max_model_len = Some(CONTEXT);
        config.pooler_config = Some(PoolerConfig {
            enable_chunked_processing: true,
            max_embed_len: Some(3 * CONTEXT),
            ..PoolerConfig::default()
        });
    })
    .await
}

async fn post(served: &Served, route: &str, body: Value) -> (u16, Value) {
    let answer = Client::new().post(format!("{}{route}", served.url)).json(&body).send();
    let answer = answer.await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

async fn vector(served: &Served, ids: &[u32], activation: bool) -> Vec<f64> {
    let body = json!({"input": ids, "use_activation": activation});
    let (status, answer) = post(served, "/v1/embeddings", body).await;
    assert_eq!((status, &answer["usage"]["prompt_tokens"]), (200, &json!(ids.len())), "{answer}");
    serde_json::from_value(answer["data"][0]["embedding"].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_prompts_vector_is_the_mean_of_its_pieces() {
    let served = served_in_pieces().await;
    let ids: Vec<u32> = (20..60).collect();
    for is_normalized in [false, true] {
        let mut mean = Vec::new();
        for piece in ids.chunks(CONTEXT) {
            let vector = vector(&served, piece, is_normalized).await;
            mean.resize(vector.len(), 0.0);
            let share = piece.len() as f64 / ids.len() as f64;
            mean.iter_mut().zip(vector).for_each(|(sum, value): (&mut f64, f64)| {
                *sum += share * value;
            });
        }
        let length: f64 = mean.iter().map(|value| value * value).sum::<f64>().sqrt();
        let length = if is_normalized { length } else { 1.0 };
        let whole = vector(&served, &ids, is_normalized).await;
        for (value, expected) in whole.iter().zip(&mean) {
            assert!((value - expected / length).abs() < 1e-5, "{value} {expected}");
        }
    }
    let long: Vec<u32> = vec![7; 3 * CONTEXT + 1];
    let (status, answer) = post(&served, "/v1/embeddings", json!({"input": long})).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("input_tokens")), "{answer}");
    let (status, _) = post(&served, "/pooling", json!({"input": ids})).await;
    assert_eq!(status, 400, "only the routes of vectors take pieces");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn padding_is_counted() {
    let served = served(|config| config.max_model_len = Some(64)).await;
    let body = json!({"input": "a theatre", "padding": "max_length"});
    let (status, answer) = post(&served, "/v1/embeddings", body).await;
    match status {
        200 => assert_eq!(answer["usage"]["prompt_tokens"], 64),
        _ => assert_eq!((status, &answer["error"]["param"]), (400, &json!("padding")), "{answer}"),
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_inputs_are_one_request() {
    let served = served(|config| config.max_num_seqs = 64).await;
    let inputs: Vec<[u32; 1]> = (0..10_000).map(|index| [10 + index % 200]).collect();
    let body = json!({"input": inputs, "encoding_format": "base64"});
    let sent = tokio::spawn(
        Client::new().post(format!("{}/v1/embeddings", served.url)).json(&body).send(),
    );
    let (mut most_open, mut counts) = (0, Vec::new());
    while !sent.is_finished() {
        most_open = most_open.max(served.engine.open_requests());
        // `/metrics` counts the same events.
        counts.push(served.engine.look().await.totals.finished_requests);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer: Value = sent.await.unwrap().unwrap().json().await.unwrap();
    assert_eq!(answer["data"].as_array().unwrap().len(), 10_000);
    assert_eq!(answer["usage"]["prompt_tokens"], 10_000);
    // An ended request counts until its actors have forgotten it, which takes longer on a busy
    // machine.
    assert!(most_open <= 2 * 64, "{most_open} were open at a time");
    let between = counts.iter().filter(|count| (1..10_000).contains(*count)).count();
    assert!(between > 0, "no progress was seen: {counts:?}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_ends_its_list() {
    let served = served(|config| config.max_num_seqs = 4).await;
    let inputs: Vec<Vec<u32>> = (0..4_000).map(|index| vec![10 + index % 200; 64]).collect();
    let body = json!({ "input": inputs });
    let sent = tokio::spawn(
        Client::new().post(format!("{}/v1/embeddings", served.url)).json(&body).send(),
    );
    while served.engine.open_requests() == 0 {
        assert!(!sent.is_finished(), "it was answered too soon to leave");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sent.abort();
    until_open(&served, |count| count == 0).await;
    let pooled = served.engine.look().await.totals.finished_requests;
    assert!(pooled < inputs.len() as u64, "the whole list was pooled");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_request_may_be_sent_again() {
    let served = served(|config| config.max_num_seqs = 4).await;
    let inputs: Vec<Vec<u32>> = (0..4_000).map(|index| vec![10 + index % 200; 64]).collect();
    for body in [json!({"request_ids": ["mine"]}), json!({})] {
        let request = Client::new().post(format!("{}/v1/embeddings", served.url));
        let request = request.header("X-Request-Id", "mine").json(&json!({"input": inputs}));
        let sent = tokio::spawn(request.send());
        until_open(&served, |count| count > 0).await;
        let (status, answer) = post(&served, "/abort_requests", body).await;
        assert_eq!((status, &answer["status"]), (200, &json!("aborted")));
        let answer = sent.await.unwrap().unwrap();
        assert_eq!(answer.status(), 503);
        assert!(answer.headers().contains_key("retry-after"));
        // The next list begins when nothing of this one is open.
        until_open(&served, |count| count == 0).await;
    }
    served.stop().await;
}

/// Waits until the awaited number of requests is open.
async fn until_open(served: &Served, is_awaited: impl Fn(usize) -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_awaited(served.engine.open_requests()) {
        assert!(Instant::now() < limit, "{} requests are open", served.engine.open_requests());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invocations_are_those_of_the_models_work() {
    let pools = served(|_| ()).await;
    let (status, answer) = post(&pools, "/invocations", json!({"input": "a"})).await;
    assert_eq!((status, &answer["data"][0]["object"]), (200, &json!("embedding")), "{answer}");
    let body = json!({"query": "a", "documents": ["b", "a"]});
    let (status, answer) = post(&pools, "/invocations", body).await;
    assert_eq!((status, &answer["results"][0]["index"]), (200, &json!(1)), "{answer}");
    let (status, answer) =
        post(&pools, "/invocations", json!({"text_1": "a", "text_2": "a"})).await;
    assert_eq!((status, &answer["data"][0]["object"]), (200, &json!("score")), "{answer}");
    assert_eq!(post(&pools, "/invocations", json!({"nothing": 1})).await.0, 400);
    pools.stop().await;
    let both = served(|config| {
        (config.runner, config.convert) = (Runner::Generate, Convert::Embed);
    })
    .await;
    let (status, answer) = post(&both, "/invocations", json!({"input": "a"})).await;
    assert_eq!((status, &answer["data"][0]["object"]), (200, &json!("embedding")), "{answer}");
    let body = json!({"prompt": "a", "max_tokens": 2});
    assert_eq!(post(&both, "/invocations", body).await.0, 200);
    both.stop().await;
    let generates = served(|config| config.runner = Runner::Generate).await;
    assert_eq!(post(&generates, "/invocations", json!({"input": "a"})).await.0, 400);
    generates.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_of_a_result_is_leased_while_it_is_computed() {
    let served = served(|config| (config.max_num_seqs, config.max_num_batched_tokens) = (64, 64));
    let served = served.await;
    let (engine, width) =
        (served.engine.clone(), served.engine.model_info().heads.pooling[0].width);
    let num_tokens = 1_500;
    let prompt = Prompt::Tokens(vec![7; num_tokens]);
    let pooling = tokio::spawn(async move {
        engine.encode([prompt], PoolingParams::new(PoolingTask::TokenEmbed)).await
    });
    let mut most = 0;
    while !pooling.is_finished() {
        most = most.max(served.engine.memory().in_use());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let bytes = pooling.await.unwrap().unwrap()[0].pooled.bytes();
    assert_eq!(bytes, num_tokens * width * 4);
    assert!(most >= bytes, "{most} of {bytes} bytes were leased");
    assert_eq!(served.engine.memory().in_use(), 0);
    served.stop().await;
}

/// A model whose last layer is damaged has no vectors. JSON has no word for NaN.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vector_that_is_not_finite_is_an_error() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model/embedder");
    let folder = tempfile::TempDir::new().unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json", "1_Pooling", "2_Dense"] {
        std::os::unix::fs::symlink(source.join(name), folder.path().join(name)).unwrap();
    }
    std::fs::copy(source.join("modules.json"), folder.path().join("modules.json")).unwrap();
    let (dense, damaged) = (source.join("3_Dense"), folder.path().join("3_Dense"));
    std::fs::create_dir(&damaged).unwrap();
    std::fs::copy(dense.join("config.json"), damaged.join("config.json")).unwrap();
    let mut weights = std::fs::read(dense.join("model.safetensors")).unwrap();
    let header = 8 + u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
    weights[header..].fill(0xff);
    std::fs::write(damaged.join("model.safetensors"), weights).unwrap();
    let served = served(|config| config.model = folder.path().to_owned()).await;
    for _ in 0..2 {
        let (status, answer) = post(&served, "/v1/embeddings", json!({"input": "a"})).await;
        assert_eq!(status, 500, "{answer}");
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
    assert_eq!(
        Client::new().get(format!("{}/health", served.url)).send().await.unwrap().status(),
        200
    );
    served.stop().await;
}

/// `truncate_dim` cuts a vector at last, as in sentence-transformers. The pieces of a long prompt
/// are joined before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_vector_of_a_long_prompt_is_cut_after_it_is_joined() {
    const KEPT: usize = 5;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model/embedder");
    let copy = tempfile::TempDir::new().unwrap();
    for name in [
        "config.json",
        "model.safetensors",
        "modules.json",
        "tokenizer.json",
        "1_Pooling",
        "2_Dense",
        "3_Dense",
    ] {
        std::os::unix::fs::symlink(source.join(name), copy.path().join(name)).unwrap();
    }
    let load = async |folder: &Path| {
        served(|config| {
            config.model = folder.to_owned();
            config.max_model_len = Some(CONTEXT);
            config.pooler_config = Some(PoolerConfig {
                enable_chunked_processing: true,
                max_embed_len: Some(3 * CONTEXT),
                ..PoolerConfig::default()
            });
        })
        .await
    };
    let settings = copy.path().join("config_sentence_transformers.json");
    std::fs::write(settings, json!({"truncate_dim": KEPT}).to_string()).unwrap();
    let (whole, cut) = (load(&source).await, load(copy.path()).await);
    let long: Vec<u32> = (20..60).collect();
    for ids in [&long[..], &long[..CONTEXT]] {
        for is_normalized in [false, true] {
            let mut expected = vector(&whole, ids, is_normalized).await;
            expected.truncate(KEPT);
            assert_eq!(vector(&cut, ids, is_normalized).await, expected);
        }
    }
    whole.stop().await;
    cut.stop().await;
}

/// Serves a model of the tests of pooled pictures.
async fn served_pictures(name: &str) -> Served {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    served(|config| {
        config.model = root.join("tests/fidelity").join(name);
        config.dtype = playhouse::config::Dtype::Float32;
    })
    .await
}

fn picture(width: u32, height: u32) -> String {
    let mut file = std::io::Cursor::new(Vec::new());
    let colour = |x: u32, y: u32| image::Rgb([(x * y) as u8, (7 * x + y) as u8, 9]);
    let image = image::RgbImage::from_fn(width, height, colour);
    image.write_to(&mut file, image::ImageFormat::Png).unwrap();
    crate::images::data_url(&file.into_inner())
}

fn part(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn conversation(parts: Value) -> Value {
    json!({"messages": [{"role": "user", "content": parts}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_have_vectors_on_each_route() {
    let served = served_pictures("pictures/clip").await;
    let url = picture(40, 30);
    let (status, answer) = post(&served, "/v1/embeddings", conversation(json!([part(&url)]))).await;
    assert_eq!((status, &answer["usage"]["prompt_tokens"]), (200, &json!(1)), "{answer}");
    let vector = &answer["data"][0]["embedding"];
    assert_eq!(vector.as_array().map(Vec::len), Some(16), "{answer}");
    let (_, pooled) = post(&served, "/pooling", conversation(json!([part(&url)]))).await;
    assert_eq!(&pooled["data"][0]["data"], vector);
    let other = picture(30, 30);
    let body = json!({"images": [url, other]});
    let (status, embedded) = post(&served, "/v2/embed", body).await;
    assert_eq!(status, 200, "{embedded}");
    let vectors = embedded["embeddings"]["float"].as_array().unwrap();
    assert_eq!((vectors.len(), &vectors[0]), (2, vector));
    assert_ne!(&vectors[1], vector);
    let body = json!({"inputs": [{"content": [part(&url)]}]});
    let (_, embedded) = post(&served, "/v2/embed", body).await;
    assert_eq!(&embedded["embeddings"]["float"][0], vector);
    let batch = json!({"messages": [
        [{"role": "user", "content": [part(&url)]}], [{"role": "user", "content": [part(&url)]}],
    ]});
    let (_, answer) = post(&served, "/v1/embeddings", batch).await;
    assert_eq!(answer["data"].as_array().map(Vec::len), Some(2), "{answer}");
    assert_eq!(&answer["data"][1]["embedding"], vector);
    for (parts, why) in [
        (json!([part(&url), {"type": "text", "text": "a kettle"}]), "not both"),
        (json!([part(&url), part(&url)]), "At most 1 image"),
        (json!([part("data:image/png;base64,AAAA")]), "Failed to load image"),
    ] {
        let (status, answer) = post(&served, "/v1/embeddings", conversation(parts)).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(why), "{status}: {answer}");
    }
    let mut cut = conversation(json!([part(&url)]));
    cut["truncate_prompt_tokens"] = json!(4);
    let (status, answer) = post(&served, "/v1/embeddings", cut).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("truncate_prompt_tokens")));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_siglip_are_padded() {
    let served = served_pictures("pictures/siglip-narrow").await;
    let (status, answer) = post(&served, "/v1/embeddings", json!({"input": "a kettle"})).await;
    assert_eq!((status, &answer["usage"]["prompt_tokens"]), (200, &json!(50)), "{answer}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pictures_are_compared_with_texts() {
    let served = served_pictures("pictures/clip").await;
    let (url, other) = (picture(40, 30), picture(30, 30));
    let vector = async |body: Value| -> Vec<f64> {
        let (_, answer) = post(&served, "/v1/embeddings", body).await;
        serde_json::from_value(answer["data"][0]["embedding"].clone()).unwrap()
    };
    let text = vector(json!({"input": "a kettle"})).await;
    let mut cosines = Vec::new();
    for url in [&url, &other] {
        let image = vector(conversation(json!([part(url)]))).await;
        cosines.push(text.iter().zip(&image).map(|(a, b)| a * b).sum::<f64>());
    }
    // A list of contents, and one content.
    let listed = json!([{"content": [part(&url)]}, {"content": [part(&other)]}]);
    for (documents, count) in [(listed.clone(), 2), (listed[0].clone(), 1)] {
        let body = json!({"queries": "a kettle", "documents": documents});
        let (status, answer) = post(&served, "/score", body).await;
        let found = answer["data"].as_array().map(Vec::len);
        assert_eq!((status, found), (200, Some(count)), "{answer}");
        for (index, cosine) in cosines.iter().take(count).enumerate() {
            let found = answer["data"][index]["score"].as_f64().unwrap();
            assert!((found - cosine).abs() < 1e-5, "{found} {cosine}");
        }
    }
    let both = json!({"content": [part(&url), part(&other)]});
    let body = json!({"queries": "a kettle", "documents": both});
    let (status, answer) = post(&served, "/score", body).await;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 400 && message.contains("At most 1 image"), "{answer}");
    let body = json!({"query": {"content": [part(&url)]}, "documents": ["a kettle", listed[0]]});
    let (status, answer) = post(&served, "/rerank", body).await;
    assert_eq!((status, &answer["results"][0]["index"]), (200, &json!(1)), "{answer}");
    let [image, text] = [0, 1].map(|place| &answer["results"][place]["document"]);
    assert_eq!(*image, json!({"text": null, "multi_modal": [part(&url)]}));
    assert_eq!(*text, json!({"text": "a kettle", "multi_modal": null}));
    for (documents, field) in [
        (json!([{"content": []}]), "body.documents.0.content"),
        (json!([{"text": "a"}]), "body.documents"),
    ] {
        let body = json!({"queries": "a kettle", "documents": documents});
        let (status, answer) = post(&served, "/score", body).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(field)), "{answer}");
    }
    let body = json!({"queries": "a", "documents": listed, "max_tokens_per_doc": 4});
    let (status, answer) = post(&served, "/score", body).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("max_tokens_per_doc")));
    served.stop().await;
}

/// Settings of the processor are those of chats: a trusted client may give some.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compared_pictures_take_settings_of_their_processor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = EngineConfig {
        dtype: playhouse::config::Dtype::Float32,
        kv_cache_memory_bytes: Some(64 << 20),
        device: Device::Cpu,
        runner: Runner::Pooling,
        ..EngineConfig::new(root.join("tests/fidelity/pictures/clip"))
    };
    let url = picture(61, 83);
    let with = |resample: Value| {
        let kwargs = json!({ "resample": resample });
        let document = json!({"content": [part(&url)]});
        json!({"queries": "a kettle", "documents": document, "mm_processor_kwargs": kwargs})
    };
    let strict = Served::start(config.clone(), ServerConfig::default()).await;
    let (status, answer) = post(&strict, "/score", with(json!(2))).await;
    let param = &answer["error"]["param"];
    assert_eq!((status, param), (400, &json!("mm_processor_kwargs")), "{answer}");
    strict.stop().await;
    let settings = ServerConfig { trust_request_mm_kwargs: true, ..ServerConfig::default() };
    let served = Served::start(config, settings).await;
    let score = async |resample: i64| {
        let (status, answer) = post(&served, "/score", with(json!(resample))).await;
        assert_eq!(status, 200, "{answer}");
        let mut body = with(json!(resample));
        body["query"] = body["queries"].take();
        let (_, ranking) = post(&served, "/rerank", body).await;
        let score = answer["data"][0]["score"].as_f64().unwrap();
        let ranked = ranking["results"][0]["relevance_score"].as_f64().unwrap();
        assert!((score - ranked).abs() < 1e-6, "{score} {ranked}");
        score
    };
    let (bilinear, bicubic) = (score(2).await, score(3).await);
    assert!((bilinear - bicubic).abs() > 1e-5, "{bilinear} {bicubic}");
    served.stop().await;
}

/// A language model that ranks reads a pair as one text, or as a template writes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reranker_reads_pairs_with_pictures() {
    let folder = tempfile::TempDir::new().unwrap();
    let template = folder.path().join("template.jinja");
    std::fs::write(&template, "q: {{ messages[0].content }} d: {{ messages[1].content }}").unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let overrides = json!({
        "architectures": ["Qwen3VLForSequenceClassification"],
        "classifier_from_token": ["a", "b"], "is_original_qwen3_reranker": true,
    });
    let (url, mut lens) = (picture(40, 30), Vec::new());
    for chat_template in [None, Some(template)] {
        let served = served(|config| {
            config.model = root.join("tests/fidelity/vision/qwen3_vl");
            config.hf_overrides = serde_json::from_value(overrides.clone()).unwrap();
            config.chat_template = chat_template;
        })
        .await;
        let body = json!({"query": "kettle", "documents": [{"content": [part(&url)]}, "harbour"]});
        let (status, answer) = post(&served, "/rerank", body).await;
        assert_eq!(status, 200, "{answer}");
        let scores: Vec<f64> = (0..2)
            .map(|place| answer["results"][place]["relevance_score"].as_f64().unwrap())
            .collect();
        assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{answer}");
        assert!(scores[0] >= scores[1], "{answer}");
        lens.push(answer["usage"]["prompt_tokens"].as_u64().unwrap());
        served.stop().await;
    }
    assert!(lens[1] > lens[0], "the template writes more: {lens:?}");
}
