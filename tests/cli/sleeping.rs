//! The memory that sleeping frees, as the operating system reports it.
#![cfg(target_os = "linux")]

use std::io::Read;

use crate::{device::software_gpu, server::Server};

const KV_CACHE: u64 = 256 << 20;

fn answer(server: &Server, path: &str, body: &str) -> String {
    let mut answer = String::new();
    server.post(path, body).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

fn text(server: &Server) -> String {
    let body = r#"{"model": "demo-model", "prompt": "Once", "max_tokens": 9, "temperature": 0}"#;
    let answer = answer(server, "/v1/completions", body);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_sleeper_holds_no_kv_cache_on_its_device_and_goes_on_as_before() {
    let Some(device) = software_gpu() else {
        eprintln!("skipped: there is no software GPU");
        return;
    };
    let size = KV_CACHE.to_string();
    let server = Server::start(&["--device", &device, "--kv-cache-memory-bytes", &size]);
    let before = text(&server);
    let awake = server.resident_bytes();
    answer(&server, "/sleep?level=1", "");
    let asleep = server.resident_bytes();
    assert!(asleep + KV_CACHE * 9 / 10 < awake, "{awake} bytes awake, {asleep} asleep");
    answer(&server, "/wake_up", "");
    assert_eq!(text(&server), before);
    assert!(server.resident_bytes() + KV_CACHE / 10 > awake, "it is there again");
}
