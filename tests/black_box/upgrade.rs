//! `POST /upgrade`: a running server goes on as another process. No connection is refused, and no
//! stream is lost.
#![cfg(target_os = "linux")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, UnixStream},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::{
    process::{playhouse, program},
    server::Server,
    stream::{begin, finish},
};

pub(crate) const FLAGS: [&str; 11] = [
    "serve",
    "--served-model-name",
    "demo",
    "--max-model-len",
    "512",
    "--max-num-seqs",
    "16",
    "--num-gpu-blocks-override",
    "400",
    "--port",
    "0",
];
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
pub(crate) const BUILT: &str = env!("CARGO_BIN_EXE_playhouse");
/// Longest time for the end of anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn upgrade(client: &Client, url: &str) -> (u16, Value) {
    let answer = client.post(format!("{url}/upgrade")).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Asks again and again until `is_over`, each time on a new connection or always on the same one.
/// Returns the number of answers.
pub(crate) fn ask_on(url: &str, is_new: bool, is_over: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let client = match is_new {
        true => Client::builder().pool_max_idle_per_host(0).build().unwrap(),
        false => Client::new(),
    };
    let (url, is_over) = (format!("{url}/v1/completions"), Arc::clone(is_over));
    tokio::spawn(async move {
        let body = json!({"model": "demo", "prompt": "Once", "max_tokens": 2});
        let mut count = 0;
        while !is_over.load(Ordering::Relaxed) {
            let answer = client.post(&url).json(&body).send().await.expect("no refused connection");
            assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
            count += 1;
        }
        count
    })
}

pub(crate) fn terminate(pid: u64) {
    assert!(Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap().success());
}

