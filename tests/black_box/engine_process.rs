//! The engine process is killed in every way while streams of every kind run. Each stream equals
//! that of a calm run. The added stall is printed.
#![cfg(unix)]
#![allow(clippy::print_stdout, reason = "the figures of the test")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use crate::server::Server;

/// Longest time for all answers of a run.
const PATIENCE: Duration = Duration::from_secs(240);
/// Number of kills.
const KILLS: usize = 8;
const WAYS: [&str; 6] = ["SIGKILL", "SIGSEGV", "SIGSTOP", "SIGABRT", "exit", "garbage"];
/// Fields that differ between two runs without faults, or that tell how a prompt was computed.
const VARYING: [&str; 14] = [
    "id",
    "item_id",
    "call_id",
    "response_id",
    "created",
    "created_at",
    "completed_at",
    "sequence_number",
    "obfuscation",
    "usage",
    "system_fingerprint",
    "tool_call_id",
    "previous_response_id",
    "prompt_cache_key",
];
/// Fields whose text comes in pieces.
const GROWING: [&str; 8] =
    ["text", "content", "delta", "partial_json", "arguments", "thinking", "reasoning", "data"];

/// The route of a request, and its own fields.
pub(crate) type Ask = (&'static str, Value);

/// Returns sixteen requests of all kinds.
pub(crate) fn asks() -> Vec<Ask> {
    let schema = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 60}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    });
    let tool = json!({"name": "weather", "description": "The weather of a place", "parameters": {
        "type": "object", "properties": {"place": {"type": "string", "maxLength": 80}},
        "required": ["place"],
    }});
    let tools = json!([{"type": "function", "function": tool}]);
    let say = |text: &str| json!([{"role": "user", "content": text}]);
    let rest = json!({"type": "json_schema", "json_schema": {"name": "person", "schema": schema}});
    vec![
        ("/v1/completions", json!({"prompt": "Once upon a time", "temperature": 0})),
        ("/v1/completions", json!({"prompt": "A hot day", "temperature": 1, "logprobs": 3})),
        ("/v1/completions", json!({"prompt": "Two of them", "n": 2, "temperature": 0.9})),
        ("/v1/completions", json!({"prompt": ["One", "and another"], "temperature": 0.7})),
        (
            "/v1/completions",
            json!({
                "prompt": "The best of all", "use_beam_search": true, "n": 2, "max_tokens": 40,
                "stream": false, "temperature": 0, "seed": null,
            }),
        ),
        (
            "/v1/completions",
            json!({
                "prompt": "Digits:", "structured_outputs": {"regex": "[0-9]{200}"},
            }),
        ),
        ("/v1/chat/completions", json!({"messages": say("Hello"), "temperature": 0.8})),
        (
            "/v1/chat/completions",
            json!({
                "messages": say("Tell me more"), "logprobs": true, "top_logprobs": 2, "n": 2,
            }),
        ),
        (
            "/v1/chat/completions",
            json!({
                "messages": say("Who is it?"), "response_format": rest, "ignore_eos": false,
            }),
        ),
        (
            "/v1/chat/completions",
            json!({
                "messages": say("Rain?"), "tools": tools, "tool_choice": "required",
                "ignore_eos": false,
            }),
        ),
        ("/v1/chat/completions", json!({"messages": say("At once"), "stream": false})),
        ("/v1/messages", json!({"messages": say("Good day")})),
        ("/v1/messages", json!({"messages": say("Good night"), "temperature": 0})),
        ("/v1/responses", json!({"input": "Say it"})),
        ("/v1/responses", json!({"input": "Say it again", "stream": false})),
        (
            "/v1/completions",
            json!({
                "prompt": "Penalties", "presence_penalty": 0.4, "repetition_penalty": 1.2,
                "stop": ["zqx"], "min_tokens": 5,
            }),
        ),
    ]
}

