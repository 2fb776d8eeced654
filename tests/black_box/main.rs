//! A checker that knows only HTTP. It replays a workload against the program twice: without faults,
//! and while faults strike every part. It compares the answers byte by byte.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of a test may, as tests may")]

mod activation;
mod deadly;
mod engine_process;
mod engine_process_media;
mod engines;
mod kept_kv_cache;
mod other_model;
#[path = "../cli/process.rs"]
#[allow(dead_code, reason = "the tests of the command line use the rest")]
mod process;
mod replay;
#[cfg(unix)]
mod replay_media;
mod server;
mod stream;
mod swap;
mod upgrade;
mod upgrade_keeps;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{Client, StatusCode};
use serde_json::{Map, Value, json};
use server::Server;
use tokio::{task::JoinSet, time::sleep};

/// Number of strikes, and the time between two of them.
const STRIKES: usize = 60;
const PAUSE: Duration = Duration::from_millis(50);
/// Longest time for any answer. On a slow machine, requests make little progress between two
/// strikes, and a storm may take more than a minute.
const PATIENCE: Duration = Duration::from_secs(240);
/// Longest time for an answer about health.
const HEALTH_PATIENCE: Duration = Duration::from_secs(2);

const ROLES: [&str; 13] = [
    "scheduler",
    "kv_cache",
    "structured_output",
    "encoder_cache",
    "encoder_worker",
    "worker",
    "detokenizer",
    "streamer",
    "input",
    "ledger",
    "core",
    "egress",
    "ingress",
];

/// A request of the workload.
#[derive(Debug, Clone)]
struct Ask {
    path: &'static str,
    body: Value,
}

fn workload() -> Vec<Ask> {
    let kinds = [
        json!({"temperature": 0}),
        json!({"temperature": 1, "top_p": 0.9, "top_k": 50}),
        json!({"temperature": 0.8, "presence_penalty": 0.5, "frequency_penalty": 0.5}),
        json!({"temperature": 1, "stop": ["42", "qu"], "min_tokens": 4}),
        json!({"temperature": 1, "n": 2}),
        json!({"temperature": 0.5, "repetition_penalty": 1.3, "min_p": 0.02}),
    ];
    let ask = |index: usize| {
        let (kind, is_chat, is_stream) = (&kinds[index % 6], index % 4 >= 2, index % 2 == 1);
        let mut body = kind.clone();
        body["model"] = "demo".into();
        body["seed"] = index.into();
        body["max_tokens"] = (40 + index).into();
        body["ignore_eos"] = true.into();
        let text = format!("Tell me all about number {}. {}", index / 6, "Please. ".repeat(index));
        if is_stream {
            body["stream"] = true.into();
            body["stream_options"] = json!({"include_usage": true});
        }
        if is_chat {
            body["messages"] = json!([{"role": "user", "content": text}]);
            body["logprobs"] = true.into();
            body["top_logprobs"] = 2.into();
            return Ask { path: "/v1/chat/completions", body };
        }
        body["prompt"] = text.into();
        body["logprobs"] = 1.into();
        Ask { path: "/v1/completions", body }
    };
    (0..24).map(ask).collect()
}

/// Returns the answer without the parts that differ between runs: ids, times, and the places where
/// a stream was cut into events.
async fn answer(client: Client, url: String, ask: Ask) -> String {
    let request = client.post(format!("{url}{}", ask.path)).json(&ask.body).timeout(PATIENCE);
    let response = request.send().await.expect("an answer");
    let status = response.status();
    let text = response.text().await.expect("a whole answer");
    assert_eq!(status, StatusCode::OK, "{}: {text}", ask.body);
    if ask.body["stream"] != true {
        let mut whole: Value = serde_json::from_str(&text).unwrap();
        anonymize(&mut whole);
        return whole.to_string();
    }
    let mut events: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(events.pop(), Some("[DONE]"), "{text}");
    let mut joined = Joined::default();
    for event in events {
        let mut event: Value = serde_json::from_str(event).unwrap();
        assert!(event.get("error").is_none(), "{event}");
        anonymize(&mut event);
        joined.add(&event);
    }
    serde_json::to_string(&joined.0).unwrap()
}

fn anonymize(answer: &mut Value) {
    let fields = answer.as_object_mut().unwrap();
    fields.remove("id").unwrap();
    fields.remove("created").unwrap();
}

/// The events of a stream put together: texts that grow are appended, other values are kept once.
#[derive(Debug, Default)]
struct Joined(BTreeMap<String, Value>);

