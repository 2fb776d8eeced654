//! `/v1/completions` with an encoder-decoder: the prompt is the encoder's text.

use std::path::{Path, PathBuf};

use playhouse::{
    EngineConfig,
    api::{How, Role},
    config::{Device, Dtype, JsonObject},
    server::ServerConfig,
};
use serde_json::{Value, json};

use crate::serving::Served;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/texts/bart")
}

fn recorded() -> Vec<Value> {
    let golden = std::fs::read(folder().join("golden.json")).unwrap();
    serde_json::from_slice(&golden).unwrap()
}

fn engine() -> EngineConfig {
    EngineConfig {
        allow_chaos: true,
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        kv_cache_memory_bytes: Some(16 << 20),
        device: Device::Cpu,
        ..EngineConfig::new(folder())
    }
}

async fn served() -> Served {
    Served::start(engine(), ServerConfig::default()).await
}

async fn post(served: &Served, route: &str, body: &Value) -> (u16, Value) {
    let url = format!("{}/v1/{route}", served.url);
    let response = reqwest::Client::new().post(url).json(body).send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}

fn request(prompt: &Value) -> Value {
    json!({
        "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": true,
        "return_token_ids": true,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_depends_on_its_text_alone() {
    let (served, texts) = (served().await, recorded());
    let ask = |text: &Value| {
        // As in vLLM, an empty text is no prompt.
        let is_empty = text["text"] == json!("");
        let body = request(&text[if is_empty { "text_token_ids" } else { "text" }]);
        let served = &served;
        async move { post(served, "completions", &body).await }
    };
    let killer = async {
        for role in [Role::EncoderWorker, Role::Worker, Role::Scheduler] {
            let _ = served.engine.chaos().strike(role, 0, How::Kill);
            tokio::task::yield_now().await;
        }
    };
    let together = futures_util::future::join_all(texts.iter().map(ask));
    let (answers, ()) = tokio::join!(together, killer);
    for (text, (status, answer)) in texts.iter().zip(answers) {
        assert_eq!(status, 200, "{answer}");
        let choice = &answer["choices"][0];
        assert_eq!(choice["token_ids"], text["greedy_token_ids"], "{answer}");
        assert_eq!(choice["prompt_token_ids"], json!([2, 0]), "{answer}");
        let of_text = text["text_token_ids"].as_array().unwrap().len();
        let usage = json!({
            "prompt_tokens": of_text + 2, "completion_tokens": 24, "total_tokens": of_text + 26,
        });
        for (field, count) in usage.as_object().unwrap() {
            assert_eq!(answer["usage"][field], *count, "{field}: {answer}");
        }
    }
    // The text's tokens are the same prompt.
    let mut body = request(&texts[2]["text_token_ids"]);
    let (status, answer) = post(&served, "completions", &body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["token_ids"], texts[2]["greedy_token_ids"]);
    body["use_beam_search"] = json!(true);
    let (status, answer) = post(&served, "completions", &body).await;
    assert_eq!(status, 200, "{answer}");
    let of_text = texts[2]["text_token_ids"].as_array().unwrap().len();
    assert_eq!(answer["usage"]["prompt_tokens"], json!(of_text + 2), "{answer}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_requests_are_refused_with_their_reason() {
    let served = served().await;
    let (status, answer) = post(&served, "completions", &request(&json!("a".repeat(63)))).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("input_tokens")), "{answer}");
    assert!(message.contains("at most 64 tokens") && message.contains("least 65"), "{message}");
    let mut body = request(&json!("a"));
    body["echo"] = json!(true);
    let (status, answer) = post(&served, "completions", &body).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("echo")), "{answer}");
    let body = json!({"messages": [{"role": "user", "content": "a"}]});
    let (status, answer) = post(&served, "chat/completions", &body).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 400 && message.contains("chat template"), "{status} {message}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_chooses_the_first_token() {
    let overrides = json!({"forced_bos_token_id": 5}).as_object().unwrap().clone();
    let engine = EngineConfig { hf_overrides: Some(JsonObject(overrides)), ..engine() };
    let served = Served::start(engine, ServerConfig::default()).await;
    let (status, answer) = post(&served, "completions", &request(&json!("a"))).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["prompt_token_ids"], json!([2, 5]), "{answer}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_chooses_its_languages() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/texts/mbart-wide");
    let engine = EngineConfig { model, ..engine() };
    let served = Served::start(engine, ServerConfig::default()).await;
    let ask = |change: Value| {
        let mut body = request(&json!("a"));
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let served = &served;
        async move { post(served, "completions", &body).await }
    };
    let (status, answer) = ask(json!({"source_lang": "de_DE", "target_lang": "en_XX"})).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["prompt_token_ids"], json!([2, 5]), "{answer}");
    let (_, same) = ask(json!({"prompt": "a", "source_lang": "en_XX"})).await;
    let (_, default) = ask(json!({})).await;
    assert_eq!(same["choices"][0]["token_ids"], default["choices"][0]["token_ids"]);
    for (change, param, expected) in [
        (json!({"target_lang": "fr_XX"}), "target_lang", "de_DE, en_XX"),
        (json!({"source_lang": "English"}), "source_lang", "de_DE, en_XX"),
        (json!({"prompt": [7, 8], "source_lang": "de_DE"}), "source_lang", "token ids"),
        (
            json!({"source_lang": "de_DE", "add_special_tokens": false}),
            "source_lang",
            "add_special_tokens",
        ),
    ] {
        let (status, answer) = ask(change).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(expected), "{answer}");
    }
    served.stop().await;
    let served = self::served().await;
    let mut body = request(&json!("a"));
    body["target_lang"] = json!("en_XX");
    let (status, answer) = post(&served, "completions", &body).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("target_lang")), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("no languages"), "{answer}");
    served.stop().await;
}