/// Returns the whole body of a request.
fn body(path: &str, index: usize, fields: &Value) -> Value {
    let mut body = json!({"model": "demo", "stream": true});
    match path {
        "/v1/responses" => body["max_output_tokens"] = 250.into(),
        _ => body["max_tokens"] = 250.into(),
    }
    if !matches!(path, "/v1/messages" | "/v1/responses") {
        body["seed"] = index.into();
        body["ignore_eos"] = true.into();
    }
    if path == "/v1/responses" {
        body["temperature"] = 0.into();
    }
    if path == "/v1/messages" {
        body["temperature"] = 0.into();
    }
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// The arrivals at all streams.
pub(crate) struct Arrivals {
    started: Instant,
    /// Microseconds of the last one since the start.
    last: AtomicU64,
    /// Each one: the index of its request, and its microseconds since the start.
    all: Mutex<Vec<(usize, u64)>>,
}

impl Arrivals {
    /// Returns no arrivals yet.
    pub(crate) fn new() -> Arc<Self> {
        let (started, last, all) = (Instant::now(), AtomicU64::new(0), Mutex::default());
        Arc::new(Self { started, last, all })
    }

    /// Returns the microseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn note(&self, index: usize) {
        let now = self.now();
        self.last.store(now, Ordering::Release);
        self.all.lock().unwrap().push((index, now));
    }

    /// Forgets the arrivals so far, and returns them by request.
    pub(crate) fn take(&self) -> BTreeMap<usize, Vec<u64>> {
        let mut by_request: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (index, at) in std::mem::take(&mut *self.all.lock().unwrap()) {
            by_request.entry(index).or_default().push(at);
        }
        by_request
    }
}

async fn answer(
    client: Client,
    url: String,
    body: Value,
    index: usize,
    arrivals: Arc<Arrivals>,
) -> String {
    let request = client.post(url).json(&body).header("anthropic-version", "2023-06-01");
    let response = request.timeout(PATIENCE).send().await.expect("an answer");
    let status = response.status();
    let (mut bytes, mut pieces) = (Vec::new(), response.bytes_stream());
    while let Some(piece) = pieces.next().await {
        arrivals.note(index);
        bytes.extend_from_slice(&piece.expect("a whole answer"));
    }
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(status, StatusCode::OK, "{body}: {text}");
    if body["stream"] == false {
        let mut whole: Value = serde_json::from_str(&text).unwrap();
        settle(&mut whole);
        return whole.to_string();
    }
    let mut joined: BTreeMap<String, Value> = BTreeMap::new();
    for event in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if event == "[DONE]" {
            joined.insert("done".to_owned(), true.into());
            continue;
        }
        let mut event: Value = serde_json::from_str(event).unwrap();
        assert!(event.get("error").is_none_or(Value::is_null), "{event}");
        assert_ne!(event["type"], "error", "{event}");
        settle(&mut event);
        let choices = event.as_object_mut().unwrap().remove("choices").unwrap_or_default();
        for choice in choices.as_array().into_iter().flatten() {
            add(joined.entry(format!("choice {}", choice["index"])).or_default(), choice, true);
        }
        let place = ["type", "index", "output_index", "content_index"].map(|name| &event[name]);
        add(joined.entry(format!("{place:?}")).or_default(), &event, true);
    }
    assert!(joined.len() > 1, "{text}");
    serde_json::to_string(&joined).unwrap()
}

/// Removes the fields that vary.
fn settle(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !VARYING.contains(&name.as_str()));
            fields.values_mut().for_each(settle);
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        _ => {}
    }
}

/// Returns the item of a list that the piece of a tool call continues. Into how many pieces the
/// arguments are cut depends on how fast they are read.
fn known<'a>(whole: &'a mut [Value], piece: &Value) -> Option<&'a mut Value> {
    let index = piece.get("index").filter(|_| piece.get("function").is_some())?;
    whole.iter_mut().find(|item| item.get("index") == Some(index))
}

/// Adds a piece to what is known: growing texts and lists are appended, other values replaced.
fn add(whole: &mut Value, piece: &Value, is_growing: bool) {
    match (&mut *whole, piece) {
        (_, Value::Null) => {}
        (Value::Object(whole), Value::Object(piece)) => {
            for (name, value) in piece {
                let known = whole.entry(name.clone()).or_insert(Value::Null);
                add(known, value, GROWING.contains(&name.as_str()) || !value.is_string());
            }
        }
        (Value::String(whole), Value::String(piece)) if is_growing => whole.push_str(piece),
        (Value::Array(whole), Value::Array(piece)) => {
            for item in piece {
                match known(whole, item) {
                    Some(known) => add(known, item, true),
                    None => whole.push(item.clone()),
                }
            }
        }
        (whole, piece) => *whole = piece.clone(),
    }
}

