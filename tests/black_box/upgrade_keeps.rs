//! The content that clients of an upgraded server ask the new process for: streams, answers by
//! key, and stored responses. The server has no journal.
#![cfg(target_os = "linux")]

use std::{process::Command, time::Duration};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    PATIENCE,
    process::playhouse,
    server::Server,
    stream::{Begun, begin, body, completion},
    upgrade::{FLAGS, terminate, until_gone, upgrade},
};

/// Returns a client of its own, which has no connection to the old process.
fn anew() -> Client {
    Client::new()
}

async fn post(url: &str, path: &str, body: &Value) -> (u16, Value) {
    let question = anew().post(format!("{url}{path}")).json(body);
    let answer = question.timeout(PATIENCE).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn get(url: &str, path: &str) -> (u16, Value) {
    let answer = anew().get(format!("{url}{path}")).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Returns a stream that keeps the old process for a while.
async fn long(url: &str) -> Begun {
    of_tokens(480, url).await
}

async fn of_tokens(max_tokens: usize, url: &str) -> Begun {
    let mut long = body(0);
    long["max_tokens"] = json!(max_tokens);
    Begun::with(&anew(), url, &long).await
}

/// Returns the stream and the last event that a client has of it.
fn last_of(begun: &str) -> (String, String) {
    let last = begun.lines().rfind(|line| line.starts_with("id: ")).unwrap();
    let (stream, place) = last["id: ".len()..].split_once(':').unwrap();
    (stream.to_owned(), place.to_owned())
}

async fn rest_of(url: &str, begun: &str) -> String {
    let (stream, place) = last_of(begun);
    let answer = anew().get(format!("{url}/v1/streams/{stream}?after={place}")).send().await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_go_on_through_the_new_process() {
    let mut server = Server::of(playhouse(&FLAGS));
    let url = server.url.clone();
    let calm = Begun::new(&anew(), &url, 3).await.finish().await;
    let (keeps, cut) = (long(&url).await, Begun::new(&anew(), &url, 3).await);
    let (status, answer) = upgrade(&anew(), &url).await;
    assert_eq!(status, 200, "{answer}");
    let begun = cut.cut();
    let rest = rest_of(&url, &begun).await;
    assert_eq!(completion(&(begun.clone() + &rest)), calm, "the old process has the rest");
    // The same request with the last event.
    let (stream, place) = last_of(&begun);
    let request = anew().post(format!("{url}/v1/completions")).json(&body(3));
    let request = request.header("Last-Event-ID", format!("{stream}:{place}"));
    let again = request.send().await.unwrap().text().await.unwrap();
    assert_eq!(completion(&(begun.clone() + &again)), calm);
    keeps.finish().await;
    assert_eq!(server.ended(), Some(0));
    let rest = rest_of(&url, &begun).await;
    assert_eq!(completion(&(begun + &rest)), calm, "the new process has it now");
    let pid = answer["pid"].as_u64().unwrap();
    terminate(pid);
    until_gone(pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_with_a_key_are_the_same_in_the_new_process() {
    let mut server = Server::of(playhouse(&FLAGS));
    let url = server.url.clone();
    let ask = async || {
        let body = json!({"model": "demo", "prompt": "a", "max_tokens": 9, "temperature": 1});
        let request = anew().post(format!("{url}/v1/completions")).json(&body);
        let answer = request.header("Idempotency-Key", "k").send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let first = ask().await;
    assert_eq!(first.0, StatusCode::OK, "{}", first.1);
    let keeps = long(&url).await;
    let (status, answer) = upgrade(&anew(), &url).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(ask().await, first, "the old process has it");
    keeps.finish().await;
    assert_eq!(server.ended(), Some(0));
    assert_eq!(ask().await, first, "the new process has it");
    let pid = answer["pid"].as_u64().unwrap();
    terminate(pid);
    until_gone(pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_responses_move_to_the_new_process() {
    let mut server = Server::of(playhouse(&FLAGS));
    let url = server.url.clone();
    let ask = json!({"model": "demo", "input": "Hello", "max_output_tokens": 4, "seed": 1});
    let create = async |before: &Value| {
        let mut ask = ask.clone();
        ask["previous_response_id"] = before["id"].clone();
        let (status, answer) = post(&url, "/v1/responses", &ask).await;
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let path = |response: &Value| format!("/v1/responses/{}", response["id"].as_str().unwrap());
    let first = create(&Value::Null).await;
    let second = create(&first).await;
    let gone = create(&Value::Null).await;
    let mut background = ask.clone();
    background["background"] = json!(true);
    background["max_output_tokens"] = json!(400);
    let (_, running) = post(&url, "/v1/responses", &background).await;
    let keeps = long(&url).await;
    let (status, answer) = upgrade(&anew(), &url).await;
    assert_eq!(status, 200, "{answer}");
    // The old process answers.
    assert_eq!(get(&url, &path(&second)).await, (200, second.clone()));
    assert_eq!(get(&url, &path(&running)).await.1["id"], running["id"]);
    let deleted = anew().delete(format!("{url}{}", path(&gone))).send().await.unwrap();
    assert_eq!(deleted.status(), StatusCode::OK);
    let third = create(&second).await;
    assert_eq!(get(&url, &path(&third)).await, (200, third.clone()));
    // This one is in both processes by now.
    let deleted = anew().delete(format!("{url}{}", path(&second))).send().await.unwrap();
    assert_eq!(deleted.status(), StatusCode::OK);
    keeps.finish().await;
    assert_eq!(server.ended(), Some(0));
    assert_eq!(get(&url, &path(&first)).await, (200, first.clone()));
    for deleted in [&gone, &second] {
        assert_eq!(get(&url, &path(deleted)).await.0, 404);
    }
    let (status, ended) = get(&url, &path(&running)).await;
    assert_eq!((status, &ended["status"]), (200, &json!("completed")), "{ended}");
    let items = format!("{}/input_items", path(&third));
    let (status, items) = get(&url, &items).await;
    assert_eq!((status, items["data"].as_array().unwrap().len()), (200, 5), "{items}");
    create(&third).await;
    create(&first).await;
    let pid = answer["pid"].as_u64().unwrap();
    terminate(pid);
    until_gone(pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_reaches_only_its_own_in_the_old_process() {
    let keys = ["--api-key", "mine", "--api-key", "theirs", "--admin-api-key", "operator"];
    let mut server = Server::of(playhouse(&[&FLAGS[..], &keys].concat()));
    let url = server.url.clone();
    let send = async |key: &str, request: reqwest::RequestBuilder| {
        let answer = request.bearer_auth(key).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let respond = json!({"model": "demo", "input": "Hello", "max_output_tokens": 4});
    let responses = format!("{url}/v1/responses");
    let (status, mine) = send("mine", anew().post(&responses).json(&respond)).await;
    assert_eq!(status, 200, "{mine}");
    let mine: Value = serde_json::from_str(&mine).unwrap();
    let id = mine["id"].as_str().unwrap();
    let mut long = body(0);
    long["max_tokens"] = json!(480);
    let keeps = anew().post(format!("{url}/v1/completions")).json(&long).bearer_auth("mine");
    let mut keeps = Some(keeps.send().await.unwrap());
    let (status, answer) = send("operator", anew().post(format!("{url}/upgrade"))).await;
    assert_eq!(status, 200, "{answer}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let mut next = respond.clone();
    next["previous_response_id"] = json!(id);
    let path = format!("{responses}/{id}");
    for is_old_there in [true, false] {
        if !is_old_there {
            let rest = keeps.take().unwrap().bytes();
            tokio::time::timeout(Duration::from_secs(60), rest).await.unwrap().unwrap();
            assert_eq!(server.ended(), Some(0));
            let (status, found) = send("mine", anew().get(&path)).await;
            assert_eq!(status, 200, "{found}");
            assert_eq!(serde_json::from_str::<Value>(&found).unwrap(), mine);
        }
        assert_eq!(send("theirs", anew().get(&path)).await.0, 404);
        assert_eq!(send("theirs", anew().delete(&path)).await.0, 404);
        let forged = anew().get(&path).header("x-playhouse-owner", "1");
        assert_eq!(send("theirs", forged).await.0, 404);
        assert_eq!(send("theirs", anew().post(&responses).json(&next)).await.0, 404);
        if !is_old_there {
            break;
        }
        assert_eq!(send("nobody", anew().get(&path)).await.0, 401);
        assert_eq!(send("mine", anew().get(&path)).await.0, 200);
        let internal = anew().get(format!("{url}/handover/remainder"));
        assert_eq!(send("mine", internal).await.0, 404);
    }
    let pid = answer["pid"].as_u64().unwrap();
    terminate(pid);
    until_gone(pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_moves_on_over_several_upgrades() {
    let server = Server::of(playhouse(&FLAGS));
    let url = server.url.clone();
    let ask = json!({"model": "demo", "input": "Hello", "max_output_tokens": 4, "seed": 1});
    let (status, first) = post(&url, "/v1/responses", &ask).await;
    assert_eq!(status, 200, "{first}");
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    let mut pids = Vec::new();
    for _ in 0..3 {
        let running = begin(&anew(), &url, 0..2).await;
        let (status, answer) = upgrade(&anew(), &url).await;
        assert_eq!(status, 200, "{answer}");
        pids.push(answer["pid"].as_u64().unwrap());
        crate::stream::finish(running).await;
        assert_eq!(get(&url, &path).await, (200, first.clone()));
    }
    let last = pids.pop().unwrap();
    for pid in pids {
        until_gone(pid).await;
    }
    assert_eq!(get(&url, &path).await, (200, first.clone()));
    terminate(last);
    until_gone(last).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_both_processes_are_aborted() {
    // The requests must still run when they are aborted, also on a fast machine.
    let flags = FLAGS.map(|flag| if flag == "512" { "4096" } else { flag });
    let mut server = Server::of(playhouse(&flags));
    let url = server.url.clone();
    let old = of_tokens(4_000, &url).await;
    let (status, answer) = upgrade(&anew(), &url).await;
    assert_eq!(status, 200, "{answer}");
    let new = of_tokens(4_000, &url).await;
    let named = json!({"request_ids": ["cmpl-unknown"]});
    let (status, aborted) = post(&url, "/abort_requests", &named).await;
    assert_eq!((status, &aborted["choices"]), (200, &json!(0)), "{aborted}");
    let (status, aborted) = post(&url, "/abort_requests", &json!({})).await;
    let both = json!({"status": "aborted", "aborted": 2, "choices": 2});
    assert_eq!((status, aborted), (200, both));
    for stream in [old, new] {
        let events = stream.events().await;
        assert!(events.contains("\"finish_reason\":\"abort\""), "{events}");
    }
    assert_eq!(server.ended(), Some(0));
    let (status, aborted) = post(&url, "/abort_requests", &json!({})).await;
    assert_eq!((status, &aborted["aborted"]), (200, &json!(0)), "{aborted}");
    let pid = answer["pid"].as_u64().unwrap();
    terminate(pid);
    until_gone(pid).await;
}

/// A process that is stopped neither answers nor ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abort_that_the_old_process_does_not_answer_is_an_error() {
    let flags = FLAGS.map(|flag| if flag == "512" { "4096" } else { flag });
    let mut server = Server::of(playhouse(&flags));
    let url = server.url.clone();
    let old = of_tokens(4_000, &url).await;
    let (status, answer) = upgrade(&anew(), &url).await;
    assert_eq!(status, 200, "{answer}");
    let signal = |name: &str| {
        let pid = server.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    // Right after its answer, the old process may still take a connection.
    sleep(Duration::from_millis(500)).await;
    signal("-STOP");
    let (status, refused) = post(&url, "/abort_requests", &json!({})).await;
    signal("-CONT");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(status == 503 && message.contains("its requests go on"), "{refused}");
    let (status, aborted) = post(&url, "/abort_requests", &json!({})).await;
    assert_eq!(status, 200, "{aborted}");
    old.events().await;
    assert_eq!(server.ended(), Some(0));
    let pid = answer["pid"].as_u64().unwrap();
    terminate(pid);
    until_gone(pid).await;
}
