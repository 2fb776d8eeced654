//! Processes that die again and again while the same requests are computed.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

use crate::{
    client::{Ask, Reader, post, read},
    server::Server,
    undisturbed,
};

/// Returns a request that is computed for longer than a process takes to start.
pub(crate) fn long(number: usize, max_tokens: usize) -> Ask {
    let body = json!({
        "model": "demo", "prompt": format!("Number {number}"), "max_tokens": max_tokens,
        "stream": true, "ignore_eos": true, "temperature": 1, "seed": number,
    });
    Ask { path: "/v1/completions", body }
}

/// Continues a stream that the server may hold back.
pub(crate) async fn go_on(client: &Client, server: &Server, last: &str) -> Response {
    let (stream, _) = last.split_once(':').unwrap();
    let url = format!("{}/v1/streams/{stream}?after={last}", server.url);
    for _ in 0..3_000 {
        let response = client.get(&url).send().await.unwrap();
        if response.status() != StatusCode::SERVICE_UNAVAILABLE {
            return response;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the stream is held back for ever");
}

/// Waits until a request is computed.
async fn until_running(server: &Server) {
    let metrics = format!("{}/metrics", server.url);
    let (client, limit) = (Client::new(), Instant::now() + Duration::from_secs(60));
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        let response = client.get(&metrics).timeout(left).send().await.unwrap();
        let text = response.text().await.unwrap();
        let running = text.lines().find(|line| line.starts_with("playhouse:num_requests_running"));
        if running.is_some_and(|line| !line.ends_with(" 0")) {
            return;
        }
        assert!(Instant::now() < limit, "no request is computed: {running:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Starts so many processes, one after the other, and kills each while it computes the answers.
async fn kill_more(folder: &Path, count: usize) {
    for _ in 0..count {
        let server = Server::start(Some(folder), &[]);
        until_running(&server).await;
        server.kill();
    }
}

/// Begins the streams, and kills so many processes while they are computed.
async fn kill(folder: &Path, count: usize, asks: &[Ask]) -> Vec<Reader> {
    let client = Client::new();
    let server = Server::start(Some(folder), &[]);
    let begun = asks.iter().map(async |ask| {
        let mut reader = Reader::default();
        let response = post(&client, &server.url, ask, None).await;
        let connection = read(response, &mut reader, |reader| reader.events.len() > 1).await;
        (reader, connection)
    });
    let (mut readers, connections): (Vec<_>, Vec<_>) =
        futures_util::future::join_all(begun).await.into_iter().unzip();
    server.kill();
    drop(connections);
    readers.iter_mut().for_each(Reader::lose_connection);
    kill_more(folder, count - 1).await;
    readers
}

/// The only request that was computed at five deaths is not computed again.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_at_five_deaths_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let readers = kill(folder.path(), 5, &[long(0, 4_000)]).await;
    let last = readers[0].last_id().unwrap();
    let mut logs = String::new();
    for _ in 0..2 {
        let server = Server::start(Some(folder.path()), &[]);
        let mut ended = Reader::default();
        read(go_on(&Client::new(), &server, last).await, &mut ended, |_| false).await;
        let is_error = |event: &crate::client::Event| event.data.contains("request_quarantined");
        assert!(ended.events.iter().any(is_error), "{ended:?}");
        logs.push_str(&server.kill());
    }
    assert!(logs.contains("an answer has killed its processes and is ended"), "{logs}");
}

/// The same for a request with a key: it gets the error as long as it would get its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_key_at_five_deaths_is_refused() {
    let mut body = long(0, 4_000).body;
    body["stream"] = false.into();
    refused_at_five_deaths(body).await;
}

/// No acceptance in the journal names the requests of a beam search.
#[tokio::test(flavor = "multi_thread")]
async fn a_beam_search_at_five_deaths_is_refused() {
    let body = json!({
        "model": "demo", "prompt": "Number 0", "max_tokens": 4_000, "n": 2,
        "use_beam_search": true, "ignore_eos": true,
    });
    refused_at_five_deaths(body).await;
}

/// Kills five processes while they compute a request with a key, and the sixth one refuses it.
async fn refused_at_five_deaths(body: Value) {
    let folder = tempfile::tempdir().unwrap();
    let client = Client::new();
    let ask = |server: &Server| {
        let request = client.post(format!("{}/v1/completions", server.url));
        request.header("Idempotency-Key", "k").json(&body).send()
    };
    let server = Server::start(Some(folder.path()), &[]);
    let asked = tokio::spawn(ask(&server));
    until_running(&server).await;
    server.kill();
    asked.await.unwrap().unwrap_err();
    kill_more(folder.path(), 4).await;
    let server = Server::start(Some(folder.path()), &[]);
    for _ in 0..2 {
        let refused = ask(&server).await.unwrap();
        assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let refused: Value = refused.json().await.unwrap();
        assert_eq!(refused["error"]["message"], "request_quarantined", "{refused}");
    }
}

/// Among several requests, each may be the cause. They are computed a few at a time, and none of
/// them is lost.
#[tokio::test(flavor = "multi_thread")]
async fn suspects_are_computed_a_few_at_a_time_and_all_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let asks: Vec<_> = (0..6).map(|number| long(number, 700)).collect();
    let expected = undisturbed(&asks).await;
    let readers = kill(folder.path(), 3, &asks).await;
    let server = Server::start(Some(folder.path()), &[]);
    let client = Client::new();
    let reading =
        readers.into_iter().zip(&asks).zip(&expected).map(async |((mut reader, ask), all)| {
            let last = reader.last_id().unwrap().to_owned();
            read(go_on(&client, &server, &last).await, &mut reader, |_| false).await;
            crate::check(ask, &reader, all);
        });
    futures_util::future::join_all(reading).await;
    let log = server.kill();
    assert!(log.contains("computed a few at a time"), "{log}");
}

/// A server that its operator ends has not died of its requests.
#[tokio::test(flavor = "multi_thread")]
async fn restarts_do_not_count_as_deaths() {
    let folder = tempfile::tempdir().unwrap();
    let (ask, client) = (long(0, 700), Client::new());
    let expected = undisturbed(std::slice::from_ref(&ask)).await;
    let flags = ["--shutdown-timeout", "0"];
    let server = Server::start(Some(folder.path()), &flags);
    let mut reader = Reader::default();
    let response = post(&client, &server.url, &ask, None).await;
    let connection = read(response, &mut reader, |reader| reader.events.len() > 1).await;
    server.terminate();
    drop(connection);
    reader.lose_connection();
    for _ in 0..4 {
        Server::start(Some(folder.path()), &flags).terminate();
    }
    let server = Server::start(Some(folder.path()), &[]);
    let last = reader.last_id().unwrap().to_owned();
    read(go_on(&client, &server, &last).await, &mut reader, |_| false).await;
    crate::check(&ask, &reader, &expected[0]);
}
