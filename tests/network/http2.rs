//! HTTP/2: streams that are not read, and connections that send pings but no requests.

use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use hyper::{
    Request, Response,
    body::Incoming,
    client::conn::http2::{self, Connection, SendRequest},
    header::HOST,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use playhouse::{EngineConfig, server::ServerConfig};
use serde_json::json;
use tokio::{
    net::TcpStream,
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    PATIENCE,
    client::{connect, get, post},
    engine, serve,
    serving::Served,
};

type Driver = Connection<TokioIo<TcpStream>, String, TokioExecutor>;

/// Connects a client that lets the server send `window` bytes of an unread stream. It pings all the
/// time.
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
    // The server may stop sending before the client sees the head of the answer.
    let began = Instant::now();
    let unread = ask(&sender, post("/v1/completions", &long)).await;
    assert_eq!(unread.status(), 200);
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
    // The time of the connection begins before the client sees the answer.
    let began = Instant::now();
    assert_eq!(ask(&sender, get("/health")).await.status(), 200);
    let _ = timeout(PATIENCE, driver).await.unwrap();
    let lived = began.elapsed();
    assert!(lived >= Duration::from_millis(3_900) && lived < Duration::from_secs(10), "{lived:?}");
    served.stop().await;
}

/// Large bodies at a time on one connection.
const BODIES: usize = 8;
const KIB: usize = 1 << 10;

/// Sends large bodies, which wait for memory, and then a small one. Returns whether the small one
/// was answered before any large one had waited its full time.
async fn is_small_first(served: &Served) -> bool {
    let held = served.engine.memory().in_use();
    let (sender, driver) = client(served, 1 << 16).await;
    tokio::spawn(driver);
    let (ended, mut ends) = mpsc::channel(BODIES + 1);
    let send = |is_small: bool, length: usize| {
        let (sender, ended) = (sender.clone(), ended.clone());
        let body = json!({"prompt": "x".repeat(length)});
        tokio::spawn(async move {
            let response = ask(&sender, post("/tokenize", &body)).await;
            let status = response.status().as_u16();
            let text = to_bytes(Body::new(response.into_body()), usize::MAX).await.unwrap();
            let has_waited = String::from_utf8_lossy(&text).contains("bytes were wanted");
            ended.send((is_small, status, has_waited)).await.unwrap();
        });
    };
    (0..BODIES).for_each(|_| send(false, 1 << 20));
    let began = Instant::now();
    while served.engine.memory().in_use() < held + 3 * 100 * KIB {
        assert!(began.elapsed() < PATIENCE, "the bodies do not arrive");
        sleep(Duration::from_millis(10)).await;
    }
    // The bodies fill the window that they have.
    sleep(Duration::from_millis(300)).await;
    send(true, 4 * KIB);
    let (mut is_first, mut is_open) = (true, true);
    for _ in 0..=BODIES {
        let (is_small, status, has_waited) = timeout(PATIENCE, ends.recv()).await.unwrap().unwrap();
        assert_eq!(status, if is_small { 200 } else { 503 });
        is_open &= !is_small;
        is_first &= !(is_open && has_waited);
    }
    is_first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_wait_for_memory_do_not_hold_up_others_of_their_connection() {
    let engine = EngineConfig { max_request_memory_bytes: Some(64 << 20), ..engine() };
    let served = Served::start(engine, ServerConfig::default()).await;
    let memory = served.engine.memory();
    let holder = memory.lease();
    // The rest of the memory is for small requests.
    holder.set(memory.request_limit(), None);
    let mut attempts = 0;
    // A large body waits a second. On a busy machine, a small one may take as long.
    while !is_small_first(&served).await {
        attempts += 1;
        assert!(attempts < 10, "the small one waits as long as the large ones");
    }
    drop(holder);
    served.stop().await;
}
