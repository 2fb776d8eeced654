//! Connections to small servers: handlers that panic, and accept loops that freeze.

use std::time::Instant;

use axum::{Router, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;

const REQUEST: &str = " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

struct Server {
    address: SocketAddr,
    listening: Listening,
    pulse: RuntimePulse,
}

fn apps(app: Router, frozen: Router) -> Apps {
    Apps { app: CurrentRoutes::new(app), frozen: CurrentRoutes::new(frozen) }
}

async fn serve(app: Router, frozen: Router) -> Server {
    let listener = Listener::from(TcpListener::bind("127.0.0.1:0").await.unwrap());
    let Address::Tcp(address) = listener.address().unwrap() else { panic!("it is TCP") };
    let (config, draining) = (ServerSettings::default(), CancellationToken::new());
    let (apps, pulse) = (apps(app, frozen), RuntimePulse::new());
    let listening = open(listener, apps, None, &config, draining, pulse.clone()).unwrap();
    Server { address, listening, pulse }
}

/// Returns the answer to a GET request. It is empty if the connection breaks.
async fn answer(address: SocketAddr, path: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(format!("GET {path}{REQUEST}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = connection.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_handler_that_panics_is_an_answer_like_others() {
    async fn panics() -> &'static str {
        panic!("on purpose")
    }
    let app = Router::new().route("/", get(async || "well")).route("/panic", get(panics));
    let server = serve(app, Router::new()).await;
    let panicked = answer(server.address, "/panic").await;
    assert!(panicked.starts_with("HTTP/1.1 500"), "{panicked}");
    assert!(panicked.contains("InternalServerError") && !panicked.contains("purpose"));
    let well = answer(server.address, "/").await;
    assert!(well.starts_with("HTTP/1.1 200") && well.ends_with("well"), "{well}");
    server.listening.close().await;
    assert!(TcpStream::connect(server.address).await.is_err(), "the port is free again");
}

/// A handler on the thread of the accept loop that blocks its thread freezes the loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_frozen_accept_loop_is_replaced() {
    const BLOCKED: Duration = Duration::from_secs(20);
    async fn blocks() -> &'static str {
        #[allow(clippy::disallowed_methods, reason = "on purpose")]
        std::thread::sleep(BLOCKED);
        "late"
    }
    let app = Router::new().route("/", get(async || "well"));
    let server = serve(app, Router::new().route("/blocks", get(blocks))).await;
    let began = Instant::now();
    // The watch corrects it at its next look. Until then one connection belongs to the loop itself.
    let blocked = loop {
        assert!(began.elapsed() < BLOCKED, "the loop never took a connection for itself");
        server.pulse.set(crate::server::health::pulse::Freeze { is_whole: true, stuck_threads: 0 });
        let mut blocked = Box::pin(answer(server.address, "/blocks"));
        if timeout(Duration::from_millis(500), &mut blocked).await.is_err() {
            break blocked;
        }
    };
    let blocked_at = Instant::now();
    let well = timeout(BLOCKED / 2, answer(server.address, "/")).await.unwrap();
    assert!(well.ends_with("well"), "{well}");
    // Four looks a second, twelve without a turn, and as long again for a slow machine.
    assert!(blocked_at.elapsed() < Duration::from_secs(8), "{:?}", blocked_at.elapsed());
    drop(blocked);
    server.listening.close().await;
}
