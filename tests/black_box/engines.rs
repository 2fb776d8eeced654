//! Two engines, one of which is killed while streams of every kind run. Each stream equals that of
//! a calm run. The added stall is printed.
#![cfg(unix)]
#![allow(clippy::print_stdout, reason = "the figures of the test")]

use std::{collections::BTreeMap, time::Duration};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    engine_process::{Arrivals, asks, difference, replay},
    server::Server,
};

/// Number of kills.
const KILLS: usize = 10;
/// Time after a kill in which a stall is looked for.
const WINDOW_MICROS: u64 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(60);
const SIZES: &str =
    "--max-num-seqs 64 --max-num-batched-tokens 1024 --num-gpu-blocks-override 1200";

async fn get(client: &Client, url: &str) -> Value {
    let answer = client.get(url).timeout(PATIENCE).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer.json().await.unwrap()
}

async fn post(client: &Client, url: &str, body: &Value) -> (StatusCode, Value) {
    let answer = client.post(url).json(body).timeout(PATIENCE).send().await.unwrap();
    (answer.status(), answer.json().await.unwrap())
}

async fn states(client: &Client, url: &str) -> Vec<String> {
    let all = get(client, &format!("{url}/engines")).await;
    let engines = all["engines"].as_array().unwrap().iter();
    engines.map(|engine| engine["state"].as_str().unwrap().to_owned()).collect()
}

