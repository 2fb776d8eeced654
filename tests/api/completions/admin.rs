//! The routes for operators.

use std::time::Duration;

use playhouse::{EngineConfig, server::ServerConfig};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ask, engine, get, post, send, serve};
use crate::serving::Served;

const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a server whose requests may take longer than a test.
async fn serve_long() -> Served {
    let engine = EngineConfig { max_model_len: Some(4096), ..engine() };
    Served::start(engine, ServerConfig::default()).await
}

/// Starts a completion with the id `name` that takes a while.
fn long(served: &Served, name: &str) -> tokio::task::JoinHandle<Value> {
    of_tokens(500, served, name)
}

/// Starts a completion with the id `name` that takes longer than a test.
fn endless(served: &Served, name: &str) -> tokio::task::JoinHandle<Value> {
    of_tokens(4_000, served, name)
}

fn of_tokens(count: usize, served: &Served, name: &str) -> tokio::task::JoinHandle<Value> {
    let body = json!({"prompt": "x", "max_tokens": count, "ignore_eos": true, "temperature": 0});
    let request = Client::new().post(format!("{}/v1/completions", served.url));
    let request = request.header("X-Request-Id", name).json(&body);
    tokio::spawn(async move { request.send().await.unwrap().json().await.unwrap() })
}

async fn until_running(served: &Served, count: usize) {
    let running = async {
        while served.engine.status().await.unwrap().scheduler.num_running < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, running).await.unwrap();
}

