//! Recordings of requests with pictures, and of those of a text encoder, are run again. The model
//! that sees stands beside the repository. Without it, its test prints a note and passes.
#![allow(clippy::print_stdout, reason = "the reason why a test is skipped")]

use std::path::Path;

use reqwest::Client;
use serde_json::json;
use tempfile::tempdir;

use crate::{
    engine_process::Arrivals,
    engine_process_media::asks,
    replay::{recordings, replay, report},
    server::Server,
};

/// Serves questions about pictures, of which two have the same one. Returns the folder of the
/// recordings.
async fn recorded(model: &str, more: &[&str]) -> tempfile::TempDir {
    let folder = tempdir().unwrap();
    let record = ["--model", model, "--dtype", "float32", "--record"];
    let flags = [&record[..], &[folder.path().to_str().unwrap()], more].concat();
    let server = Server::start(&flags);
    let (client, arrivals) = (Client::new(), Arrivals::new());
    crate::engine_process::replay(&client, &server.url, &asks(), &arrivals).await;
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    folder
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_with_pictures_is_run_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = root.join("../shared/conformance2/models/qwen2_5_vl");
    if !model.is_dir() {
        println!("skipped: no ../shared/conformance2 beside the repository");
        return;
    }
    let model = model.to_str().unwrap();
    let with = recorded(model, &["--record-media"]).await;
    let path = &recordings(with.path())[0];
    let whole = report(path, &[]);
    assert_eq!(whole["tokens_compared"], true);
    assert!(whole["tokens"].as_u64().unwrap() > 100, "{whole}");
    assert_eq!(report(path, &["--schedule-only"])["schedule"], whole["schedule"]);
    let hidden = path.with_extension("redacted");
    let (code, _, err) = replay(path, &["--redact", hidden.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(report(&hidden, &["--schedule-only"])["schedule"], whole["schedule"]);
    let sizes = [path, &hidden].map(|path| path.metadata().unwrap().len());
    assert!(sizes[1] * 2 < sizes[0], "{sizes:?}: the pictures are removed");

    let without = recorded(model, &[]).await;
    let path = &recordings(without.path())[0];
    let (code, _, err) = replay(path, &[]);
    assert!(code == Some(1) && err.contains("the server had no record_media"), "{err}");
    report(path, &["--schedule-only"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_of_a_text_encoder_is_run_again() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fidelity/texts/t5");
    let folder = tempdir().unwrap();
    let flags = ["serve", "--port", "0", "--model", model, "--served-model-name", "t5", "--record"];
    let flags = [&flags[..], &[folder.path().to_str().unwrap()]].concat();
    let server = Server::of(crate::process::playhouse(&flags));
    for text in ["a b c", "d e f g", "a b c"] {
        let body = json!({"model": "t5", "prompt": text, "max_tokens": 12, "ignore_eos": true});
        let url = format!("{}/v1/completions", server.url);
        let answer = Client::new().post(url).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    let whole = report(&recordings(folder.path())[0], &[]);
    assert_eq!((&whole["tokens_compared"], &whole["requests"]), (&json!(true), &json!(3)));
}
