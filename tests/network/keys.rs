//! API keys: the routes that each opens, a file of keys that changes, and the data that keys do not
//! share.

use std::fs;

use playhouse::server::ServerConfig;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Duration, interval, timeout};

use crate::{PATIENCE, serve, serving::Served};

async fn status(served: &Served, key: &str) -> StatusCode {
    let request = Client::new().get(format!("{}/v1/models", served.url));
    request.bearer_auth(key).send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_keys_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    fs::write(&path, "# ours\nfirst\n").unwrap();
    let server = ServerConfig {
        api_keys: vec!["fixed".to_owned()],
        api_key_file: Some(path.clone()),
        ..ServerConfig::default()
    };
    let served = serve(server).await;
    assert_eq!(status(&served, "first").await, 200);
    assert_eq!(status(&served, "fixed").await, 200);
    assert_eq!(status(&served, "second").await, 401);
    fs::write(&path, "second\n").unwrap();
    let mut ticks = interval(Duration::from_millis(100));
    let changed = async {
        while status(&served, "second").await != 200 {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, changed).await.unwrap();
    assert_eq!(status(&served, "first").await, 401);
    assert_eq!(status(&served, "fixed").await, 200);
    for open in ["/health", "/metrics", "/version"] {
        let answer = Client::new().get(format!("{}{open}", served.url)).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{open}");
    }
    for guarded in ["/reset_prefix_cache", "/v1/completions", "/nothing"] {
        let answer = Client::new().post(format!("{}{guarded}", served.url)).send().await.unwrap();
        assert_eq!(answer.status(), 401, "{guarded}");
    }
    served.stop().await;
}

/// Sends a long prompt with `key`. Returns how many of its tokens came from the prefix cache.
async fn cached(served: &Served, key: &str, salt: Option<&str>) -> u64 {
    let prompt = "All the world is a stage, and all the men and women merely players. ".repeat(8);
    let body = json!({"prompt": prompt, "max_tokens": 1, "cache_salt": salt});
    let request = Client::new().post(format!("{}/v1/completions", served.url));
    let answer = request.bearer_auth(key).json(&body).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

async fn ask(served: &Served, key: &str, method: &Method, path: &str, body: &Value) -> Response {
    let request = Client::new().request(method.clone(), format!("{}{path}", served.url));
    let request = if key.is_empty() { request } else { request.bearer_auth(key) };
    request.json(body).send().await.unwrap()
}

/// Returns every route of the OpenAPI document, and those of `/chaos`.
async fn routes(served: &Served) -> Vec<(Method, String)> {
    let document = ask(served, "", &Method::GET, "/openapi.json", &Value::Null).await;
    let document: Value = document.json().await.unwrap();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            routes.push((method.to_uppercase().parse().unwrap(), path.replace("{id}", "x")));
        }
    }
    let chaos = ["/chaos/kill", "/chaos/edges", "/chaos/calm"].map(|path| (Method::POST, path));
    let chaos = chaos.into_iter().chain([(Method::GET, "/chaos/tree")]);
    routes.extend(chaos.map(|(method, path)| (method, path.to_owned())));
    routes
}