/// Aborts answers by their names. A request may run before its name is known, so this tries again
/// until an answer is found. Returns the server's report.
async fn abort_by_name(served: &Served, names: &[&str]) -> Value {
    let aborted = async {
        loop {
            let answer = ask(served, "/abort_requests", json!({ "request_ids": names })).await;
            if answer["choices"] != 0 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, aborted).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_aborted_by_their_names_or_all_at_once() {
    let served = serve_long().await;
    let (a, b, c) = (endless(&served, "a"), endless(&served, "b"), endless(&served, "c"));
    until_running(&served, 3).await;
    let aborted = abort_by_name(&served, &["cmpl-b", "z"]).await;
    assert_eq!(aborted, json!({"status": "aborted", "aborted": 2, "choices": 1}));
    let b = b.await.unwrap();
    assert_eq!((&b["id"], &b["choices"][0]["finish_reason"]), (&json!("cmpl-b"), &json!("abort")));
    assert!(!a.is_finished() && !c.is_finished());
    // The ledger may hear of an end only after the client.
    let two_left = async {
        while served.engine.open_requests() > 2 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, two_left).await.unwrap();
    assert_eq!(ask(&served, "/abort_requests", json!({})).await["aborted"], 2);
    for left in [a, c] {
        assert_eq!(left.await.unwrap()["choices"][0]["finish_reason"], "abort");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_and_responses_are_aborted_by_their_clients_names() {
    let served = serve(ServerConfig::default()).await;
    let messages = json!({"max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]});
    let responses = json!({"input": "Hello"});
    // No request ends by itself while the engine is paused.
    ask(&served, "/pause?mode=keep", json!({})).await;
    for (route, mut body) in [("/v1/messages", messages), ("/v1/responses", responses)] {
        body["model"] = json!("demo");
        let request = Client::new().post(format!("{}{route}", served.url));
        let request = request.header("X-Request-Id", "mine").json(&body);
        let answer = tokio::spawn(async move { request.send().await.unwrap().status() });
        assert_eq!(abort_by_name(&served, &["mine"]).await["choices"], 1, "{route}");
        timeout(PATIENCE, answer).await.unwrap().unwrap();
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_beam_search_is_aborted_by_its_name() {
    let served = serve(ServerConfig::default()).await;
    let body = json!({
        "prompt": "x", "max_tokens": 500, "ignore_eos": true, "use_beam_search": true, "n": 2,
        "temperature": 0,
    });
    let request = Client::new().post(format!("{}/v1/completions", served.url));
    let request = request.header("X-Request-Id", "search").json(&body);
    let search = tokio::spawn(async move { request.send().await.unwrap().json::<Value>().await });
    until_running(&served, 1).await;
    let aborted = abort_by_name(&served, &["search"]).await;
    assert_eq!(aborted, json!({"status": "aborted", "aborted": 1, "choices": 1}));
    let answer = timeout(PATIENCE, search).await.unwrap().unwrap().unwrap();
    assert_eq!(answer["choices"][0]["finish_reason"], "abort", "{answer}");
    let again = ask(&served, "/abort_requests", json!({"request_ids": ["search"]})).await;
    assert_eq!(again["choices"], 0, "it has ended");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_engine_says_so_and_goes_on_where_it_was() {
    let served = serve_long().await;
    let undisturbed = long(&served, "first").await.unwrap();
    let frozen = long(&served, "second");
    until_running(&served, 1).await;
    assert_eq!(ask(&served, "/pause?mode=keep", json!({})).await, json!({"status": "paused"}));
    assert_eq!(get(&served, "/is_paused").await.1, json!({"is_paused": true}));
    assert_eq!(get(&served, "/is_sleeping").await.1, json!({"is_sleeping": true}));
    assert_eq!(ask(&served, "/resume", json!({})).await, json!({"status": "resumed"}));
    assert_eq!(get(&served, "/is_paused").await.1, json!({"is_paused": false}));
    let frozen = frozen.await.unwrap();
    assert_eq!(frozen["choices"], undisturbed["choices"]);

    let ended = endless(&served, "third");
    until_running(&served, 1).await;
    assert_eq!(post(&served, "/pause", json!({})).await.0, 200);
    assert_eq!(ended.await.unwrap()["choices"][0]["finish_reason"], "abort");
    let (status, error) = post(&served, "/pause?mode=never", json!({})).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("query.mode")));
    ask(&served, "/resume", json!({})).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sleeper_wakes_up_as_it_was() {
    let served = serve(ServerConfig::default()).await;
    let undisturbed = long(&served, "first").await.unwrap();
    let kept = long(&served, "second");
    until_running(&served, 1).await;
    assert_eq!(post(&served, "/sleep?level=1&mode=keep", json!({})).await.0, 200);
    assert_eq!(get(&served, "/is_sleeping").await.1, json!({"is_sleeping": true}));
    let (status, answer) = post(&served, "/wake_up?tags=weights", json!({})).await;
    assert_eq!((status, answer), (200, json!({"status": "sleeping", "tags": ["weights"]})));
    let (_, answer) = post(&served, "/wake_up?tags=kv_cache&tags=bed", json!({})).await;
    assert_eq!(answer, json!({"status": "sleeping", "tags": ["kv_cache", "bed"]}));
    assert_eq!(get(&served, "/is_sleeping").await.1, json!({"is_sleeping": true}));
    let (_, answer) = post(&served, "/wake_up?tags=kv%5Fcache", json!({})).await;
    assert_eq!(answer, json!({"status": "awake", "tags": ["kv_cache"]}));
    // The engine goes on once both parts are awake, in any order.
    assert_eq!(post(&served, "/sleep?mode=keep", json!({})).await.0, 200);
    for (tag, status) in
        [("kv_cache", "sleeping"), ("scheduling", "sleeping"), ("weights", "awake")]
    {
        let (_, answer) = post(&served, &format!("/wake_up?tags={tag}"), json!({})).await;
        assert_eq!(answer, json!({"status": status, "tags": [tag]}));
    }
    assert_eq!(get(&served, "/is_sleeping").await.1, json!({"is_sleeping": false}));
    assert_eq!(kept.await.unwrap()["choices"], undisturbed["choices"]);

    let (status, error) = post(&served, "/sleep?level=2", json!({})).await;
    assert_eq!((status, &error["error"]["param"]), (501, &json!("level")));
    assert_eq!(post(&served, "/sleep?level=3", json!({})).await.0, 400);
    let (_, woken) = post(&served, "/wake_up?tags=bed", json!({})).await;
    assert_eq!(woken, json!({"status": "awake", "tags": ["bed"]}));
    assert_eq!(get(&served, "/is_paused").await.1["is_paused"], false, "nothing was done");

    // Level 0 keeps all memory. Both ways to wake end it.
    for wake in ["/wake_up", "/wake_up?tags=scheduling", "/resume"] {
        let (_, asleep) = post(&served, "/sleep?level=0", json!({})).await;
        assert_eq!(asleep, json!({"status": "sleeping", "level": 0}));
        assert_eq!(get(&served, "/is_sleeping").await.1, json!({"is_sleeping": true}));
        assert_eq!(post(&served, wake, json!({})).await.0, 200, "{wake}");
        assert_eq!(get(&served, "/is_sleeping").await.1, json!({"is_sleeping": false}), "{wake}");
        assert_eq!(get(&served, "/is_paused").await.1["is_paused"], false, "{wake}");
    }
    let (status, error) = post(&served, "/release_kv_cache_memory", json!({})).await;
    assert_eq!(status, 400, "{error}");
    assert_eq!(post(&served, "/pause", json!({})).await.0, 200);
    let (_, answer) = post(&served, "/release_kv_cache_memory", json!({})).await;
    assert_eq!(answer, json!({"status": "kv_cache_released"}));
    assert_eq!(get(&served, "/is_sleeping").await.1, json!({"is_sleeping": true}));
    assert_eq!(post(&served, "/wake_up", json!({})).await.0, 200);
    assert_eq!(long(&served, "third").await.unwrap()["choices"], undisturbed["choices"]);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_tells_about_itself_but_no_secrets() {
    let config = ServerConfig {
        admin_api_keys: vec!["hunter2".to_owned()],
        enable_tokenizer_info_endpoint: true,
        ..ServerConfig::default()
    };
    let served = serve(config).await;
    for (method, path) in [
        (Method::GET, "/server_info"),
        (Method::POST, "/pause"),
        (Method::POST, "/abort_requests"),
        (Method::POST, "/reset_prefix_cache"),
        (Method::POST, "/invocations"),
        (Method::GET, "/tokenizer_info"),
    ] {
        assert_eq!(send(&served, method, path, json!({})).await.0, 401, "{path}");
    }
    let told = async |path: &str| -> Value {
        let request = Client::new().get(format!("{}{path}", served.url)).bearer_auth("hunter2");
        request.send().await.unwrap().json().await.unwrap()
    };
    let info = told("/server_info").await;
    assert_eq!(info["model"]["max_model_len"], 512);
    assert_eq!(info["engine_config"]["kv_cache_memory_bytes"], 64 << 20);
    assert_eq!(info["status"]["open_requests"], 0);
    assert!(!info.to_string().contains("hunter2"));
    assert!(told("/tokenizer_info").await["chat_template"].is_string());
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_that_are_turned_off_do_not_exist() {
    let config = ServerConfig { enable_admin_routes: false, ..ServerConfig::default() };
    let served = serve(config).await;
    assert_eq!(get(&served, "/server_info").await.0, 404);
    assert_eq!(post(&served, "/pause", json!({})).await.0, 404);
    assert_eq!(get(&served, "/tokenizer_info").await.0, 404);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_part_of_the_work_is_another_servers() {
    // vLLM 0.33 answers all of these with 403 unless it runs with `--enable-scale-out`.
    let served = serve(ServerConfig::default()).await;
    for path in [
        "/v1/chat/completions/render",
        "/v1/completions/derender",
        "/v1/messages/render",
        "/v1/responses/render",
        "/inference/v1/generate",
        "/inference/v1/abort_requests",
    ] {
        assert_eq!(post(&served, path, json!({"token_ids": [1]})).await.0, 403, "{path}");
    }
    served.stop().await;
}