async fn until_states(client: &Client, url: &str, expected: [&str; 2]) {
    let limit = Instant::now() + PATIENCE;
    while states(client, url).await != expected {
        assert!(Instant::now() < limit, "{:?}", states(client, url).await);
        sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until another process than `killed` serves as this engine.
async fn until_replaced(client: &Client, url: &str, engine: usize, killed: &Value) {
    let limit = Instant::now() + PATIENCE;
    loop {
        let all = get(client, &format!("{url}/engines")).await;
        let found = &all["engines"][engine];
        if found["state"] == "serving" && found["pid"].is_u64() && found["pid"] != *killed {
            return;
        }
        assert!(Instant::now() < limit, "{all}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the longest wait of each stream that runs at `since` and afterwards, in milliseconds.
fn stalls(arrivals: &BTreeMap<usize, Vec<u64>>, since: u64) -> Vec<f64> {
    let longest = |times: &Vec<u64>| {
        let runs = times.first()? < &since && times.last()? > &(since + WINDOW_MICROS / 2);
        let pairs = times.windows(2).filter(|pair| runs && pair[1] > since);
        let pairs = pairs.filter(|pair| pair[0] < since + WINDOW_MICROS);
        pairs.map(|pair| pair[1] - pair[0]).max()
    };
    arrivals.values().filter_map(longest).map(|micros| micros as f64 / 1e3).collect()
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_every_kind_go_on_in_the_other_engine() {
    let flags = ["--data-parallel-size", "2", "--tool-call-parser", "hermes"];
    let server = Server::of_size(SIZES, &flags);
    let (client, url) = (Client::new(), server.url.clone());
    let arrivals = Arrivals::new();
    let asks: Vec<_> = asks().into_iter().chain(asks()).collect();
    let calm = replay(&client, &url, &asks, &arrivals).await;
    arrivals.take();
    let began = arrivals.now();
    let again = replay(&client, &url, &asks, &arrivals).await;
    assert_eq!(calm, again, "without faults the answers are the same");
    let (times, ended) = (arrivals.take(), arrivals.now());
    let points = (1..20).map(|point| began + (ended - began) * point / 20);
    let mut calm_stalls: Vec<_> = points.flat_map(|point| stalls(&times, point)).collect();
    until_states(&client, &url, ["serving", "serving"]).await;
    let (mut kills, mut killed_stalls) = (0, Vec::new());
    while kills < KILLS {
        let run = {
            let (client, url, arrivals) = (client.clone(), url.clone(), arrivals.clone());
            let asks = asks.clone();
            tokio::spawn(async move { replay(&client, &url, &asks, &arrivals).await })
        };
        let mut times = Vec::new();
        while !run.is_finished() && kills < KILLS {
            // The pauses differ, so the kills meet other steps.
            sleep(Duration::from_millis(100 + (kills as u64 * 53) % 170)).await;
            times.push(arrivals.now());
            let engine = kills % 2;
            let strike = json!({"how": "SIGKILL", "engine": engine});
            let (status, answer) = post(&client, &format!("{url}/chaos/process"), &strike).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            kills += 1;
            let health = client.get(format!("{url}/health")).send().await.unwrap().status();
            assert_eq!(health, StatusCode::OK, "one engine lives");
            // The other one is killed when this one serves again.
            until_replaced(&client, &url, engine, &answer["pid"]).await;
        }
        for (index, (expected, actual)) in calm.iter().zip(run.await.unwrap()).enumerate() {
            let difference = difference(expected, &actual);
            assert_eq!(difference, None, "request {index}: {}", asks[index].1);
        }
        let arrived = arrivals.take();
        killed_stalls.extend(times.into_iter().flat_map(|since| stalls(&arrived, since)));
    }
    let figures = |stalls: &mut [f64]| [0.5, 0.9, 0.99].map(|share| percentile(stalls, share));
    let (before, after) = (figures(&mut calm_stalls), figures(&mut killed_stalls));
    println!(
        "longest waits within a second, p50, p90 and p99 in ms: {before:?} without faults \
         ({} streams), {after:?} after a kill ({} streams)",
        calm_stalls.len(),
        killed_stalls.len()
    );
    let engines = get(&client, &format!("{url}/engines")).await;
    for engine in engines["engines"].as_array().unwrap() {
        let ends = engine["ends"].as_array().unwrap();
        assert!(!ends.is_empty() && ends.iter().all(|end| end == "ended: SIGKILL"), "{engine}");
    }
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_drains_one_of_two_engines() {
    let server = Server::of_size(SIZES, &["-dp", "2"]);
    let (client, url) = (Client::new(), server.url.clone());
    until_states(&client, &url, ["serving", "serving"]).await;
    let ask = |index: usize| {
        json!({
            "model": "demo", "prompt": format!("Number {index}"), "max_tokens": 60, "seed": index,
            "ignore_eos": true,
        })
    };
    let asked = |index| {
        let (client, url) = (client.clone(), format!("{url}/v1/completions"));
        async move { post(&client, &url, &ask(index)).await }
    };
    let calm = futures_util::future::join_all((0..8).map(asked)).await;
    let running = tokio::spawn(futures_util::future::join_all((0..8).map(asked)));
    for (query, expected) in [("", 2), ("?include_dp=false", 1)] {
        let size = get(&client, &format!("{url}/get_world_size{query}")).await;
        assert_eq!(size["world_size"], expected, "{query}");
    }
    let drain = format!("{url}/engines/1/drain?mode=move");
    let (status, answer) = post(&client, &drain, &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    until_states(&client, &url, ["serving", "drained"]).await;
    for ((status, answer), (_, expected)) in running.await.unwrap().into_iter().zip(&calm) {
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert_eq!(answer["choices"][0]["text"], expected["choices"][0]["text"]);
    }
    let (status, answer) = post(&client, &format!("{url}/engines/0/drain"), &json!({})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer["error"]["message"].as_str().unwrap().contains("the last one"), "{answer}");
    let (status, answer) = post(&client, &format!("{url}/engines/2/drain"), &json!({})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer["error"]["message"].as_str().unwrap().contains("below 2"), "{answer}");
    let (status, _) = post(&client, &format!("{url}/engines/1/undrain"), &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    until_states(&client, &url, ["serving", "serving"]).await;
    let metrics = client.get(format!("{url}/metrics")).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    for engine in ["0", "1"] {
        let ends = format!("engine=\"{engine}\"");
        let name = "playhouse:generation_tokens_total{";
        let mut counts = metrics.lines().filter(|line| line.starts_with(name));
        let count = counts.find(|line| line.contains(&ends)).and_then(|line| {
            line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok())
        });
        assert!(count.is_some_and(|count| count > 0.0), "{engine}: {metrics}");
    }
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}
