//! API keys: a file of them that changes, and prefixes that they do not share.

use std::fs;

use playhouse::server::ServerConfig;
use reqwest::{Client, StatusCode};
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

/// Prompt tokens that came from the cache when `key` sends a long prompt.
async fn cached(served: &Served, key: &str, salt: Option<&str>) -> u64 {
    let prompt = "All the world is a stage, and all the men and women merely players. ".repeat(8);
    let body = json!({"prompt": prompt, "max_tokens": 1, "cache_salt": salt});
    let request = Client::new().post(format!("{}/v1/completions", served.url));
    let answer = request.bearer_auth(key).json(&body).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
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
