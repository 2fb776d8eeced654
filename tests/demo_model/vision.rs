//! The model that sees answers questions about held-out pictures over HTTP. The pictures were drawn
//! by `examples/demo-model/evaluate_vision.py --record`, and were not in training.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use playhouse::{EngineConfig, server::ServerConfig};
use reqwest::Client;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::serving::Served;

/// Smallest number of right answers. With some instruction sets there are 15.
const AT_LEAST: usize = 14;

#[derive(Deserialize)]
struct Recorded {
    picture: String,
    question: String,
    answer: String,
}

/// Returns the server's answer to `content`, decoded greedily.
async fn answer(served: &Served, content: Value) -> String {
    let messages = json!([{"role": "user", "content": content}]);
    let body = json!({"messages": messages, "temperature": 0, "max_tokens": 64});
    let request = Client::new().post(format!("{}/v1/chat/completions", served.url)).json(&body);
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_answers_about_pictures_that_it_never_saw() {
    let served = Served::start(EngineConfig::new("demo-vision"), ServerConfig::default()).await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/demo_model/vision");
    let lines = include_str!("vision/answers.jsonl").lines();
    let recorded: Vec<Recorded> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(recorded.len() >= 12);
    let mut wrong = Vec::new();
    for Recorded { picture, question, answer: expected } in &recorded {
        let url = STANDARD.encode(std::fs::read(folder.join(picture)).unwrap());
        let url = format!("data:image/png;base64,{url}");
        let image = json!({"type": "image_url", "image_url": {"url": url}});
        let content = json!([image, {"type": "text", "text": question}]);
        let given = answer(&served, content).await;
        if given != *expected {
            wrong.push(format!("{picture}: {question} {expected} {given}"));
        }
    }
    let hello = answer(&served, json!("Hello!")).await;
    served.stop().await;
    assert!(recorded.len() - wrong.len() >= AT_LEAST, "{wrong:#?}");
    assert!(hello.contains("picture"), "{hello}");
}
