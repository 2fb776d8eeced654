//! Valid requests with random changes. None breaks the server, and each rejection has the form of
//! its route.
//!
//! `MUTATIONS` is the number of requests, `MUTATIONS_SEED` their seed. A failure names both.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod mutate;

use std::{
    env,
    panic::{self, Location},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusBuilder;
use mutate::{Rng, mutated};
use playhouse::{
    Engine, EngineConfig,
    config::{LimitSettings, ParserChoice},
    server::{BodyError, InProcess, InProcessAnswer, ServerConfig, check_body},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

const MUTATIONS: usize = 5_000;
/// Requests at the same time.
const CLIENTS: usize = 16;
/// Longest time for an answer. After it, the test has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns every route that takes a body, with valid bodies. The operator's routes are left out
/// because `/abort_requests` would end the other requests.
fn bodies() -> Vec<(&'static str, Value)> {
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]);
    let sampling = json!({
        "model": "demo", "max_tokens": 4, "temperature": 0.7, "top_p": 0.9, "top_k": 5,
        "min_p": 0.1, "seed": 1, "stop": ["xyz"], "stop_token_ids": [3], "n": 2, "presence_penalty": 0.1,
        "frequency_penalty": -0.1, "repetition_penalty": 1.1, "logit_bias": {"5": 1.5},
        "min_tokens": 1, "bad_words": ["no"], "ignore_eos": false, "skip_special_tokens": true,
        "prompt_logprobs": 1, "user": "me", "priority": 0, "request_id": "mine",
        "structured_outputs": {"choice": ["yes", "no"]},
    });
    let with = |base: &Value, fields: Value| {
        let mut body = base.clone();
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    let short = json!({"max_tokens": 4, "messages": messages});
    let plain = json!({"model": "demo", "max_tokens": 4, "temperature": 0});
    let schema = json!({"name": "s", "schema": parameters, "strict": true});
    let chat = with(&sampling, json!({"messages": messages, "logprobs": true, "top_logprobs": 2}));
    let completion = with(&sampling, json!({"prompt": ["Hi", "Ho"], "echo": true, "logprobs": 2}));
    let call = json!({"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"});
    let output = json!({"type": "function_call_output", "call_id": "a", "output": "7"});
    let named_tool = json!({"name": "f", "description": "finds", "input_schema": parameters});
    vec![
        ("/v1/completions", completion.clone()),
        (
            "/v1/completions",
            json!({"prompt": [300, 301], "max_tokens": 4, "stream": true,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true}}),
        ),
        ("/v1/completions", with(&plain, json!({"prompt": "Hi", "use_beam_search": true, "n": 2}))),
        (
            "/v1/completions",
            with(
                &plain,
                json!({"prompt": "Hi",
            "structured_outputs": {"regex": "[a-z]{2,5}(yes)?", "disable_any_whitespace": true}}),
            ),
        ),
        (
            "/v1/completions",
            with(
                &plain,
                json!({"prompt": "Hi",
            "structured_outputs": {"grammar": "root ::= \"a\" root | [0-9]+\n"}}),
            ),
        ),
        ("/v1/chat/completions", chat.clone()),
        (
            "/v1/chat/completions",
            with(
                &short,
                json!({"stream": true, "tools": [tool],
            "tool_choice": "auto", "parallel_tool_calls": false}),
            ),
        ),
        (
            "/v1/chat/completions",
            with(
                &short,
                json!({"tools": [tool],
            "tool_choice": {"type": "function", "function": {"name": "f"}}}),
            ),
        ),
        (
            "/v1/chat/completions",
            with(
                &short,
                json!({"reasoning_effort": "low",
            "response_format": {"type": "json_schema", "json_schema": schema}}),
            ),
        ),
        (
            "/v1/chat/completions",
            with(
                &short,
                json!({"chat_template_kwargs": {"thinking": false},
            "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"}),
            ),
        ),
        ("/v1/chat/completions/batch", with(&plain, json!({"messages": [messages, messages]}))),
        ("/invocations", chat),
        ("/invocations", completion),
        (
            "/v1/messages",
            json!({"model": "demo", "max_tokens": 4, "system": "Be brief.",
            "messages": [{"role": "user", "content": "Hi"}], "stream": true, "top_k": 3,
            "stop_sequences": ["x"], "metadata": {"user_id": "me"}}),
        ),
        (
            "/v1/messages",
            json!({"model": "demo", "max_tokens": 4, "tools": [named_tool],
            "tool_choice": {"type": "any"}, "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
                {"role": "assistant", "content": [
                    {"type": "tool_use", "id": "a", "name": "f", "input": {"city": "x"}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "7"}]},
            ]}),
        ),
        (
            "/v1/messages/count_tokens",
            json!({"model": "demo", "tools": [named_tool],
            "messages": [{"role": "user", "content": "Hi"}]}),
        ),
        (
            "/v1/responses",
            json!({"model": "demo", "input": "Hi", "max_output_tokens": 4,
            "store": true, "stream": true, "metadata": {"a": "b"}, "top_logprobs": 1,
            "include": ["message.output_text.logprobs"]}),
        ),
        (
            "/v1/responses",
            json!({"input": [{"role": "user", "content": "Hi"}, call, output],
            "max_output_tokens": 4, "store": false, "instructions": "Be brief.",
            "tools": [{"type": "function", "name": "f", "parameters": parameters}],
            "text": {"format": {"type": "text"}}}),
        ),
        (
            "/v1/responses",
            json!({"input": "Hi", "max_output_tokens": 4, "background": true,
            "text": {"format": {"type": "json_schema", "name": "s", "schema": parameters}}}),
        ),
        (
            "/tokenize",
            json!({"model": "demo", "prompt": "Hi", "add_special_tokens": true,
            "return_token_strs": true}),
        ),
        (
            "/tokenize",
            json!({"messages": messages, "add_generation_prompt": true,
            "tools": [tool]}),
        ),
        ("/detokenize", json!({"model": "demo", "tokens": [300, 301]})),
    ]
}