impl Joined {
    fn add(&mut self, event: &Value) {
        let mut fields = event.as_object().unwrap().clone();
        let choices = fields.remove("choices").unwrap_or_default();
        for choice in choices.as_array().into_iter().flatten() {
            let joined = self.0.entry(format!("choice {}", choice["index"])).or_default();
            append(joined, choice.clone());
        }
        let joined = self.0.entry("event".to_owned()).or_default();
        append(joined, Value::Object(fields));
    }
}

fn append(whole: &mut Value, piece: Value) {
    match (whole, piece) {
        (_, Value::Null) => {}
        (Value::String(whole), Value::String(piece)) => whole.push_str(&piece),
        (Value::Array(whole), Value::Array(piece)) => whole.extend(piece),
        (Value::Object(whole), Value::Object(piece)) => append_fields(whole, piece),
        (whole, piece) => *whole = piece,
    }
}

fn append_fields(whole: &mut Map<String, Value>, piece: Map<String, Value>) {
    /// Fields whose text grows. Every event repeats other texts in full.
    const GROWING: [&str; 2] = ["text", "content"];
    for (name, value) in piece {
        let known = whole.entry(name.clone()).or_insert(Value::Null);
        match (&known, &value) {
            (Value::String(_), Value::String(_)) if !GROWING.contains(&name.as_str()) => {
                *known = value;
            }
            _ => append(known, value),
        }
    }
}

/// Sends all requests at once. Returns the answers in the order of the workload.
async fn replay(client: &Client, url: &str) -> Vec<String> {
    let mut tasks = JoinSet::new();
    for (index, ask) in workload().into_iter().enumerate() {
        let (client, url) = (client.clone(), url.to_owned());
        tasks.spawn(async move { (index, answer(client, url, ask).await) });
    }
    let mut answers = tasks.join_all().await;
    answers.sort();
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Strikes one part after the other, and asks for the server's health after each strike.
async fn storm(client: &Client, url: &str) {
    for strike in 0..STRIKES {
        let role = ROLES[strike % ROLES.len()];
        let how = ["panic", "kill"][(strike / ROLES.len()) % 2];
        let limit = Instant::now() + PATIENCE;
        loop {
            let kill = client.post(format!("{url}/chaos/kill")).timeout(PATIENCE);
            let struck = kill.json(&json!({"role": role, "how": how})).send().await.unwrap();
            let (status, answer) = (struck.status(), struck.text().await.unwrap());
            if status == StatusCode::OK {
                break;
            }
            // The strike before may have ended the engine process.
            let is_soon = answer.contains("is being replaced") && Instant::now() < limit;
            assert!(is_soon, "{role} {how}: {answer}");
            sleep(PAUSE).await;
        }
        let health = client.get(format!("{url}/health")).timeout(HEALTH_PATIENCE);
        let health = health.send().await.expect("an answer about health").status();
        let known = [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE];
        assert!(known.contains(&health), "{health}");
        let alive = client.get(format!("{url}/livez")).timeout(HEALTH_PATIENCE);
        assert_eq!(alive.send().await.unwrap().status(), StatusCode::OK);
        sleep(PAUSE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_in_a_storm_are_those_in_peace() {
    answers_survive_a_storm(Server::start(&["--single-process"])).await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_two_processes_in_a_storm_are_those_in_peace() {
    answers_survive_a_storm(Server::start(&[])).await;
}

async fn answers_survive_a_storm(server: Server) {
    let client = Client::new();
    let in_peace = replay(&client, &server.url).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let replays = {
        let (client, url, is_over) = (client.clone(), server.url.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            let mut rounds = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                rounds.push(replay(&client, &url).await);
            }
            rounds
        })
    };
    storm(&client, &server.url).await;
    is_over.store(true, Ordering::Relaxed);
    let rounds = replays.await.unwrap();
    assert!(!rounds.is_empty());
    for round in rounds {
        for (expected, actual) in in_peace.iter().zip(&round) {
            assert_eq!(expected, actual);
        }
        assert_eq!(in_peace.len(), round.len());
    }
    let tree = client.get(format!("{}/chaos/tree", server.url)).send().await.unwrap();
    let tree: Value = tree.json().await.unwrap();
    let restarts = tree["actors"].as_array().unwrap().iter().map(|actor| &actor["restarts"]);
    let restarts: u64 = restarts.map(|restarts| restarts.as_u64().unwrap()).sum();
    assert!(restarts >= STRIKES as u64 / 2, "{tree}");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}
