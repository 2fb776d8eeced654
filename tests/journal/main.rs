//! Streams that outlive their connections and the process: by HTTP, from the program as a user runs
//! it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of a test may, as tests may")]

mod adapters;
mod client;
mod cuts;
mod deaths;
mod encryption;
mod images;
#[path = "../black_box/other_model.rs"]
#[allow(dead_code, reason = "the tests of swaps use the rest")]
mod other_model;
#[path = "../cli/process.rs"]
#[allow(dead_code, reason = "the tests of the command line use the rest")]
mod process;
mod server;
#[cfg(target_os = "linux")]
mod storm;
mod swaps;
#[cfg(target_os = "linux")]
mod upgrades;
mod wakes;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use client::{Ask, Reader, get, post, read, said};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use server::Server;

/// Sixteen streams of all kinds.
fn workload() -> Vec<Ask> {
    let messages =
        |index: usize| json!([{"role": "user", "content": format!("Tell me of {index}.")}]);
    let ask = |index: usize| {
        let (path, mut body) = match index % 8 {
            0 => ("/v1/completions", json!({"prompt": format!("One {index}"), "logprobs": 2})),
            1 => ("/v1/chat/completions", json!({"messages": messages(index), "logprobs": true})),
            2 => ("/v1/completions", json!({"prompt": format!("Two {index}"), "n": 3})),
            3 => (
                "/v1/completions",
                json!({
                    "prompt": format!("A number: {index}"),
                    "structured_outputs": {"regex": "([a-z]{3}[0-9]{2} ){60}"},
                }),
            ),
            4 => ("/v1/messages", json!({"messages": messages(index)})),
            5 => ("/v1/responses", json!({"input": format!("Say {index}")})),
            6 => ("/v1/chat/completions", json!({"messages": messages(index), "n": 2})),
            _ => (
                "/v1/completions",
                json!({"prompt": [format!("Three {index}"), "Four"], "stop": ["zq"], "echo": true}),
            ),
        };
        body["model"] = "demo".into();
        body["temperature"] = 1.into();
        body["stream"] = true.into();
        let tokens = 180 + index;
        match path {
            "/v1/responses" => body["max_output_tokens"] = tokens.into(),
            _ => body["max_tokens"] = tokens.into(),
        }
        if matches!(path, "/v1/completions" | "/v1/chat/completions") {
            body["stream_options"] = json!({"include_usage": true});
            body["return_token_ids"] = true.into();
        }
        if path != "/v1/messages" {
            body["ignore_eos"] = true.into();
            body["seed"] = (100 + index).into();
        } else {
            // This API has no seed, so only the most likely tokens are the same in each run.
            body["temperature"] = 0.into();
        }
        Ask { path, body }
    };
    (0..16).map(ask).collect()
}

/// Returns what an undisturbed server says.
async fn undisturbed(asks: &[Ask]) -> Vec<Value> {
    undisturbed_with(asks, &[]).await
}

/// Returns what an undisturbed server with these flags says.
async fn undisturbed_with(asks: &[Ask], flags: &[&str]) -> Vec<Value> {
    let server = Server::start(None, flags);
    let client = Client::new();
    let mut all = Vec::new();
    for ask in asks {
        let mut reader = Reader::default();
        read(post(&client, &server.url, ask, None).await, &mut reader, |_| false).await;
        assert!(reader.is_complete(), "{}", ask.body);
        all.push(said(&reader.events));
    }
    all
}

/// Checks that the joined events are those of an undisturbed run, and that no id comes twice.
fn check(ask: &Ask, reader: &Reader, expected: &Value) {
    assert!(reader.is_complete(), "{}", ask.body);
    assert_eq!(&said(&reader.events), expected, "{}", ask.body);
    let ids: Vec<_> = reader.events.iter().map(|event| event.id.clone().unwrap()).collect();
    let mut distinct = ids.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), ids.len(), "an event came twice: {ids:?}");
    if ask.path == "/v1/responses" {
        let number = |event: &client::Event| {
            let data: Value = serde_json::from_str(&event.data).unwrap();
            data["sequence_number"].as_u64().unwrap()
        };
        let numbers: Vec<_> = reader.events.iter().map(number).collect();
        assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    }
}

