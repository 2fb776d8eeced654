//! A request that ends every engine process which computes it, and a process whose threads are all
//! blocked.
#![cfg(unix)]

use std::time::{Duration, Instant};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::server::Server;

/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(240);
/// A token of the demo model that no other prompt here has.
const POISON: u32 = 7;

async fn complete(client: &Client, url: &str, prompt: Value) -> (StatusCode, Value) {
    let body = json!({
        "model": "demo", "prompt": prompt, "max_tokens": 60, "temperature": 0, "ignore_eos": true,
    });
    let request = client.post(format!("{url}/v1/completions")).json(&body).timeout(PATIENCE);
    let response = request.send().await.expect("an answer");
    let status = response.status();
    (status, response.json().await.unwrap())
}

/// Returns the texts of six answers that are computed at the same time.
async fn texts(client: &Client, url: &str) -> Vec<String> {
    let mut tasks = JoinSet::new();
    for index in 0..6_u32 {
        let (client, url) = (client.clone(), url.to_owned());
        tasks.spawn(async move {
            let prompt: Vec<u32> = (20..40).map(|token| token + index).collect();
            let (status, answer) = complete(&client, &url, json!(prompt)).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            (index, answer["choices"][0]["text"].as_str().unwrap().to_owned())
        });
    }
    let mut texts = tasks.join_all().await;
    texts.sort();
    texts.into_iter().map(|(_, text)| text).collect()
}

async fn strike(client: &Client, url: &str, body: Value) {
    let strike = client.post(format!("{url}/chaos/process")).json(&body);
    let struck = strike.send().await.unwrap();
    assert_eq!(struck.status(), StatusCode::OK, "{}", struck.text().await.unwrap());
}

async fn ends(client: &Client, url: &str) -> String {
    let info = client.get(format!("{url}/server_info")).send().await.unwrap();
    let info: Value = info.json().await.unwrap();
    info["engine_process"]["ends"].to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_ends_every_engine_process_fails_alone() {
    let server = Server::start(&[]);
    let client = Client::new();
    let calm = texts(&client, &server.url).await;
    strike(&client, &server.url, json!({"how": "poison", "token": POISON})).await;
    let (deadly, beside) = tokio::join!(
        complete(&client, &server.url, json!([30, POISON, 31])),
        texts(&client, &server.url),
    );
    assert_eq!(beside, calm);
    let (status, answer) = deadly;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert!(answer.to_string().contains("request_quarantined"), "{answer}");
    // The breaker has opened, and a canary closes it.
    let limit = Instant::now() + PATIENCE;
    let (status, answer) = loop {
        let again = complete(&client, &server.url, json!([30, POISON, 31])).await;
        if again.0 != StatusCode::SERVICE_UNAVAILABLE || Instant::now() > limit {
            break again;
        }
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
    let ends = ends(&client, &server.url).await;
    assert!(ends.contains("SIGABRT"), "{ends}");
    assert_eq!(texts(&client, &server.url).await, calm);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

/// All threads of its runtime are blocked, and its socket is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wedged_engine_process_is_replaced() {
    let server = Server::start(&["--hang-timeout-secs", "2"]);
    let client = Client::new();
    let calm = texts(&client, &server.url).await;
    let url = server.url.clone();
    let (beside, ()) =
        tokio::join!(texts(&client, &url), strike(&client, &url, json!({"how": "wedge"})),);
    assert_eq!(beside, calm);
    let limit = Instant::now() + PATIENCE;
    while !ends(&client, &url).await.contains("gave no sign of life") {
        assert!(Instant::now() < limit, "it was not found");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(texts(&client, &url).await, calm);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}
