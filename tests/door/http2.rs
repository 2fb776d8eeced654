//! HTTP/2: streams that are not read, and connections that say much and ask nothing.

use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http2::{self, Connection, SendRequest},
    header::HOST,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use playhouse::server::ServerConfig;
use serde_json::json;
use tokio::{net::TcpStream, time::timeout};

use crate::{
    PATIENCE,
    client::{connect, get, post},
    serve,
    serving::Served,
};

type Driver = Connection<TokioIo<TcpStream>, String, TokioExecutor>;

/// A client that lets the server send `window` bytes of a stream that it does not read, and pings
/// all the while.
async fn client(served: &Served, window: u32) -> (SendRequest<String>, Driver) {
    let io = TokioIo::new(connect(served).await);
    http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_millis(100))
        .keep_alive_while_idle(true)
        .initial_stream_window_size(window)
        .initial_connection_window_size(1 << 20)
        .handshake(io)
        .await
        .unwrap()
}

async fn ask(sender: &SendRequest<String>, request: Request<String>) -> Response<Incoming> {
    let (mut parts, body) = request.into_parts();
    parts.uri = format!("http://localhost{}", parts.uri).parse().unwrap();
    parts.headers.remove(HOST);
    sender.clone().send_request(Request::from_parts(parts, body)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_not_read_is_reset_and_others_go_on() {
    let served = serve(ServerConfig { write_timeout_secs: 1, ..ServerConfig::default() }).await;
    let (sender, driver) = client(&served, 512).await;
    tokio::spawn(driver);
    let long = json!({"prompt": "x", "max_tokens": 4000, "ignore_eos": true, "stream": true});
    let unread = ask(&sender, post("/v1/completions", &long)).await;
    assert_eq!(unread.status(), 200);
    let began = Instant::now();
    while served.engine.open_requests() > 0 {
        assert!(began.elapsed() < PATIENCE, "the request goes on for a client that takes nothing");
        let short = json!({"prompt": "x", "max_tokens": 2});
        let other = ask(&sender, post("/v1/completions", &short)).await;
        assert_eq!(other.status(), 200);
        let body = to_bytes(Body::new(other.into_body()), usize::MAX).await.unwrap();
        assert!(body.ends_with(b"}"));
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    let rest = timeout(PATIENCE, to_bytes(Body::new(unread.into_body()), usize::MAX));
    assert!(rest.await.unwrap().is_err(), "the stream breaks off");
    assert_eq!(ask(&sender, get("/health")).await.status(), 200, "the connection does not");
    drop(sender);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_lives_for_its_time_whatever_it_pings() {
    let server = ServerConfig {
        header_timeout_secs: 1,
        keep_alive_timeout_secs: 4,
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    let (sender, driver) = client(&served, 1 << 16).await;
    let driver = tokio::spawn(driver);
    assert_eq!(ask(&sender, get("/health")).await.status(), 200);
    let began = Instant::now();
    let _ = timeout(PATIENCE, driver).await.unwrap();
    let lived = began.elapsed();
    assert!(lived >= Duration::from_millis(3_900) && lived < Duration::from_secs(10), "{lived:?}");
    served.stop().await;
}