/// Panics of the process. Those of the grammar library are not counted because it turns them into
/// errors.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let file = panic.location().map_or("", Location::file);
        if !["/llguidance-", "/derivre-", "/toktrie-"].iter().any(|name| file.contains(name)) {
            PANICS.fetch_add(1, Ordering::Relaxed);
            report(panic);
        }
    }));
}

/// Returns the fault of an answer, or `None`.
fn fault(path: &str, answer: &InProcessAnswer) -> Option<&'static str> {
    let text = std::str::from_utf8(&answer.body);
    let body: Option<Value> = text.ok().and_then(|text| serde_json::from_str(text).ok());
    match answer.status {
        503 => None,
        500.. => Some("the server's fault"),
        400..500 => {
            let Some(body) = body else { return Some("an error that is no JSON") };
            let error = &body["error"];
            let is_told = error["message"].is_string() && error["type"].is_string();
            let is_own = match path.starts_with("/v1/messages") {
                true => body["type"] == "error",
                false => error["code"] == answer.status,
            };
            (!is_told || !is_own).then_some("an error in another form")
        }
        200 if body.is_some() => None,
        200 => text.map_or(Some("no text"), stream_fault),
        _ => Some("another status"),
    }
}

fn stream_fault(stream: &str) -> Option<&'static str> {
    let mut events = 0;
    for line in stream.lines() {
        let Some(data) = line.strip_prefix("data: ") else {
            if line.is_empty() || line.starts_with("event: ") || line.starts_with(':') {
                continue;
            }
            return Some("neither JSON nor a stream");
        };
        events += 1;
        if data == "[DONE]" {
            continue;
        }
        let Ok(event) = serde_json::from_str::<Value>(data) else { return Some("no JSON event") };
        let code = event["error"]["code"].as_u64().unwrap_or(0);
        if code >= 500 && code != 503 || event["error"]["type"] == "api_error" {
            return Some("the server's fault within a stream");
        }
    }
    (events == 0).then_some("an empty stream")
}

fn number(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |value| value.parse().unwrap())
}

async fn ask(routes: &InProcess, path: &str, body: &str) -> InProcessAnswer {
    match timeout(PATIENCE, routes.post(path, body.to_owned())).await {
        Ok(answer) => answer,
        Err(_) => panic!("no answer from {path} to {body}"),
    }
}

