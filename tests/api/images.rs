//! Images over HTTP: broken, huge and forbidden ones. The model stands beside the repository.
//! Without it, the tests print a note and pass.
#![allow(clippy::print_stdout, reason = "a skipped test says so")]

use std::{io::Cursor, path::Path};

use futures_util::future::join_all;
use image::{ImageFormat, RgbImage};
use playhouse::{
    EngineConfig,
    config::{Device, Dtype},
    server::ServerConfig,
};
use reqwest::Client;
use serde_json::{Value, json};

use crate::serving::Served;

/// Serves a small LLaVA, if it is there.
async fn served(change: impl FnOnce(&mut EngineConfig, &mut ServerConfig)) -> Option<Served> {
    served_model("llava", change).await
}

/// Serves the small model with this name, if it is there.
pub(crate) async fn served_model(
    name: &str,
    change: impl FnOnce(&mut EngineConfig, &mut ServerConfig),
) -> Option<Served> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = root.join("../shared/conformance2/models").join(name);
    if !model.is_dir() {
        println!("skipped: no ../shared/conformance2 beside the repository");
        return None;
    }
    let mut engine = EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        max_model_len: Some(512),
        kv_cache_memory_bytes: Some(32 << 20),
        device: Device::Cpu,
        ..EngineConfig::new(model)
    };
    let mut server = ServerConfig::default();
    change(&mut engine, &mut server);
    Some(Served::start(engine, server).await)
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}

fn png(width: u32, height: u32) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let image = RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8, y as u8, 9]));
    image.write_to(&mut file, ImageFormat::Png).unwrap();
    file.into_inner()
}

pub(crate) fn data_url(file: &[u8]) -> String {
    format!("data:image/png;base64,{}", base64(file))
}

/// Asks about the images at `urls`. Returns the status and the answer.
async fn ask(served: &Served, urls: &[String]) -> (u16, Value) {
    let image = |url: &String| json!({"type": "image_url", "image_url": {"url": url}});
    let mut parts: Vec<Value> = urls.iter().map(image).collect();
    parts.push(json!({"type": "text", "text": "What is this?"}));
    let messages = json!([{"role": "user", "content": parts}]);
    let body = json!({"messages": messages, "max_tokens": 4, "temperature": 0});
    let request = Client::new().post(format!("{}/v1/chat/completions", served.url)).json(&body);
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_and_forbidden_images_are_refused_with_a_reason() {
    let any_domain = |_: &mut EngineConfig, server: &mut ServerConfig| {
        server.allowed_media_domains = vec!["*".to_owned()];
    };
    let Some(served) = served(any_domain).await else { return };
    let good = png(60, 50);
    // The first 33 bytes are the signature and the header.
    let mut bomb = good[..33].to_vec();
    bomb[16..24].copy_from_slice(&[0, 0, 0x27, 0x10, 0, 0, 0x27, 0x10]);
    let crc_is_checked = data_url(&bomb);
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    let port = served.url.rsplit(':').next().unwrap();
    let mut refused = vec![
        crc_is_checked,
        data_url(&damaged),
        data_url(&good[..good.len() / 2]),
        data_url(b"PK\x03\x04 an archive"),
        data_url(b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        data_url(b""),
        "data:image/png,plain".to_owned(),
        "data:image/png;base64,!".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
    ];
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"] {
        refused.push(format!("http://{host}:{port}/health"));
    }
    for url in refused {
        let (status, answer) = ask(&served, std::slice::from_ref(&url)).await;
        let shown: String = url.chars().take(80).collect();
        assert_eq!(status, 400, "{shown}: {answer}");
        assert!(answer["error"]["message"].is_string(), "{shown}: {answer}");
    }
    let (status, answer) = ask(&served, &[data_url(&good), data_url(&good)]).await;
    assert_eq!(status, 200, "{answer}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_large_images_wait_for_memory_or_are_refused() {
    let little = |engine: &mut EngineConfig, _: &mut ServerConfig| {
        engine.max_request_memory_bytes = Some(64 << 20);
        engine.mm_max_pixels = 3_000_000;
    };
    let Some(served) = served(little).await else { return };
    // Each is decoded in 14 million bytes.
    let urls: Vec<[String; 1]> = (0..12).map(|row| [data_url(&png(1_600, 1_500 + row))]).collect();
    let answers = join_all(urls.iter().map(|url| ask(&served, url))).await;
    let answered = answers.iter().filter(|(status, _)| *status == 200).count();
    assert!(answered > 0, "{answers:?}");
    for (status, answer) in answers {
        assert!(status == 200 || status == 503, "{status}: {answer}");
    }
    let (status, answer) = ask(&served, &[data_url(&png(2_000, 1_501))]).await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("3002000 pixels"), "{answer}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_image_is_known_until_it_is_forgotten() {
    let Some(served) = served(|_, _| ()).await else { return };
    let named = async |image: Value| {
        let part = json!({"type": "image_url", "image_url": image, "uuid": "pic-1"});
        let body = json!({"messages": [{"role": "user", "content": [part]}]});
        let request = Client::new().post(format!("{}/tokenize", served.url)).json(&body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let (_, sent) = named(json!({"url": data_url(&png(60, 50))})).await;
    let (status, again) = named(Value::Null).await;
    assert_eq!((status, &again), (200, &sent));
    let reset = Client::new().post(format!("{}/reset_mm_cache", served.url)).send().await.unwrap();
    assert_eq!(reset.status().as_u16(), 200);
    let (status, unknown) = named(Value::Null).await;
    let message = "Cache miss for image at index 0 but data is not provided.";
    assert_eq!((status, &unknown["error"]["message"]), (400, &json!(message)));
    served.stop().await;
}
