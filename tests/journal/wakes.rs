//! Clients of restored streams that leave, or ask for what is not there, and come back.

use std::time::{Duration, Instant};

use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout_at};

use crate::{
    check,
    client::{Ask, Reader, get, post, read},
    server::Server,
    undisturbed,
};

fn ask() -> Ask {
    let body = json!({
        "model": "demo", "prompt": "a", "max_tokens": 300, "stream": true, "ignore_eos": true,
        "temperature": 1, "seed": 5, "n": 2,
    });
    Ask { path: "/v1/completions", body }
}

/// Begins a stream, and kills its server after some events.
async fn cut(folder: &std::path::Path, ask: &Ask) -> Reader {
    let server = Server::start(Some(folder), &[]);
    let mut reader = Reader::default();
    let response = post(&Client::new(), &server.url, ask, None).await;
    let connection = read(response, &mut reader, |reader| reader.events.len() > 4).await;
    server.kill();
    drop(connection);
    reader.lose_connection();
    reader
}

/// Sends the whole request for the rest of a stream, and leaves.
async fn ask_and_leave(server: &Server, last: &str, pause: Duration) {
    let (stream, _) = last.split_once(':').unwrap();
    let address = server.url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET /v1/streams/{stream}?after={last} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    tokio::time::sleep(pause).await;
}

/// The stream goes on in the first server, and has ended in the second: its requests begin only
/// when its client asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_while_its_stream_wakes_comes_back_for_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let ask = ask();
    let expected = undisturbed(std::slice::from_ref(&ask)).await;
    let reader = cut(folder.path(), &ask).await;
    let last = reader.last_id().unwrap();
    for _ in 0..2 {
        let server = Server::start(Some(folder.path()), &[]);
        for pause in 0..10 {
            ask_and_leave(&server, last, Duration::from_micros(100 * pause)).await;
        }
        let mut rest = Reader { events: reader.events.clone(), ..Reader::default() };
        read(until_there(&server, last).await, &mut rest, |_| false).await;
        check(&ask, &rest, &expected[0]);
        server.kill();
    }
}

/// Asks for the rest of a stream. Another connection may just be continuing it.
async fn until_there(server: &Server, last: &str) -> reqwest::Response {
    let (stream, _) = last.split_once(':').unwrap();
    let url = format!("{}/v1/streams/{stream}?after={last}", server.url);
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        // A limit of the request itself would also cut the stream that the caller reads.
        let answered = timeout_at(limit.into(), Client::new().get(&url).send()).await;
        let response = answered.unwrap().unwrap();
        match response.status() {
            StatusCode::OK => return response,
            StatusCode::SERVICE_UNAVAILABLE => {}
            status => panic!("{status}: {}", response.text().await.unwrap()),
        }
        assert!(Instant::now() < limit, "{} for a minute after {last}", response.status());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_not_there_leaves_the_stream_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let ask = ask();
    let expected = undisturbed(std::slice::from_ref(&ask)).await;
    let mut reader = cut(folder.path(), &ask).await;
    let server = Server::start(Some(folder.path()), &[]);
    let last = reader.last_id().unwrap().to_owned();
    let (stream, _) = last.split_once(':').unwrap();
    // Another number of choices, and more tokens than the stream can have.
    for wrong in ["9.0.0-7.4", "9.0.0-301.4,5", "9.0.0-5.4,301"] {
        let url = format!("{}/v1/streams/{stream}?after={wrong}", server.url);
        let response = Client::new().get(url).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{wrong}");
    }
    read(get(&Client::new(), &server.url, &ask, &last).await, &mut reader, |_| false).await;
    check(&ask, &reader, &expected[0]);
}

/// A server with other limits refuses the stream's request, and leaves it to a later one.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_be_written_now_is_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut ask = ask();
    ask.body["stop"] = json!(["zq", "qz"]);
    let expected = undisturbed(std::slice::from_ref(&ask)).await;
    let mut reader = cut(folder.path(), &ask).await;
    let last = reader.last_id().unwrap().to_owned();
    let (stream, _) = last.split_once(':').unwrap();
    let server = Server::start(Some(folder.path()), &["--max-stop-strings", "1"]);
    let url = format!("{}/v1/streams/{stream}?after={last}", server.url);
    for _ in 0..2 {
        let refused = Client::new().get(&url).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    }
    server.kill();
    let server = Server::start(Some(folder.path()), &[]);
    read(get(&Client::new(), &server.url, &ask, &last).await, &mut reader, |_| false).await;
    check(&ask, &reader, &expected[0]);
}