/// Returns settings with the keys of two clients and of an operator.
fn with_keys() -> ServerConfig {
    ServerConfig {
        api_keys: vec!["alice".to_owned(), "bob".to_owned()],
        admin_api_keys: vec!["root".to_owned()],
        enable_tokenizer_info_endpoint: true,
        ..ServerConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_route_except_the_open_ones_needs_a_key() {
    const OPEN: [&str; 8] = [
        "/health",
        "/ping",
        "/livez",
        "/readyz",
        "/version",
        "/openapi.json",
        "/docs",
        "/docs/style.css",
    ];
    for open_metrics in [true, false] {
        let served = serve(ServerConfig { open_metrics, ..with_keys() }).await;
        let routes = routes(&served).await;
        assert!(routes.len() > 35, "{routes:?}");
        for (method, path) in routes {
            let is_open = OPEN.contains(&&*path) || (path == "/metrics" && open_metrics);
            for wrong in ["", "wrong"] {
                let status = ask(&served, wrong, &method, &path, &json!({})).await.status();
                assert_eq!(status == 401, !is_open, "{method} {path}: {status}");
            }
            let status = ask(&served, "alice", &method, &path, &json!({})).await.status();
            assert_ne!(status, 401, "{method} {path}");
        }
        served.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_routes_need_an_operators_key() {
    let routes = [
        (Method::GET, "/server_info"),
        (Method::GET, "/is_paused"),
        (Method::GET, "/is_sleeping"),
        (Method::GET, "/chaos/tree"),
        (Method::POST, "/pause?mode=keep"),
        (Method::POST, "/resume"),
        (Method::POST, "/sleep"),
        (Method::POST, "/wake_up"),
        (Method::POST, "/reset_prefix_cache"),
        (Method::POST, "/chaos/calm"),
    ];
    // If only clients have keys, no key opens the operator's routes.
    for admin_api_keys in [vec!["root".to_owned()], Vec::new()] {
        let has_operator = !admin_api_keys.is_empty();
        let served = serve(ServerConfig { admin_api_keys, ..with_keys() }).await;
        for (method, path) in &routes {
            let refused = ask(&served, "alice", method, path, &json!({})).await;
            assert_eq!(refused.status(), 403, "{path}");
            let error: Value = refused.json().await.unwrap();
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.contains("admin_api_key"), "{message}");
            let status = ask(&served, "root", method, path, &json!({})).await.status();
            assert_eq!(status, if has_operator { 200 } else { 401 }, "{path}");
        }
        served.stop().await;
    }
}

/// Starts a completion that takes longer than the test. Its id is one that other clients choose as
/// well.
fn long(served: &Served, key: &str) -> tokio::task::JoinHandle<Value> {
    let body = json!({"prompt": "x", "max_tokens": 4000, "ignore_eos": true});
    let request = Client::new().post(format!("{}/v1/completions", served.url));
    let request = request.header("X-Request-Id", "mine").bearer_auth(key).json(&body);
    tokio::spawn(async move { request.send().await.unwrap().json().await.unwrap() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_sees_and_ends_its_own_requests_only() {
    let served = serve(with_keys()).await;
    let seen = async |key: &str| {
        let house = ask(&served, key, &Method::GET, "/house", &Value::Null).await;
        let house: Value = house.json().await.unwrap();
        house["engines"][0]["scheduler"]["requests"].as_array().map_or(0, Vec::len)
    };
    let (alices, bobs) = (long(&served, "alice"), long(&served, "bob"));
    let both = async {
        while seen("root").await < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, both).await.unwrap();
    assert_eq!((seen("alice").await, seen("bob").await), (1, 1));

    let abort = async |key: &str, body: Value| -> u64 {
        let answer = ask(&served, key, &Method::POST, "/abort_requests", &body).await;
        answer.json::<Value>().await.unwrap()["choices"].as_u64().unwrap()
    };
    assert_eq!(abort("alice", json!({"request_ids": ["mine", "cmpl-mine"]})).await, 1);
    assert_eq!(alices.await.unwrap()["choices"][0]["finish_reason"], "abort");
    assert_eq!(abort("alice", json!({})).await, 0);
    assert!(!bobs.is_finished());
    assert_eq!(abort("root", json!({"request_ids": ["mine"]})).await, 1);
    assert_eq!(bobs.await.unwrap()["choices"][0]["finish_reason"], "abort");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_share_cached_prefixes_only_if_they_may() {
    for share_prefix_cache_between_keys in [false, true] {
        let server = ServerConfig {
            api_keys: vec!["first".to_owned(), "second".to_owned()],
            share_prefix_cache_between_keys,
            enable_prompt_tokens_details: true,
            ..ServerConfig::default()
        };
        let served = serve(server).await;
        assert_eq!(cached(&served, "first", None).await, 0);
        assert!(cached(&served, "first", None).await > 0);
        assert_eq!(cached(&served, "second", None).await > 0, share_prefix_cache_between_keys);
        assert!(cached(&served, "second", None).await > 0);
        assert_eq!(cached(&served, "first", Some("mine")).await, 0, "a salt of the client's own");
        assert!(cached(&served, "first", Some("mine")).await > 0);
        let other = cached(&served, "second", Some("mine")).await;
        assert_eq!(other > 0, share_prefix_cache_between_keys);
        served.stop().await;
    }
}

/// As in vLLM, `/v1/messages` has the salt, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_salt_of_a_message_separates_its_cached_prefix() {
    let server = ServerConfig { enable_prompt_tokens_details: true, ..ServerConfig::default() };
    let served = serve(server).await;
    let content = "All the world is a stage, and all the men and women merely players. ".repeat(8);
    let answer = async |salt: Value| {
        let body = json!({
            "model": served.engine.served_model_names()[0], "max_tokens": 1, "cache_salt": salt,
            "messages": [{"role": "user", "content": content}],
        });
        ask(&served, "", &Method::POST, "/v1/messages", &body).await
    };
    let cached = async |salt: Value| {
        let answer: Value = answer(salt).await.json().await.unwrap();
        answer["usage"]["cache_read_input_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached(Value::Null).await, 0);
    assert!(cached(Value::Null).await > 0);
    assert_eq!(cached(json!("mine")).await, 0);
    assert!(cached(json!("mine")).await > 0);
    assert_eq!(answer(json!("")).await.status(), 400);
    served.stop().await;
}