/// The whole process is killed twice while all streams run.
#[tokio::test(flavor = "multi_thread")]
async fn streams_go_on_after_the_process_was_killed() {
    let asks = workload();
    let expected = undisturbed(&asks).await;
    let folder = tempfile::tempdir().unwrap();
    let client = Client::new();
    let mut readers: Vec<Reader> = asks.iter().map(|_| Reader::default()).collect();
    for round in 0..2 {
        let server = Server::start(Some(folder.path()), &[]);
        let reading = readers.iter_mut().zip(&asks).enumerate().map(|(index, (reader, ask))| {
            let (client, url) = (client.clone(), server.url.clone());
            async move {
                let more = reader.events.len() + 3 + index;
                let last = reader.last_id().map(str::to_owned);
                let response = match &last {
                    Some(last) if index % 2 == 0 => get(&client, &url, ask, last).await,
                    last => post(&client, &url, ask, last.as_deref()).await,
                };
                // The connection stays open until the server dies.
                read(response, reader, |reader| reader.events.len() >= more).await
            }
        });
        let connections = futures_util::future::join_all(reading).await;
        server.kill();
        drop(connections);
        readers.iter_mut().for_each(Reader::lose_connection);
        let incomplete = readers.iter().filter(|reader| !reader.is_complete()).count();
        assert!(incomplete >= 8, "round {round}: only {incomplete} streams were cut off");
    }
    let server = Server::start(Some(folder.path()), &[]);
    for (ask, reader) in asks.iter().zip(&mut readers) {
        let last = reader.last_id().unwrap().to_owned();
        read(post(&client, &server.url, ask, Some(&last)).await, reader, |_| false).await;
    }
    for ((ask, reader), expected) in asks.iter().zip(&readers).zip(&expected) {
        check(ask, reader, expected);
    }
    let log = server.kill();
    assert!(log.contains("answers of an earlier process are continued"), "{log}");
}

/// Connections are cut at any byte, again and again. The server has no journal.
#[tokio::test(flavor = "multi_thread")]
async fn streams_go_on_after_their_connections_were_cut() {
    let asks = workload();
    let expected = undisturbed(&asks).await;
    let server = Server::start(None, &[]);
    let client = Client::new();
    let cut_often = asks.iter().zip(&expected).enumerate().map(|(index, (ask, expected))| {
        let (client, url) = (client.clone(), server.url.clone());
        async move {
            let mut reader = Reader::default();
            let mut cuts = 0;
            while !reader.is_complete() {
                let last = reader.last_id().map(str::to_owned);
                let response = post(&client, &url, ask, last.as_deref()).await;
                let mut left = 2_000 + 1_237 * ((index + cuts) % 7);
                cut_after(response, &mut reader, &mut left).await;
                reader.lose_connection();
                cuts += 1;
            }
            check(ask, &reader, expected);
            cuts
        }
    });
    let cuts: usize = futures_util::future::join_all(cut_often).await.into_iter().sum();
    assert!(cuts > 60, "only {cuts} connections were cut");
}

