//! Upgrades of a server with a journal.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use crate::{
    deaths::long,
    process::playhouse,
    server::Server,
    swaps::{begin, cut, finish},
    undisturbed,
};

/// Starts another process of the server. Returns its id.
pub(crate) async fn upgrade(client: &Client, server: &Server) -> u64 {
    let answer = client.post(format!("{}/upgrade", server.url)).send().await.unwrap();
    let (status, answer): (_, Value) = (answer.status(), answer.json().await.unwrap());
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer["pid"].as_u64().unwrap()
}

/// Kills a process that is no child of this one, and waits for its end.
pub(crate) async fn kill(pid: u64) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    let limit = Instant::now() + Duration::from_secs(60);
    let is_there = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while is_there() {
        assert!(Instant::now() < limit, "process {pid} does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn journals(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.filter(|name| name.to_str().unwrap().starts_with("writer-")).count()
}

/// Both processes are killed while each has streams. The next process continues all of them.
#[tokio::test(flavor = "multi_thread")]
async fn streams_go_on_after_both_processes_were_killed() {
    let (folder, client) = (tempfile::tempdir().unwrap(), Client::new());
    // Those of the old process must outlast the start of the new one.
    let asks: Vec<_> = (0..6).map(|number| long(number, [3_000, 1_200][number / 3])).collect();
    let expected = undisturbed(&asks).await;
    let server = Server::start(Some(folder.path()), &[]);
    let mut begun = begin(&client, &server, &asks[..3]).await;
    let second = upgrade(&client, &server).await;
    begun.extend(begin(&Client::new(), &server, &asks[3..]).await);
    assert_eq!(journals(folder.path()), 2);
    let path = folder.path().to_str().unwrap();
    let told = playhouse(&["serve", "--port", "0", "--journal", path]).fails_with(1);
    assert!(told.contains("another process has this journal open"), "{told}");
    kill(second).await;
    server.kill();
    let readers = cut(begun);
    let server = Server::start(Some(folder.path()), &[]);
    assert_eq!(journals(folder.path()), 1);
    finish(&client, &server, &asks, readers, &expected).await;
}

/// The old process is killed while it ends its streams. The new one continues them.
#[tokio::test(flavor = "multi_thread")]
async fn streams_go_on_in_the_new_process_after_the_old_one_was_killed() {
    let (folder, client) = (tempfile::tempdir().unwrap(), Client::new());
    let asks: Vec<_> = (0..6).map(|number| long(number, 1_200)).collect();
    let expected = undisturbed(&asks).await;
    let mut server = Server::start(Some(folder.path()), &[]);
    let begun = begin(&client, &server, &asks).await;
    let second = upgrade(&client, &server).await;
    server.kill_alone();
    let readers = cut(begun);
    finish(&Client::new(), &server, &asks, readers, &expected).await;
    assert_eq!(journals(folder.path()), 1);
    // A server that an operator starts must not have the journal of the new one.
    let path = folder.path().to_str().unwrap();
    let told = playhouse(&["serve", "--port", "0", "--journal", path]).fails_with(1);
    assert!(told.contains("another process has this journal open"), "{told}");
    kill(second).await;
}

/// An answer with a key is computed once, whichever process is asked.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_with_a_key_outlives_the_process_that_made_it() {
    let (folder, client) = (tempfile::tempdir().unwrap(), Client::new());
    let mut server = Server::start(Some(folder.path()), &[]);
    let ask = async |client: &Client, url: &str| {
        let body = json!({"model": "demo", "prompt": "a", "max_tokens": 30, "temperature": 1});
        let request = client.post(format!("{url}/v1/completions")).json(&body);
        let response = request.header("Idempotency-Key", "k").send().await.unwrap();
        (response.status(), response.text().await.unwrap())
    };
    let first = ask(&client, &server.url).await;
    assert_eq!(first.0, StatusCode::OK, "{}", first.1);
    // A stream keeps the old process.
    let begun = begin(&client, &server, &[long(0, 3_000)]).await;
    let second = upgrade(&client, &server).await;
    assert_eq!(ask(&Client::new(), &server.url).await, first, "the old process has it");
    server.kill_alone();
    drop(begun);
    assert_eq!(ask(&Client::new(), &server.url).await, first, "the new process has it");
    kill(second).await;
}
