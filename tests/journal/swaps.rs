//! Swaps of the model of a server with a journal.

#[cfg(target_os = "linux")]
use std::{fs, path::Path};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::{
    check,
    client::{Ask, Reader, post, read},
    deaths::{go_on, long},
    other_model::other,
    server::Server,
    undisturbed, undisturbed_with,
};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");

async fn swap(client: &Client, server: &Server, model: &str) {
    let swapped = client.post(format!("{}/swap_model", server.url)).json(&json!({"model": model}));
    let swapped = swapped.send().await.unwrap();
    assert_eq!(swapped.status(), StatusCode::OK, "{}", swapped.text().await.unwrap());
}

/// Begins streams. Returns them with their open connections.
pub(crate) async fn begin(
    client: &Client,
    server: &Server,
    asks: &[Ask],
) -> Vec<(Reader, reqwest::Response)> {
    let begun = asks.iter().map(async |ask| {
        let mut reader = Reader::default();
        let response = post(client, &server.url, ask, None).await;
        let connection = read(response, &mut reader, |reader| reader.events.len() > 2).await;
        (reader, connection)
    });
    futures_util::future::join_all(begun).await
}

/// Forgets the connections of a server that was killed.
pub(crate) fn cut(begun: Vec<(Reader, reqwest::Response)>) -> Vec<Reader> {
    let (mut readers, connections): (Vec<_>, Vec<_>) = begun.into_iter().unzip();
    drop(connections);
    readers.iter_mut().for_each(Reader::lose_connection);
    assert!(readers.iter().all(|reader| !reader.is_complete()), "a stream ended before");
    readers
}

/// Continues streams to their ends, and compares each with the undisturbed one.
pub(crate) async fn finish(
    client: &Client,
    server: &Server,
    asks: &[Ask],
    readers: Vec<Reader>,
    expected: &[Value],
) {
    let reading = readers.into_iter().zip(asks).zip(expected).map(async |((reader, ask), all)| {
        let mut reader = reader;
        let last = reader.last_id().unwrap().to_owned();
        read(go_on(client, server, &last).await, &mut reader, |_| false).await;
        check(ask, &reader, all);
    });
    futures_util::future::join_all(reading).await;
}

async fn status_of(client: &Client, server: &Server, reader: &Reader) -> StatusCode {
    let (stream, _) = reader.last_id().unwrap().split_once(':').unwrap();
    let answer = client.get(format!("{}/v1/streams/{stream}", server.url)).send().await;
    answer.unwrap().status()
}

async fn metric(client: &Client, server: &Server, name: &str) -> f64 {
    let text = client.get(format!("{}/metrics", server.url)).send().await.unwrap();
    let text = text.text().await.unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("playhouse:{name}{{")));
    line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// All is killed after a swap, while both models have streams. A process with either model
/// continues the streams of its own, and keeps the others.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_both_models_go_on_after_the_process_was_killed() {
    let (folder, other, client) = (tempfile::tempdir().unwrap(), other(), Client::new());
    let other = other.path().to_str().unwrap();
    let asks: Vec<_> = (0..4).map(|number| long(number, 1_200)).collect();
    let expected = undisturbed(&asks).await;
    let expected_of_other = undisturbed_with(&asks, &["--model", other]).await;
    assert_ne!(expected, expected_of_other);
    let server = Server::start(Some(folder.path()), &[]);
    let first = begin(&client, &server, &asks).await;
    swap(&client, &server, other).await;
    let second = begin(&client, &server, &asks).await;
    server.kill();
    let (first, second) = (cut(first), cut(second));
    // The command line names the first model.
    let server = Server::start(Some(folder.path()), &[]);
    for reader in &second {
        assert_eq!(status_of(&client, &server, reader).await, StatusCode::NOT_FOUND);
    }
    assert_eq!(metric(&client, &server, "journal_other_model_answers").await, 4.0);
    finish(&client, &server, &asks, first, &expected).await;
    let log = server.kill();
    assert!(log.contains("4 answers of another model stay in"), "{log}");
    let server = Server::start(Some(folder.path()), &["--model", other]);
    // The clients of the first model may still ask for their streams.
    assert_eq!(metric(&client, &server, "journal_other_model_answers").await, 4.0);
    finish(&client, &server, &asks, second, &expected_of_other).await;
}

/// A swap to the model of kept answers continues them, and streams of an earlier process end on
/// their own model after a swap.
#[tokio::test(flavor = "multi_thread")]
async fn a_swap_continues_the_answers_of_its_model() {
    let (folder, other, client) = (tempfile::tempdir().unwrap(), other(), Client::new());
    let other = other.path().to_str().unwrap();
    let asks: Vec<_> = (0..3).map(|number| long(number, 1_000)).collect();
    let expected = undisturbed_with(&asks, &["--model", other]).await;
    let server = Server::start(Some(folder.path()), &["--model", other]);
    let begun = begin(&client, &server, &asks).await;
    server.kill();
    let mut readers = cut(begun);
    let server = Server::start(Some(folder.path()), &[]);
    assert_eq!(status_of(&client, &server, &readers[0]).await, StatusCode::NOT_FOUND);
    swap(&client, &server, other).await;
    let early = readers.split_off(1);
    finish(&client, &server, &asks[1..], early, &expected[1..]).await;
    // Its client has not come back yet.
    swap(&client, &server, DEMO).await;
    finish(&client, &server, &asks[..1], readers, &expected[..1]).await;
}

/// As a package manager does while the server runs.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn the_model_is_swapped_after_the_programs_file_was_replaced() {
    let (folder, client) = (tempfile::tempdir().unwrap(), Client::new());
    let program = Path::new(env!("CARGO_BIN_EXE_playhouse"));
    // A link stays on one file system.
    let place = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
    let installed = place.path().join("playhouse");
    fs::hard_link(program, &installed).unwrap();
    let server = Server::start_program(&installed, Some(folder.path()), &[]);
    fs::remove_file(&installed).unwrap();
    fs::write(&installed, "another program").unwrap();
    swap(&client, &server, DEMO).await;
}

/// An answer with a key is the same after a swap and the death of its process.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_a_key_outlives_its_model() {
    let (folder, other, client) = (tempfile::tempdir().unwrap(), other(), Client::new());
    let ask = async |server: &Server| {
        let request = client.post(format!("{}/v1/completions", server.url));
        let body = json!({"model": "demo", "prompt": "a", "max_tokens": 30, "temperature": 1});
        let response = request.header("Idempotency-Key", "k").json(&body).send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    let server = Server::start(Some(folder.path()), &[]);
    let first = ask(&server).await;
    assert_eq!(first.0, StatusCode::OK, "{}", first.1);
    swap(&client, &server, other.path().to_str().unwrap()).await;
    assert_eq!(ask(&server).await, first);
    server.kill();
    let flags = ["--model", other.path().to_str().unwrap()];
    let server = Server::start(Some(folder.path()), &flags);
    assert_eq!(ask(&server).await, first);
}
