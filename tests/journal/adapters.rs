//! Streams of adapters that were loaded while an earlier process ran.

use std::{fs, path::Path};

use reqwest::{Client, StatusCode};
use serde_json::json;

use crate::{
    client::{Ask, Reader, get, post, read, said},
    server::Server,
};

const MODEL: &str = "llama-gqa-f16";

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity")
}

fn start(journal: Option<&Path>) -> Server {
    let model = folder().join("models").join(MODEL);
    let tokenizer = folder().join("../lora/tokenizer.json");
    let flags = [
        "--model",
        model.to_str().unwrap(),
        "--tokenizer",
        tokenizer.to_str().unwrap(),
        "--enable-lora",
        "--allow-runtime-lora-updating",
        "--max-lora-rank",
        "8",
        "--dtype",
        "float32",
    ];
    Server::start(journal, &flags)
}

/// Copies a recorded adapter.
fn copy(name: &str, to: &Path) {
    for file in fs::read_dir(folder().join("adapters").join(MODEL).join(name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

async fn load(server: &Server, path: &Path) {
    let url = format!("{}/v1/load_lora_adapter", server.url);
    let body = json!({"lora_name": "x", "lora_path": path.to_str().unwrap()});
    let loaded = Client::new().post(url).json(&body).send().await.unwrap();
    assert_eq!(loaded.status(), StatusCode::OK, "{}", loaded.text().await.unwrap());
}

fn ask(max_tokens: usize) -> Ask {
    let body = json!({
        "model": "x", "prompt": [5, 9, 7, 20, 31], "max_tokens": max_tokens, "stream": true,
        "ignore_eos": true, "return_token_ids": true,
    });
    Ask { path: "/v1/completions", body }
}

/// The next process has not loaded the adapter. The stream goes on with the same files, whether or
/// not it had ended, and does not with other files.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_goes_on_with_the_adapter_of_then() {
    let (journal, adapter) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    copy("a", adapter.path());
    let (client, ask) = (Client::new(), ask(100));
    let undisturbed = start(None);
    load(&undisturbed, adapter.path()).await;
    let mut expected = Reader::default();
    read(post(&client, &undisturbed.url, &ask, None).await, &mut expected, |_| false).await;
    undisturbed.kill();

    let server = start(Some(journal.path()));
    load(&server, adapter.path()).await;
    let mut reader = Reader::default();
    let response = post(&client, &server.url, &ask, None).await;
    let connection = read(response, &mut reader, |reader| reader.events.len() > 2).await;
    server.kill();
    drop(connection);
    reader.lose_connection();
    let last = reader.last_id().unwrap().to_owned();
    for _ in 0..2 {
        let server = start(Some(journal.path()));
        let mut rest = Reader { events: reader.events.clone(), ..Reader::default() };
        read(get(&client, &server.url, &ask, &last).await, &mut rest, |_| false).await;
        assert!(rest.is_complete());
        assert_eq!(said(&rest.events), said(&expected.events));
        server.terminate();
    }

    copy("b", adapter.path());
    let server = start(Some(journal.path()));
    let mut failed = Reader::default();
    read(get(&client, &server.url, &ask, &last).await, &mut failed, |_| false).await;
    let is_error =
        |event: &crate::client::Event| event.data.contains("changed after it was loaded");
    assert!(failed.events.iter().any(is_error), "{failed:?}");
}
