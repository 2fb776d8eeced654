//! `/v1/audio/transcriptions` with a tiny model: answers do not depend on other requests or on
//! deaths, and bad sounds are refused.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use playhouse::{
    EngineConfig,
    api::{How, Role},
    config::{Device, Dtype},
    server::ServerConfig,
};
use serde_json::{Value, json};

use crate::serving::Served;

const EDGE: &str = "----a-line-between-two-parts";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech")
}

fn sound(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).unwrap()
}

async fn served() -> Served {
    let engine = EngineConfig {
        allow_chaos: true,
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        kv_cache_memory_bytes: Some(16 << 20),
        device: Device::Cpu,
        ..EngineConfig::new(folder().join("whisper"))
    };
    Served::start(engine, ServerConfig::default()).await
}

fn form(file: Option<&[u8]>, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    if let Some(file) = file {
        let name = "name=\"file\"; filename=\"a.wav\"\r\ncontent-type: audio/wav";
        let head = format!("--{EDGE}\r\ncontent-disposition: form-data; {name}\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(file);
        body.extend_from_slice(b"\r\n");
    }
    for (name, text) in fields {
        let head = format!("--{EDGE}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend_from_slice(format!("{head}{text}\r\n").as_bytes());
    }
    body.extend_from_slice(format!("--{EDGE}--\r\n").as_bytes());
    body
}

pub(crate) async fn post(
    served: &Served,
    route: &str,
    file: Option<&[u8]>,
    fields: &[(&str, &str)],
) -> (u16, Value) {
    let response = send(served, route, form(file, fields)).await;
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}

async fn send(served: &Served, route: &str, form: Vec<u8>) -> reqwest::Response {
    let url = format!("{}/v1/audio/{route}", served.url);
    let request = reqwest::Client::new()
        .post(url)
        .header("content-type", format!("multipart/form-data; boundary={EDGE}"))
        .body(form);
    request.send().await.unwrap()
}

/// Returns the events of a stream.
pub(crate) async fn stream(served: &Served, file: &[u8], fields: &[(&str, &str)]) -> Vec<Value> {
    let response = send(served, "transcriptions", form(Some(file), fields)).await;
    assert_eq!(response.status().as_u16(), 200);
    let text = response.text().await.unwrap();
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = events.filter(|event| *event != "[DONE]");
    events.map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// Returns the text of a sound.
async fn heard(served: &Served, name: &str, fields: &[(&str, &str)]) -> String {
    let fields = [fields, &[("max_completion_tokens", "20")]].concat();
    let (status, answer) = post(served, "transcriptions", Some(&sound(name)), &fields).await;
    assert_eq!(status, 200, "{answer}");
    answer["text"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_depend_on_their_sounds_alone() {
    let served = served().await;
    // A block of the KV cache is full of tokens that are the same for all sounds.
    let before = "a text that is longer than a block of the cache";
    let english = [("language", "en"), ("prompt", before)];
    let mut alone = Vec::new();
    for name in ["rising.wav", "noise.wav", "clicks.wav"] {
        alone.push(heard(&served, name, &english).await);
    }
    assert!(alone[0] != alone[1] && alone[1] != alone[2], "{alone:?}");
    assert_eq!(heard(&served, "rising.flac", &english).await, alone[0]);
    let killer = async {
        for role in [Role::Worker, Role::Scheduler, Role::KvCacheManager] {
            let _ = served.engine.chaos().strike(role, 0, How::Kill);
            tokio::task::yield_now().await;
        }
    };
    let together = async {
        tokio::join!(
            heard(&served, "clicks.wav", &english),
            heard(&served, "noise.wav", &english),
            heard(&served, "rising.wav", &english),
        )
    };
    let ((clicks, noise, rising), ()) = tokio::join!(together, killer);
    assert_eq!([rising, noise, clicks], alone[..]);
    served.stop().await;
}

/// The model takes a second at once (`chunk_length`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_seconds_of_a_sound_are_heard() {
    let served = served().await;
    let of = async |names: [&str; 2]| {
        let mut file = sound(names[0]);
        file.extend_from_slice(&sound(names[1])[44..]);
        let len = file.len() as u32;
        file[4..8].copy_from_slice(&(len - 8).to_le_bytes());
        file[40..44].copy_from_slice(&(len - 44).to_le_bytes());
        let fields = [("language", "en"), ("max_completion_tokens", "20")];
        let (status, answer) = post(&served, "transcriptions", Some(&file), &fields).await;
        assert_eq!((status, &answer["usage"]["seconds"]), (200, &Value::from(2)), "{answer}");
        answer["text"].as_str().unwrap().to_owned()
    };
    assert_ne!(of(["rising.wav", "noise.wav"]).await, of(["rising.wav", "clicks.wav"]).await);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_sounds_are_refused() {
    let served = served().await;
    let whole = sound("rising.wav");
    let truncated = &whole[..20_000];
    let mut long = whole[..44].to_vec();
    // 5,000 seconds of silence, a thousand samples each.
    long[24..28].copy_from_slice(&1000u32.to_le_bytes());
    long[28..32].copy_from_slice(&2000u32.to_le_bytes());
    long[40..44].copy_from_slice(&10_000_000u32.to_le_bytes());
    long.resize(44 + 10_000_000, 0);
    let huge = vec![0; 26 << 20];
    let broken = [&b""[..], b"not a sound", &whole[..44], truncated, &long, &huge];
    for file in broken {
        let (status, answer) = post(&served, "transcriptions", Some(file), &[]).await;
        assert_eq!(status, 400, "{} bytes: {answer}", file.len());
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
    for (field, text) in [
        ("language", "klingon"),
        ("temperature", "warm"),
        ("temperature", "9"),
        ("stream", "perhaps"),
        ("max_completion_tokens", "0"),
        ("max_completion_tokens", "-1"),
        ("response_format", "srt"),
        ("stream_include_usage", "true"),
        ("use_beam_search", "true"),
        ("n", "2"),
        ("hotwords", "Zaphod"),
        ("timestamp_granularities[]", "letter"),
    ] {
        let (status, answer) = post(&served, "translations", Some(&whole), &[(field, text)]).await;
        assert_eq!(status, 400, "{field} {text}: {answer}");
    }
    let (status, answer) = post(&served, "transcriptions", None, &[("file", "a text")]).await;
    assert_eq!((status, &answer["error"]["param"]), (400, &"body.file".into()));
    let taken = [("language", "en"), ("n", "1"), ("timestamp_granularities[]", "word")];
    assert!(!heard(&served, "rising.wav", &taken).await.is_empty());
    served.stop().await;
}

/// A batch has no form: as in vLLM, its body is an object, with the URL of the file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_names_its_sounds_by_their_urls() {
    let served = served().await;
    let english = [("language", "en")];
    let expected = heard(&served, "rising.wav", &english).await;
    let metrics = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder().handle();
    let routes =
        playhouse::server::InProcess::new(served.engine.clone(), ServerConfig::default(), metrics);
    let routes = routes.unwrap();
    let ask = async |body: Value| {
        let answer = routes.post("/v1/audio/transcriptions", body.to_string()).await;
        (answer.status, serde_json::from_slice::<Value>(&answer.body).unwrap())
    };
    let file = base64::engine::general_purpose::STANDARD.encode(sound("rising.wav"));
    let url = format!("data:audio/wav;base64,{file}");
    let body = json!({"file_url": url, "language": "en", "max_completion_tokens": 20});
    let (status, answer) = ask(body).await;
    assert_eq!((status, &answer["text"]), (200, &json!(expected)), "{answer}");
    for (body, part) in [
        (json!({"language": "en"}), "file_url"),
        (json!({"file": file, "file_url": url}), "Use 'file_url' instead"),
        (json!({"file_url": "ftp://x/y.wav"}), "HTTP, data or file URL"),
        (json!({"file_url": "http://x/y.wav"}), "domain"),
    ] {
        let (status, answer) = ask(body).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(part), "{answer}");
    }
    // A server's clients send forms.
    let request = reqwest::Client::new().post(format!("{}/v1/audio/transcriptions", served.url));
    let answer = request.json(&json!({"file_url": url})).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 400);
    served.stop().await;
}