/// Waits for the end of a process that is no child of this one.
pub(crate) async fn until_gone(pid: u64) {
    let limit = Instant::now() + PATIENCE;
    let is_there = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while is_there() {
        assert!(Instant::now() < limit, "process {pid} does not end");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_serves_and_the_old_one_ends_its_streams() {
    let mut server = Server::of(playhouse(&FLAGS));
    let (client, url) = (Client::new(), server.url.clone());
    let calm = finish(begin(&client, &url, 0..4).await).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = [true, false].map(|is_new| ask_on(&url, is_new, &is_over));
    let running = begin(&client, &url, 0..4).await;
    let (status, answer) = upgrade(&client, &url).await;
    assert_eq!((status, &answer["status"]), (200, &json!("upgraded")), "{answer}");
    let second = answer["pid"].as_u64().unwrap();
    assert_eq!(finish(running).await, calm, "a stream ends in the old process");
    assert_eq!(server.ended(), Some(0));
    // The new process can hand over as well.
    let running = begin(&client, &url, 0..4).await;
    let (status, answer) = upgrade(&client, &url).await;
    assert_eq!(status, 200, "{answer}");
    let third = answer["pid"].as_u64().unwrap();
    assert_eq!(finish(running).await, calm);
    until_gone(second).await;
    is_over.store(true, Ordering::Relaxed);
    for asking in asking {
        assert!(asking.await.unwrap() > 0);
    }
    assert_eq!(finish(begin(&client, &url, 0..4).await).await, calm);
    terminate(third);
    until_gone(third).await;
    assert!(client.get(format!("{url}/health")).send().await.is_err(), "the port is free");
    let log = tokio::task::spawn_blocking(|| server.log()).await.unwrap();
    assert_eq!(log.matches("drained: all requests were answered").count(), 3, "{log}");
}

/// Returns the new process that the command has reported.
fn pid_of(told: &str) -> u64 {
    let line = told.lines().find_map(|line| line.strip_prefix("process ")).unwrap();
    line.strip_suffix(" serves").unwrap().parse().unwrap()
}

/// Returns a file of the program that a test may replace.
fn own_program(folder: &TempDir) -> PathBuf {
    let file = folder.path().join("playhouse");
    fs::hard_link(BUILT, &file).or_else(|_| fs::copy(BUILT, &file).map(drop)).unwrap();
    file
}

/// Puts another file in the place of the program.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, file).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_program_leaves_the_old_process_serving() {
    let folder = tempfile::tempdir().unwrap();
    let file = own_program(&folder);
    let server = Server::of(program(&file, &FLAGS));
    let (client, url) = (Client::new(), server.url.clone());
    let calm = finish(begin(&client, &url, 0..2).await).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = ask_on(&url, true, &is_over);
    let running = begin(&client, &url, 0..2).await;
    let cases = [
        ("#!/bin/sh\nexit 3\n", "ended before it was ready"),
        ("#!/bin/sh\necho the model is lost\n", "the model is lost"),
        ("no program", "cannot be started"),
    ];
    for (text, expected) in cases {
        replace(&file, text);
        let (status, answer) = upgrade(&client, &url).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(status == 422 && message.contains(expected), "{status} {answer}");
    }
    let told = playhouse(&["upgrade", "--url", &url]).fails_with(1);
    assert!(told.contains("no upgrade: 422") && told.contains("cannot be started"), "{told}");
    assert_eq!(finish(running).await, calm);
    assert_eq!(finish(begin(&client, &url, 0..2).await).await, calm);
    // A program that starts again is taken.
    replace(&file, &format!("#!/bin/sh\nexec {BUILT} \"$@\"\n"));
    let told = playhouse(&["upgrade", "--url", &url]).finish();
    assert_eq!(told.0, Some(0), "{told:?}");
    let pid = pid_of(&told.2);
    is_over.store(true, Ordering::Relaxed);
    assert!(asking.await.unwrap() > 0);
    assert_eq!(finish(begin(&client, &url, 0..2).await).await, calm);
    terminate(pid);
    until_gone(pid).await;
}

/// A server whose upgrade starts a process that never serves.
struct NeverReady {
    server: Server,
    folder: TempDir,
}

impl NeverReady {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = own_program(&folder);
        let server = Server::of(program(&file, &FLAGS));
        let told = folder.path().join("pid");
        replace(&file, &format!("#!/bin/sh\necho $$ > {}\nexec sleep 600\n", told.display()));
        Self { server, folder }
    }

    /// Orders an upgrade. Returns its answer to come, and the id of the new process.
    async fn begin_upgrade(&self) -> (JoinHandle<(u16, Value)>, u64) {
        let (client, url) = (Client::new(), self.server.url.clone());
        let asked = tokio::spawn(async move { upgrade(&client, &url).await });
        let (limit, told) = (Instant::now() + PATIENCE, self.folder.path().join("pid"));
        loop {
            if let Ok(pid) = fs::read_to_string(&told).unwrap_or_default().trim().parse() {
                return (asked, pid);
            }
            assert!(Instant::now() < limit, "the new process does not start");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_during_an_upgrade_ends_the_new_process() {
    let mut upgraded = NeverReady::start();
    let (asked, pid) = upgraded.begin_upgrade().await;
    terminate(upgraded.server.pid().into());
    let (status, answer) = asked.await.unwrap();
    assert!(status == 422 && answer.to_string().contains("the server ends"), "{status} {answer}");
    assert_eq!(upgraded.server.ended(), Some(0));
    until_gone(pid).await;
}

async fn swap(client: &Client, url: &str, model: &str) -> (u16, Value) {
    let answer = client.post(format!("{url}/swap_model")).json(&json!({"model": model}));
    let answer = answer.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

fn assert_conflict((status, answer): &(u16, Value), expected: &str) {
    let error = &answer["error"];
    assert_eq!((*status, &error["type"]), (409, &json!("ConflictError")), "{answer}");
    assert_eq!(error["message"], expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_else_changes_the_server_during_an_upgrade() {
    let upgraded = NeverReady::start();
    let (client, url) = (Client::new(), upgraded.server.url.clone());
    let (asked, pid) = upgraded.begin_upgrade().await;
    assert_conflict(&swap(&client, &url, DEMO).await, "an upgrade is under way");
    assert_conflict(&upgrade(&client, &url).await, "another upgrade is under way");
    terminate(pid);
    assert_eq!(asked.await.unwrap().0, 422);
    let (status, answer) = swap(&client, &url, DEMO).await;
    assert_eq!(status, 200, "a failed upgrade holds up no swap: {answer}");
    let (status, answer) = upgrade(&client, &url).await;
    assert!(status == 409 && answer.to_string().contains("was swapped"), "{status} {answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_during_a_swap_is_refused() {
    let (hub, cache) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), tempfile::tempdir());
    let (endpoint, cache) = (format!("http://{}", hub.local_addr().unwrap()), cache.unwrap());
    let run = playhouse(&FLAGS).env("HF_ENDPOINT", &endpoint);
    let server = Server::of(run.env("HF_HUB_CACHE", cache.path().to_str().unwrap()));
    let (client, url) = (Client::new(), server.url.clone());
    let swapping = {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(async move { swap(&client, &url, "nobody/nothing").await })
    };
    let asks_for_files = timeout(PATIENCE, hub.accept()).await.unwrap();
    assert_conflict(&upgrade(&client, &url).await, "a swap of the model is under way");
    assert_conflict(&swap(&client, &url, DEMO).await, "another swap is under way");
    drop((hub, asks_for_files));
    let (status, answer) = swapping.await.unwrap();
    assert_eq!(status, 422, "{answer}");
    let (status, answer) = upgrade(&client, &url).await;
    assert_eq!(status, 200, "a failed swap holds up no upgrade: {answer}");
    let pid = answer["pid"].as_u64().unwrap();
    terminate(pid);
    until_gone(pid).await;
}

/// Sends a request without a body to a server that listens on a Unix socket. Returns its answer.
pub(crate) async fn ask_at(path: &Path, request: &str) -> String {
    let mut connection = UnixStream::connect(path).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_keeps_the_file_of_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let ask = async |request: &str| ask_at(&path, request).await;
    let uds = ["--uds", path.to_str().unwrap()];
    let mut server = Server::of(playhouse(&[&FLAGS[..], &uds].concat()));
    let (code, _, told) = playhouse(&["upgrade", "--uds", path.to_str().unwrap()]).finish();
    assert_eq!(code, Some(0), "{told}");
    let pid = pid_of(&told);
    assert_eq!(server.ended(), Some(0));
    assert!(ask("GET /health").await.starts_with("HTTP/1.1 200"));
    let health = || playhouse(&["health", "--uds", path.to_str().unwrap()]);
    assert_eq!(health().succeeds(), "");
    terminate(pid);
    until_gone(pid).await;
    assert!(health().fails_with(1).contains(path.to_str().unwrap()));
    assert!(!path.exists(), "the last process removes the file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_not_ready_in_time_is_ended() {
    let upgraded = NeverReady::start();
    let url = &upgraded.server.url;
    let told = playhouse(&["upgrade", "--url", url, "--timeout", "3"]).fails_with(1);
    assert!(
        told.starts_with("waiting until a new process has loaded the model, for 3 s"),
        "{told}"
    );
    assert!(told.contains("422") && told.contains("it was not ready within 3 s"), "{told}");
    let pid = fs::read_to_string(upgraded.folder.path().join("pid")).unwrap();
    until_gone(pid.trim().parse().unwrap()).await;
    let answer = Client::new().post(format!("{url}/upgrade?timeout=0")).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    let nowhere = upgraded.folder.path().join("none");
    let told = playhouse(&["upgrade", "--uds", nowhere.to_str().unwrap()]).fails_with(1);
    assert!(told.contains(nowhere.to_str().unwrap()), "{told}");
}
