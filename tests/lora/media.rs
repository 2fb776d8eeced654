//! Adapters of requests that name the base model and have images: `default_mm_loras` over HTTP.

use std::io::Cursor;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use image::{ImageFormat, RgbImage};
use playhouse::{EngineConfig, server::ServerConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{config_of, folder, serving::Served};

/// Returns the URL of a small picture.
fn picture() -> String {
    let mut file = Cursor::new(Vec::new());
    let image = RgbImage::from_fn(20, 12, |x, y| image::Rgb([12 * x as u8, 20 * y as u8, 9]));
    image.write_to(&mut file, ImageFormat::Png).unwrap();
    format!("data:image/png;base64,{}", STANDARD.encode(file.into_inner()))
}

/// Returns the tokens of an answer with their log-probabilities.
async fn answer(served: &Served, model: Option<&str>, has_picture: bool) -> Value {
    let text = json!({"type": "text", "text": "What is it?"});
    let picture = json!({"type": "image_url", "image_url": {"url": picture()}});
    let content = if has_picture { json!([picture, text]) } else { json!([text]) };
    let body = json!({
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 4,
        "temperature": 0,
        "ignore_eos": true,
        "logprobs": true,
    });
    let url = format!("{}/v1/chat/completions", served.url);
    let response = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
    let status = response.status().as_u16();
    let answer: Value = response.json().await.unwrap();
    assert_eq!(status, 200, "{answer}");
    answer["choices"][0]["logprobs"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_picture_chooses_the_adapter_of_its_kind() {
    let files = TempDir::new().unwrap();
    let template = files.path().join("template.jinja");
    std::fs::write(&template, "{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
    let adapter = folder().join("adapters_phi4/phi4mm/a");
    let adapters = json!({ "image": adapter }).to_string();
    let start = |has_default: bool| {
        let default = has_default.then(|| serde_json::from_value(json!(adapters)).unwrap());
        let config = EngineConfig {
            tokenizer: None,
            chat_template: Some(template.clone()),
            default_mm_loras: default,
            ..config_of(folder().join("phi4/phi4mm"))
        };
        Served::start(config, ServerConfig::default())
    };
    let served = start(true).await;
    let adapted = answer(&served, None, true).await;
    assert_eq!(adapted, answer(&served, Some("image"), true).await);
    let plain_text = answer(&served, None, false).await;
    assert_ne!(plain_text, answer(&served, Some("image"), false).await);
    served.stop().await;

    let without = start(false).await;
    assert_ne!(adapted, answer(&without, None, true).await, "the adapter has no effect");
    assert_eq!(plain_text, answer(&without, None, false).await, "a text has no adapter");
    without.stop().await;
}
