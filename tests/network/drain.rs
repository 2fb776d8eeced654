//! The answers of a server from the signal to its end.

use axum::body::{Body, to_bytes};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use playhouse::{api::PauseMode, server::ServerConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    PATIENCE,
    client::{Version, ask, connect, get, post},
    serve, streamed,
};

/// Returns an answer without a body on a connection that stays open.
async fn kept_probe(connection: &mut TcpStream) -> String {
    connection.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        connection.read_exact(&mut byte).await.unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_are_answered_until_the_last_stream_ends() {
    // No other limit ends the kept connection or the drain before the test has failed.
    let long = 10 * PATIENCE.as_secs();
    let server = ServerConfig {
        keep_alive_timeout_secs: long,
        shutdown_timeout_secs: long,
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    let (url, engine) = (served.url.clone(), served.engine.clone());
    let address = url.strip_prefix("http://").unwrap();
    let connect_again = || TcpStream::connect(address);
    // The stream stands still, so that the drain lasts as long as the test needs.
    engine.pause(PauseMode::Keep).await.unwrap();
    let (mut sender, driver) =
        http1::handshake(TokioIo::new(connect(&served).await)).await.unwrap();
    tokio::spawn(driver);
    let stream = tokio::spawn(async move {
        let response = sender.send_request(post("/v1/completions", &streamed())).await.unwrap();
        to_bytes(Body::new(response.into_body()), usize::MAX).await.unwrap()
    });
    let begun = async {
        while engine.open_requests() == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, begun).await.unwrap();
    let mut kept = connect(&served).await;
    assert!(kept_probe(&mut kept).await.starts_with("HTTP/1.1 200"));
    let stopped = tokio::spawn(served.stop());
    let refused = async {
        loop {
            let ready = ask(connect_again().await.unwrap(), Version::Http1, get("/readyz")).await;
            if ready.unwrap().0 == 503 {
                break;
            }
        }
    };
    timeout(PATIENCE, refused).await.unwrap();
    for version in [Version::Http1, Version::Http2] {
        for (path, expected) in [
            ("/health", 200),
            ("/ping", 200),
            ("/livez", 200),
            ("/readyz", 503),
            ("/metrics", 200),
            ("/v1/models", 503),
            ("/nothing", 503),
        ] {
            let answer = ask(connect_again().await.unwrap(), version, get(path)).await.unwrap();
            assert_eq!(answer.0, expected, "{path}: {}", answer.1);
        }
    }
    assert!(kept_probe(&mut kept).await.starts_with("HTTP/1.1 200"), "it outlives the signal");
    let mut refused = connect_again().await.unwrap();
    refused.write_all(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut text = String::new();
    timeout(PATIENCE, refused.read_to_string(&mut text)).await.unwrap().unwrap();
    assert!(text.to_lowercase().contains("\r\nconnection: close\r\n"), "{text}");
    assert!(text.to_lowercase().contains("\r\nretry-after: "), "{text}");
    assert!(!stopped.is_finished());
    engine.resume();
    let text = timeout(PATIENCE, stream).await.unwrap().unwrap();
    assert!(text.ends_with(b"data: [DONE]\n\n"), "the stream is not cut off");
    timeout(PATIENCE, stopped).await.unwrap().unwrap();
    assert_eq!(kept.read(&mut [0]).await.unwrap_or(0), 0, "idle connections end with the server");
    assert!(connect_again().await.is_err());
}