/// Reads some bytes, and drops the connection within an event.
async fn cut_after(mut response: reqwest::Response, reader: &mut Reader, left: &mut usize) {
    while let Ok(Some(bytes)) = response.chunk().await {
        let part = &bytes[..bytes.len().min(*left)];
        *left -= part.len();
        if reader.push(part) || *left == 0 {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_continued_with_its_own_key_and_request_alone() {
    let folder = tempfile::tempdir().unwrap();
    let keys = ["--api-key", "mine", "--api-key", "theirs"];
    let ask = Ask {
        path: "/v1/completions",
        body: json!({"prompt": "a", "max_tokens": 400, "stream": true, "ignore_eos": true}),
    };
    let server = Server::start(Some(folder.path()), &keys);
    let with_key = |key: &str| {
        let header = format!("Bearer {key}").parse().unwrap();
        let headers = [(reqwest::header::AUTHORIZATION, header)].into_iter().collect();
        Client::builder().default_headers(headers).build().unwrap()
    };
    let mut reader = Reader::default();
    let mine = with_key("mine");
    let response = post(&mine, &server.url, &ask, None).await;
    read(response, &mut reader, |reader| reader.events.len() > 2).await;
    server.kill();
    let server = Server::start(Some(folder.path()), &keys);
    let last = reader.last_id().unwrap();
    let (stream, _) = last.split_once(':').unwrap();
    let url = format!("{}/v1/streams/{stream}?after={last}", server.url);
    let theirs = with_key("theirs").get(&url).send().await.unwrap();
    assert_eq!(theirs.status(), StatusCode::NOT_FOUND);
    assert_eq!(Client::new().get(&url).send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let other = mine.post(format!("{}/v1/completions", server.url)).header("Last-Event-ID", last);
    let other = other.json(&json!({"prompt": "b", "stream": true})).send().await.unwrap();
    assert_eq!(other.status(), StatusCode::CONFLICT);
    assert_eq!(mine.get(&url).send().await.unwrap().status(), StatusCode::OK);
}

/// An answer with a key is made once, and is the same after the process was killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_key_is_computed_once() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::new();
    let ask = async |server: &Server, prompt: &str| {
        let request = client.post(format!("{}/v1/completions", server.url));
        let body = json!({"prompt": prompt, "max_tokens": 30, "temperature": 1});
        let request = request.header("Idempotency-Key", "k-1").json(&body);
        let response = request.send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    let server = Server::start(Some(folder.path()), &[]);
    let (first, second) = tokio::join!(ask(&server, "a"), ask(&server, "a"));
    assert_eq!(first.0, StatusCode::OK, "{}", first.1);
    assert_eq!(first, second);
    assert_eq!(ask(&server, "b").await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let metrics = client.get(format!("{}/metrics", server.url)).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let counted = metrics.lines().find(|line| line.contains("\"length\"")).unwrap_or_default();
    assert!(counted.ends_with(" 1"), "{counted}");
    server.kill();
    let server = Server::start(Some(folder.path()), &[]);
    assert_eq!(ask(&server, "a").await, first);
}

/// The log reports a damaged journal, and nothing panics.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_journal_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let ask = Ask {
        path: "/v1/completions",
        body: json!({"prompt": "a", "max_tokens": 400, "stream": true, "ignore_eos": true}),
    };
    let server = Server::start(Some(folder.path()), &[]);
    let mut reader = Reader::default();
    let response = post(&Client::new(), &server.url, &ask, None).await;
    read(response, &mut reader, |reader| reader.events.len() > 2).await;
    server.kill();
    let entries = |folder: &Path| {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let named = |mut paths: Vec<PathBuf>, name: &str| -> PathBuf {
        paths.retain(|path| path.to_str().unwrap().contains(name));
        paths.pop().unwrap()
    };
    let writer = named(entries(folder.path()), "writer-");
    let segment = named(entries(&writer), "segment-");
    let mut bytes = fs::read(&segment).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&segment, bytes).unwrap();
    let server = Server::start(Some(folder.path()), &[]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let log = server.kill();
    assert!(log.contains("the journal is damaged after"), "{log}");
}

/// A server that is asked to end continues what it had to cut off.
#[tokio::test(flavor = "multi_thread")]
async fn requests_that_a_drain_cuts_off_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let ask = Ask {
        path: "/v1/completions",
        body: json!({
            "prompt": "a", "max_tokens": 400, "stream": true, "ignore_eos": true, "seed": 3,
            "temperature": 1,
        }),
    };
    let expected = undisturbed(std::slice::from_ref(&ask)).await;
    let server = Server::start(Some(folder.path()), &["--shutdown-timeout", "0"]);
    let mut reader = Reader::default();
    let response = post(&Client::new(), &server.url, &ask, None).await;
    let connection = read(response, &mut reader, |reader| reader.events.len() > 2).await;
    server.terminate();
    drop(connection);
    assert!(!reader.is_complete());
    let server = Server::start(Some(folder.path()), &[]);
    let last = reader.last_id().unwrap().to_owned();
    let response = get(&Client::new(), &server.url, &ask, &last).await;
    read(response, &mut reader, |_| false).await;
    check(&ask, &reader, &expected[0]);
}