/// Sends all requests at once. Returns the answers in their order.
pub(crate) async fn replay(
    client: &Client,
    url: &str,
    asks: &[Ask],
    arrivals: &Arc<Arrivals>,
) -> Vec<String> {
    let mut tasks = JoinSet::new();
    for (index, (path, fields)) in asks.iter().enumerate() {
        let body = body(path, index, fields);
        let (client, url, arrivals) = (client.clone(), format!("{url}{path}"), arrivals.clone());
        tasks.spawn(async move { (index, answer(client, url, body, index, arrivals).await) });
    }
    let mut answers = tasks.join_all().await;
    answers.sort();
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns both texts around the first character that differs.
pub(crate) fn difference(expected: &str, actual: &str) -> Option<[String; 2]> {
    let equal = expected.chars().zip(actual.chars()).take_while(|(left, right)| left == right);
    let (begin, is_equal) = (equal.count().saturating_sub(200), expected == actual);
    let around = |text: &str| text.chars().skip(begin).take(400).collect();
    (!is_equal).then(|| [around(expected), around(actual)])
}

/// Waits until a process serves whose number is not `before`. Returns its number.
async fn serving(client: &Client, url: &str, before: &Value) -> Value {
    let limit = Instant::now() + PATIENCE;
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        let tree = client.get(format!("{url}/chaos/tree")).timeout(left).send().await.unwrap();
        let tree: Value = tree.json().await.unwrap();
        let process = &tree["engine_process"];
        if process.is_number() && process != before {
            return process.clone();
        }
        assert!(Instant::now() < limit, "no process after {before} serves: {tree}");
        sleep(Duration::from_millis(2)).await;
    }
}

/// Kills the engine process in one way. Returns the time until the next process serves, and until
/// a stream goes on after that.
pub(crate) async fn kill(
    client: &Client,
    url: &str,
    how: &str,
    arrivals: &Arrivals,
) -> [Duration; 2] {
    let before = serving(client, url, &Value::Null).await;
    let began = Instant::now();
    let strike = client.post(format!("{url}/chaos/process")).json(&json!({"how": how}));
    let struck = strike.send().await.unwrap();
    assert_eq!(struck.status(), StatusCode::OK, "{how}: {}", struck.text().await.unwrap());
    serving(client, url, &before).await;
    let (serves, attached) = (began.elapsed(), arrivals.started.elapsed().as_micros() as u64);
    let limit = Instant::now() + Duration::from_secs(20);
    // The last streams may have ended by now.
    while arrivals.last.load(Ordering::Acquire) < attached && Instant::now() < limit {
        sleep(Duration::from_millis(1)).await;
    }
    [serves, began.elapsed()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_every_kind_survive_the_engine_process() {
    let server = Server::start(&["--tool-call-parser", "hermes"]);
    let client = Client::new();
    let (arrivals, asks) = (Arrivals::new(), asks());
    let calm = replay(&client, &server.url, &asks, &arrivals).await;
    let again = replay(&client, &server.url, &asks, &arrivals).await;
    assert_eq!(calm, again, "without faults the answers are the same");
    let mut kills = 0;
    while kills < KILLS {
        let run = {
            let (client, url, arrivals) = (client.clone(), server.url.clone(), arrivals.clone());
            let asks = asks.clone();
            tokio::spawn(async move { replay(&client, &url, &asks, &arrivals).await })
        };
        while !run.is_finished() && kills < KILLS {
            sleep(Duration::from_millis(150)).await;
            let how = WAYS[kills % WAYS.len()];
            let [serves, goes_on] = kill(&client, &server.url, how, &arrivals).await;
            println!(
                "{how}: the next process serves after {serves:?}, a stream goes on after {goes_on:?}"
            );
            kills += 1;
        }
        for (index, (expected, actual)) in calm.iter().zip(run.await.unwrap()).enumerate() {
            let difference = difference(expected, &actual);
            assert_eq!(difference, None, "request {index}: {}", asks[index].1);
        }
    }
    let info = client.get(format!("{}/server_info", server.url)).send().await.unwrap();
    let info: Value = info.json().await.unwrap();
    let ends = info["engine_process"]["ends"].to_string();
    assert!(ends.contains("stopped by a signal") && ends.contains("SIGABRT"), "{ends}");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("the engine process ended: SIGSEGV"), "{log}");
}