/// Sends every `CLIENTS`th mutation, from mutation `client` on. Returns the number of answers in
/// each class of statuses.
async fn client(routes: InProcess, client: usize, mutations: usize, seed: usize) -> [usize; 6] {
    let bodies = bodies();
    let mut answered = [0; 6];
    for index in (client..mutations).step_by(CLIENTS) {
        let (path, body) = &bodies[index % bodies.len()];
        let body = mutated(body, &mut Rng::new(seed as u64, index as u64));
        let answer = ask(&routes, path, &body).await;
        if let Some(fault) = fault(path, &answer) {
            let text = String::from_utf8_lossy(&answer.body);
            panic!(
                "mutation {index} of seed {seed}: {fault}: {} {text}\nPOST {path}\n{body}",
                answer.status
            );
        }
        answered[usize::from(answer.status / 100).min(5)] += 1;
    }
    answered
}

/// Starts an engine with room for a conversation with tools, and for a short answer.
async fn engine() -> Engine {
    let config = EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        max_model_len: Some(384),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    Engine::spawn(config, |_| {}).await.unwrap()
}

/// Returns small limits, so that accepted requests end soon: this test is about reading bodies.
fn server() -> ServerConfig {
    let limits =
        LimitSettings { max_completion_prompts: 8, max_n_sequences: 8, ..LimitSettings::default() };
    ServerConfig {
        limits,
        trust_request_chat_template: true,
        enable_auto_tool_choice: true,
        tool_call_parser: ParserChoice::Named("hermes".to_owned()),
        reasoning_parser: ParserChoice::Named("qwen3".to_owned()),
        ..ServerConfig::default()
    }
}

/// Only the routes' readers run, without an engine, so that forty times as many bodies can be
/// tested.
#[test]
fn mutated_bodies_are_read_or_refused() {
    let (bodies, limits) = (bodies(), server().limits);
    let (mutations, seed) = (40 * number("MUTATIONS", MUTATIONS), number("MUTATIONS_SEED", 1));
    let mut num_refused = 0;
    for index in 0..mutations {
        let (path, body) = &bodies[index % bodies.len()];
        let body = mutated(body, &mut Rng::new(seed as u64, index as u64));
        if let Err(error) = check_body(path, body.as_bytes(), &limits) {
            let BodyError::Refused { status, message } = error else {
                panic!("{error}: mutation {index} of seed {seed}");
            };
            assert!((400..500).contains(&status), "{status} {message}\nPOST {path}\n{body}");
            num_refused += 1;
        }
    }
    assert!(num_refused * 20 > mutations && num_refused * 4 < 3 * mutations, "{num_refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutated_requests_break_nothing() {
    count_panics();
    let engine = engine().await;
    let metrics = PrometheusBuilder::new().build_recorder().handle();
    let routes = InProcess::new(engine.clone(), server(), metrics).unwrap();
    let mut refused = Vec::new();
    for (path, body) in bodies() {
        let answer = ask(&routes, path, &body.to_string()).await;
        if (answer.status, fault(path, &answer)) != (200, None) {
            refused.push(format!("{path} {body}: {}", String::from_utf8_lossy(&answer.body)));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    let (mutations, seed) = (number("MUTATIONS", MUTATIONS), number("MUTATIONS_SEED", 1));
    let mut clients = JoinSet::new();
    for index in 0..CLIENTS {
        clients.spawn(client(routes.clone(), index, mutations, seed));
    }
    let mut answered = [0; 6];
    for of_client in clients.join_all().await {
        (0..6).for_each(|class| answered[class] += of_client[class]);
    }
    // If nearly all requests were rejected, only the reading would be tested. If nearly none were,
    // the reading would hardly be tested.
    assert!(answered[2] * 10 > mutations && answered[4] * 10 > mutations, "{answered:?}");

    // Requests in the background go on without their client.
    let idle = async {
        while engine.open_requests() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, idle).await.unwrap();
    let status = engine.status().await.unwrap();
    assert_eq!((status.open_requests, status.restarts), (0, 0), "{status:?}");
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "seed {seed}");
    for (path, body) in bodies() {
        assert_eq!(ask(&routes, path, &body.to_string()).await.status, 200, "{path}, afterwards");
    }
    engine.shutdown().await;
}
