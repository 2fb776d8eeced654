//! A server on a socket that a service manager keeps open. While it restarts, clients wait.
#![cfg(target_os = "linux")]

use std::{
    fs::{self, File},
    net::TcpListener,
    os::{
        fd::OwnedFd,
        unix::net::{UnixDatagram, UnixListener, UnixStream},
    },
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use reqwest::Client;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    process::{Run, program},
    server::Server,
    stream::{begin, finish},
    upgrade::{BUILT, FLAGS, ask_at, ask_on, terminate, until_gone, upgrade},
};

/// The first argument is the program. Its standard input becomes descriptor 3.
const AS_SYSTEMD: &str = "exec 3<&0 </dev/null; export LISTEN_PID=${PID:-$$} LISTEN_FDS LISTEN_FDNAMES=http; exec \"$@\"";

/// Returns a run that gets `socket` as systemd hands it over.
fn activated(socket: impl Into<Stdio>, count: &str, more: &[&str]) -> Run {
    let arguments = [&["-c", AS_SYSTEMD, "sh", BUILT], &FLAGS[..], more].concat();
    program("sh", &arguments).env("LISTEN_FDS", count).stdin(socket)
}

/// Starts a server on a TCP socket of the test.
fn serve(socket: &TcpListener, more: &[&str]) -> Server {
    Server::of(activated(OwnedFd::from(socket.try_clone().unwrap()), "1", more))
}

fn bind() -> (TcpListener, String) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    (socket, url)
}

/// Waits for the end of a server that drains.
async fn drained(mut server: Server) {
    let pid = server.pid();
    terminate(pid.into());
    let code = tokio::task::spawn_blocking(move || server.ended()).await.unwrap();
    assert_eq!(code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_wait_while_a_killed_server_starts_again() {
    let (socket, url) = bind();
    let first = serve(&socket, &[]);
    assert_eq!(first.url, url, "the port of the settings is not bound");
    let calm = finish(begin(&Client::new(), &url, 0..1).await).await;
    drop(first);
    let mut waiting = TcpStream::connect(socket.local_addr().unwrap()).await.unwrap();
    let request = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    waiting.write_all(request.as_bytes()).await.unwrap();
    let second = serve(&socket, &[]);
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(finish(begin(&Client::new(), &url, 0..1).await).await, calm);
    drained(second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_under_load_refuses_nothing_and_cuts_no_stream() {
    let (socket, url) = bind();
    let mut server = serve(&socket, &[]);
    let client = Client::new();
    let calm = finish(begin(&client, &url, 0..3).await).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = [true, false].map(|is_new| ask_on(&url, is_new, &is_over));
    for _ in 0..2 {
        let running = begin(&client, &url, 0..3).await;
        let reading = tokio::spawn(finish(running));
        drained(server).await;
        server = serve(&socket, &[]);
        assert_eq!(reading.await.unwrap(), calm, "a stream ends in the process of its beginning");
    }
    is_over.store(true, Ordering::Relaxed);
    for asking in asking {
        assert!(asking.await.unwrap() > 0);
    }
    drained(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_see_no_variables_and_the_address_is_that_of_the_socket() {
    let (socket, url) = bind();
    // With the host of the settings, operators' routes would be closed.
    let server = serve(&socket, &["--host", "0.0.0.0"]);
    let engines = Client::new().get(format!("{url}/engines")).send().await.unwrap();
    assert_eq!(engines.status(), 200);
    let engines: Value = engines.json().await.unwrap();
    let pid = engines["engines"][0]["pid"].as_u64().unwrap();
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    assert!(!environment.contains("LISTEN_FDS") && !environment.contains("LISTEN_PID"));
    let before = fs::read_link(format!("/proc/{}/fd/3", server.pid())).unwrap();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let is_leaked = open.flat_map(|open| fs::read_link(open.path())).any(|open| open == before);
    assert!(!is_leaked, "the engine process holds {before:?}");
    drained(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgraded_server_leaves_the_file_of_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let socket = UnixListener::bind(&path).unwrap();
    // It is no reason to remove the file that the settings name it, too.
    let uds = ["--uds", path.to_str().unwrap()];
    let mut server = Server::of(activated(OwnedFd::from(socket.try_clone().unwrap()), "1", &uds));
    assert!(ask_at(&path, "GET /health").await.starts_with("HTTP/1.1 200"));
    let answer = ask_at(&path, "POST /upgrade").await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let pid = body["pid"].as_u64().unwrap();
    assert_eq!(server.ended(), Some(0));
    assert!(ask_at(&path, "GET /health").await.starts_with("HTTP/1.1 200"));
    terminate(pid);
    until_gone(pid).await;
    let third = Server::of(activated(OwnedFd::from(socket), "1", &[]));
    assert!(ask_at(&path, "GET /health").await.starts_with("HTTP/1.1 200"));
    drained(third).await;
    assert!(path.exists(), "it is the service manager's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgraded_server_lets_clients_wait_as_well() {
    let (socket, url) = bind();
    let mut server = serve(&socket, &[]);
    let client = Client::new();
    let (status, answer) = upgrade(&client, &url).await;
    assert_eq!((status, &answer["status"]), (200, &json!("upgraded")), "{answer}");
    assert_eq!(server.ended(), Some(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = ask_on(&url, true, &is_over);
    let calm = finish(begin(&client, &url, 0..1).await).await;
    let pid = answer["pid"].as_u64().unwrap();
    terminate(pid);
    until_gone(pid).await;
    let third = serve(&socket, &[]);
    assert_eq!(finish(begin(&client, &url, 0..1).await).await, calm);
    is_over.store(true, Ordering::Relaxed);
    assert!(asking.await.unwrap() > 0);
    drained(third).await;
}

#[test]
fn wrong_sockets_are_wrong_usage() {
    let fails = |source: Stdio, count: &str, expected: &str| {
        let told = activated(source, count, &[]).fails_with(2);
        assert!(told.contains("LISTEN_FDS") && told.contains(expected), "{told}");
    };
    let file = || Stdio::from(File::open("/dev/null").unwrap());
    fails(file(), "1", "fd 3 is not a socket");
    fails(file(), "2", "2 sockets; expected one listening stream socket");
    fails(file(), "some", "\"some\" is no number");
    let (one, _other) = UnixStream::pair().unwrap();
    fails(Stdio::from(OwnedFd::from(one)), "1", "the socket does not listen");
    let datagrams = UnixDatagram::unbound().unwrap();
    fails(Stdio::from(OwnedFd::from(datagrams)), "1", "fd 3 is not a valid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_of_another_process_are_left_alone() {
    let (socket, url) = bind();
    let run = activated(OwnedFd::from(socket), "1", &[]).env("PID", "1");
    let server = Server::of(run);
    assert_ne!(server.url, url);
    let health = Client::new().get(format!("{}/health", server.url)).send().await.unwrap();
    assert_eq!(health.status(), 200);
    drained(server).await;
}
