//! Sockets and their protocols; connections that send too much or nothing at all.

use std::{
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use playhouse::{config::FileMode, server::ServerConfig};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    time::{sleep, timeout},
};

use crate::{
    PATIENCE,
    client::{Version, ask, connect, get, post},
    serve, streamed,
};

/// Returns all text that arrives until the server closes the connection.
async fn until_closed(connection: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A reset also ends the connection.
    let _ = timeout(PATIENCE, connection.read_to_end(&mut text)).await.unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http2_is_understood_at_once_without_tls() {
    let served = serve(ServerConfig::default()).await;
    let request = post("/v1/completions", &streamed());
    let (status, text) = ask(connect(&served).await, Version::Http2, request).await.unwrap();
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_is_served_and_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("playhouse.sock");
    let server = ServerConfig {
        uds: Some(path.clone()),
        uds_mode: FileMode(0o660),
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    for version in [Version::Http1, Version::Http2] {
        let connection = UnixStream::connect(&path).await.unwrap();
        let (status, text) = ask(connection, version, get("/v1/models")).await.unwrap();
        assert_eq!(status, 200);
        assert!(text.contains("demo"), "{text}");
    }
    served.stop().await;
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_or_too_large_headers_are_refused() {
    let server = ServerConfig {
        h11_max_header_count: 20,
        h11_max_incomplete_event_size: 16 << 10,
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    let many: String = (0..30).map(|i| format!("x-{i}: 1\r\n")).collect();
    let large = format!("x: {}\r\n", "y".repeat(32 << 10));
    for headers in [many, large] {
        let mut connection = connect(&served).await;
        let request = format!("GET /health HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        // The server may reject the request before all of it is sent.
        let _ = connection.write_all(request.as_bytes()).await;
        let answer = until_closed(&mut connection).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    let (status, _) = ask(connect(&served).await, Version::Http1, get("/health")).await.unwrap();
    assert_eq!(status, 200);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_and_slow_connections_are_closed() {
    let server = ServerConfig {
        header_timeout_secs: 1,
        keep_alive_timeout_secs: 3,
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    let began = Instant::now();
    let mut slow = connect(&served).await;
    slow.write_all(b"GET /health HTTP/1.1\r\nHost").await.unwrap();
    let mut idle = connect(&served).await;
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let busy = async {
        // An answer may take longer than both limits.
        let body = serde_json::json!({
            "prompt": "x", "max_tokens": 4000, "ignore_eos": true, "stream": true,
        });
        ask(connect(&served).await, Version::Http1, post("/v1/completions", &body)).await.unwrap()
    };
    let slow = async {
        until_closed(&mut slow).await;
        began.elapsed()
    };
    let idle = async {
        assert!(until_closed(&mut idle).await.starts_with("HTTP/1.1 200"));
        began.elapsed()
    };
    let (slow, idle, (status, text)) = tokio::join!(slow, idle, busy);
    assert!(slow >= Duration::from_secs(1) && slow < idle, "{slow:?}");
    assert!(idle >= Duration::from_secs(3), "{idle:?}");
    assert_eq!(status, 200);
    assert!(text.ends_with("data: [DONE]\n\n"));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_wait() {
    let served = serve(ServerConfig { max_connections: 1, ..ServerConfig::default() }).await;
    let first = connect(&served).await;
    sleep(Duration::from_millis(100)).await;
    let second = ask(connect(&served).await, Version::Http1, get("/health"));
    let mut second = std::pin::pin!(second);
    assert!(timeout(Duration::from_millis(300), &mut second).await.is_err());
    drop(first);
    let (status, _) = timeout(PATIENCE, second).await.unwrap().unwrap();
    assert_eq!(status, 200);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_do_not_hold_up_a_drain() {
    // No other limit ends the connections or the drain before the test has failed.
    let long = 10 * PATIENCE.as_secs();
    let server = ServerConfig {
        header_timeout_secs: long,
        keep_alive_timeout_secs: long,
        shutdown_timeout_secs: long,
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    let silent = connect(&served).await;
    let mut partial = connect(&served).await;
    partial.write_all(b"GET /hea").await.unwrap();
    let mut kept = connect(&served).await;
    kept.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    kept.read_exact(&mut [0; 12]).await.unwrap();
    timeout(PATIENCE, served.stop()).await.unwrap();
    drop((silent, partial, kept));
}
