//! The server under clients that send nonsense, leave early, or come all at once.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use crate::serving::Served;
use futures_util::{StreamExt, future::join_all};
use playhouse::{EngineConfig, server::ServerConfig};
use reqwest::{Client, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::{interval, timeout},
};

const PATIENCE: Duration = Duration::from_secs(60);
const MAX_MODEL_LEN: usize = 512;

fn engine_config() -> EngineConfig {
    EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        max_model_len: Some(MAX_MODEL_LEN),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    }
}

async fn serve() -> Served {
    Served::start(engine_config(), ServerConfig::default()).await
}

async fn post(url: &str, path: &str, body: impl Into<reqwest::Body>) -> Response {
    let request = Client::new().post(format!("{url}{path}"));
    let request = request.header(CONTENT_TYPE, "application/json").body(body);
    timeout(PATIENCE, request.send()).await.unwrap().unwrap()
}

async fn complete(url: &str, body: &Value) -> Value {
    let response = post(url, "/v1/completions", body.to_string()).await;
    assert_eq!(response.status(), StatusCode::OK);
    response.json().await.unwrap()
}

/// Returns the data of a stream's events without `[DONE]`, which must be there.
async fn events(response: Response) -> Vec<Value> {
    assert_eq!(response.status(), StatusCode::OK);
    let text = response.text().await.unwrap();
    let mut lines: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(lines.pop(), Some("[DONE]"), "{text}");
    lines.into_iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the number of steps. A step makes at most one token of a request.
async fn steps(served: &Served) -> u64 {
    served.engine.status().await.unwrap().scheduler.step.0
}

async fn until_idle(served: &Served) {
    let mut ticks = interval(Duration::from_millis(10));
    let idle = async {
        loop {
            ticks.tick().await;
            let scheduler = served.engine.status().await.unwrap().scheduler;
            let queued = scheduler.num_running + scheduler.num_waiting;
            if served.engine.open_requests() + queued == 0 {
                return;
            }
        }
    };
    timeout(PATIENCE, idle).await.expect("requests of clients that left go on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_is_refused_and_the_server_goes_on() {
    let served = serve().await;
    let completions = "/v1/completions";
    let text = |body: Value| body.to_string().into_bytes();
    let nested = format!(r#"{{"prompt": "x", "y": {}{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let long: Vec<usize> = vec![5; MAX_MODEL_LEN + 1];
    let invalid_utf8 = b"{\"prompt\": \"\xFF\xFE\"}".to_vec();
    let cases: [(&str, Vec<u8>, u16); 13] = [
        ("a body of 100 MB", vec![b' '; 100 << 20], 413),
        ("deep nesting", nested.into_bytes(), 400),
        ("invalid UTF-8", invalid_utf8, 400),
        ("half a surrogate pair", br#"{"prompt": "\ud800"}"#.to_vec(), 400),
        ("a prompt longer than the context", text(json!({ "prompt": long })), 400),
        ("more tokens than fit", text(json!({"prompt": "x", "max_tokens": 1_000_000})), 400),
        ("a token out of the vocabulary", text(json!({"prompt": [4_000_000_000_u32]})), 400),
        ("a token that is no number", text(json!({"prompt": [1, "a"]})), 400),
        ("an empty prompt", text(json!({"prompt": ""})), 400),
        ("a temperature of words", text(json!({"prompt": "x", "temperature": "hot"})), 400),
        ("an absurd number", b"{\"prompt\": \"x\", \"n\": 1e999}".to_vec(), 400),
        ("too many choices", text(json!({"prompt": "x", "n": 1_000_000_000})), 400),
        ("no JSON at all", b"prompt=x".to_vec(), 400),
    ];
    for (what, body, status) in cases {
        let response = post(&served.url, completions, body).await;
        assert_eq!(response.status().as_u16(), status, "{what}");
        let error: Value = response.json().await.unwrap();
        let error = &error["error"];
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty()), "{what}: {error}");
        assert_eq!(error["code"], status, "{what}");
        let answer = complete(&served.url, &json!({"prompt": "x", "max_tokens": 1})).await;
        assert_eq!(answer["usage"]["completion_tokens"], 1, "after {what}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_type_is_rejected_by_its_field() {
    let served = serve().await;
    let chat = |field: &str, value: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "hi"}]});
        body[field] = value;
        body
    };
    let cases = [
        ("temperature", json!([])),
        ("max_tokens", json!("many")),
        ("stop", json!(5)),
        ("seed", json!(0.5)),
        ("stream", json!("maybe")),
        ("logit_bias", json!([1])),
        ("messages", json!("hello")),
        ("tools", json!({"a": 1})),
        ("stop_token_ids", json!(["a"])),
        ("truncation_side", json!("middle")),
        ("top_k", json!(-5)),
        ("top_p", json!(1.5)),
    ];
    for (field, value) in cases {
        let body = chat(field, value).to_string();
        let response = post(&served.url, "/v1/chat/completions", body).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{field}");
        let error: Value = response.json().await.unwrap();
        let param = error["error"]["param"].as_str().unwrap();
        let named = param.strip_prefix("body.").unwrap_or(param);
        assert!(named.starts_with(field), "{field}: {error}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_costs_no_further_steps() {
    const MAX_TOKENS: usize = 4000;
    let engine = EngineConfig { max_model_len: Some(4096), ..engine_config() };
    let served = Served::start(engine, ServerConfig::default()).await;
    let long = json!({
        "prompt": "x", "max_tokens": MAX_TOKENS, "ignore_eos": true, "n": 8,
        "temperature": 1.0, "seed": 1,
    });
    for stream in [true, false] {
        let mut body = long.clone();
        body["stream"] = stream.into();
        let steps_before = steps(&served).await;
        let client = Client::builder().pool_max_idle_per_host(0).build().unwrap();
        let request = client.post(format!("{}/v1/completions", served.url)).json(&body);
        if stream {
            let response = request.send().await.unwrap();
            let mut chunks = response.bytes_stream();
            assert!(chunks.next().await.is_some_and(|chunk| chunk.is_ok()));
            assert!(served.engine.open_requests() > 0);
            drop(chunks);
        } else {
            let sent = tokio::spawn(request.send());
            let mut ticks = interval(Duration::from_millis(1));
            let begun = async {
                while served.engine.open_requests() == 0 {
                    ticks.tick().await;
                }
            };
            timeout(PATIENCE, begun).await.unwrap();
            sent.abort();
            assert!(sent.await.is_err_and(|error| error.is_cancelled()));
        }
        until_idle(&served).await;
        let worked = steps(&served).await - steps_before;
        assert!(worked < MAX_TOKENS as u64, "{worked} steps: it was worked for to the end");
        // The scheduler hears of released blocks by its next message from the KV cache manager.
        let released = async {
            while served.engine.status().await.unwrap().scheduler.kv_cache_usage > 0.01 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, released).await.expect("blocks are still held");
    }
    served.stop().await;
}

/// Sends a streaming request and reads nothing of the answer. Little of the answer fits the buffers
/// between server and client.
async fn never_reads(address: &str, body: &Value) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let client = socket.connect(address.parse().unwrap()).await.unwrap();
    let body = body.to_string();
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut sent = 0;
    while sent < request.len() {
        client.writable().await.unwrap();
        sent += client.try_write(&request.as_bytes()[sent..]).unwrap_or(0);
    }
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_reads_nothing_is_disconnected() {
    const MAX_TOKENS: usize = 4000;
    let engine = EngineConfig { max_model_len: Some(4096), ..engine_config() };
    let server = ServerConfig { write_timeout_secs: 1, ..ServerConfig::default() };
    let served = Served::start(engine, server).await;
    let body = json!({
        "prompt": "x", "max_tokens": MAX_TOKENS, "ignore_eos": true, "n": 8, "stream": true,
        "logprobs": 20,
    });
    let address = served.url.trim_start_matches("http://");
    let client = never_reads(address, &body).await;
    let mut ticks = interval(Duration::from_millis(10));
    let begun = async {
        while served.engine.open_requests() == 0 {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, begun).await.unwrap();
    until_idle(&served).await;
    let worked = steps(&served).await;
    assert!(worked < MAX_TOKENS as u64, "{worked} steps: it was worked for to the end");
    drop(client);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_ends_by_its_deadline() {
    let engine = EngineConfig { max_model_len: Some(4096), ..engine_config() };
    let server = ServerConfig { request_timeout_secs: Some(0.2), ..ServerConfig::default() };
    let served = Served::start(engine, server).await;
    let ask = async |timeout: &str, stream: bool| {
        let body = json!({"prompt": "x", "max_tokens": 4000, "ignore_eos": true, "stream": stream});
        let request = Client::new().post(format!("{}/v1/completions", served.url));
        let request = request.header("x-request-timeout", timeout).json(&body);
        tokio::time::timeout(PATIENCE, request.send()).await.unwrap().unwrap()
    };
    for timeout in ["0.1", "1000"] {
        let late = ask(timeout, false).await;
        assert_eq!(late.status(), StatusCode::GATEWAY_TIMEOUT, "{timeout}");
        // On a busy machine, the deadline may pass before a stream begins.
        let begun = async {
            loop {
                let stream = ask(timeout, true).await;
                if stream.status() != StatusCode::GATEWAY_TIMEOUT {
                    return stream;
                }
            }
        };
        let streamed = events(tokio::time::timeout(PATIENCE, begun).await.unwrap()).await;
        assert_eq!(streamed.last().unwrap()["error"]["code"], 504, "{timeout}");
        until_idle(&served).await;
    }
    let nonsense = ask("soon", false).await;
    assert_eq!(nonsense.status(), StatusCode::BAD_REQUEST);
    let error: Value = nonsense.json().await.unwrap();
    assert_eq!(error["error"]["param"], "x-request-timeout");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_equal_whole_answers_eight_at_a_time() {
    let served = serve().await;
    let request = |i: usize| {
        json!({
            "prompt": format!("{i} times the same "), "max_tokens": 40, "temperature": 0.8,
            "seed": i, "logprobs": 1, "stop": ["qz"],
        })
    };
    let both = join_all((0..8).map(async |i| {
        let whole = complete(&served.url, &request(i)).await;
        let mut body = request(i);
        body["stream"] = true.into();
        body["stream_options"] = json!({"include_usage": true});
        let streamed = post(&served.url, "/v1/completions", body.to_string()).await;
        (whole, events(streamed).await)
    }))
    .await;
    for (whole, events) in both {
        let choice = &whole["choices"][0];
        let (usage, chunks) = events.split_last().unwrap();
        let pieces = |pointer: &str| -> Vec<Value> {
            chunks.iter().filter_map(|chunk| chunk.pointer(pointer)).cloned().collect()
        };
        let text: String = pieces("/choices/0/text").iter().filter_map(Value::as_str).collect();
        assert_eq!(text, choice["text"].as_str().unwrap());
        for list in ["tokens", "text_offset", "token_logprobs", "top_logprobs"] {
            let joined: Vec<Value> = pieces(&format!("/choices/0/logprobs/{list}"))
                .iter()
                .flat_map(|piece| piece.as_array().unwrap().clone())
                .collect();
            assert_eq!(Value::Array(joined), choice["logprobs"][list], "{list}");
        }
        let finishes: Vec<Value> = pieces("/choices/0/finish_reason");
        let given = finishes.iter().filter(|finish| !finish.is_null());
        assert_eq!(given.collect::<Vec<_>>(), [&choice["finish_reason"]]);
        for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
            assert_eq!(usage["usage"][count], whole["usage"][count], "{count}");
        }
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_guard_all_routes_but_health() {
    let server = ServerConfig { api_keys: vec!["secret".to_owned()], ..ServerConfig::default() };
    let served = Served::start(engine_config(), server).await;
    let client = Client::new();
    let models = format!("{}/v1/models", served.url);
    let refused = client.get(&models).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(refused.json::<Value>().await.unwrap(), json!({"error": "Unauthorized"}));
    let wrong = client.get(&models).bearer_auth("secre").send().await.unwrap();
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    let right = client.get(&models).bearer_auth("secret").send().await.unwrap();
    assert_eq!(right.status(), StatusCode::OK);
    let health = client.get(format!("{}/health", served.url)).send().await.unwrap();
    assert_eq!(health.status(), StatusCode::OK);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_streams_finish() {
    let served = serve().await;
    let body = json!({
        "prompt": "x", "max_tokens": 100, "ignore_eos": true, "stream": true, "temperature": 0,
        "stream_options": {"include_usage": true},
    });
    let response = post(&served.url, "/v1/completions", body.to_string()).await;
    let (stopped, events) = tokio::join!(timeout(PATIENCE, served.stop()), events(response));
    stopped.expect("the server does not stop");
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_server_says_so() {
    let served = serve().await;
    let status = async |path: &str| {
        let url = format!("{}{path}", served.url);
        Client::new().get(url).send().await.unwrap().status()
    };
    for path in ["/health", "/ping", "/readyz", "/livez"] {
        assert_eq!(status(path).await, StatusCode::OK, "{path}");
    }
    served.engine.begin_drain();
    assert_eq!(status("/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(status("/health").await, StatusCode::OK, "it still finishes what it has");
    let refused = post(&served.url, "/v1/completions", r#"{"prompt": "x"}"#).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_small_routes_answer() {
    let names = ["demo", "an/organization's/demo"].map(str::to_owned);
    let engine = EngineConfig { served_model_name: names.to_vec(), ..engine_config() };
    let server = ServerConfig {
        enable_request_id_headers: true,
        allowed_origins: vec!["https://example.org".to_owned()],
        ..ServerConfig::default()
    };
    let served = Served::start(engine, server).await;
    let get = async |path: &str| {
        let request = Client::new().get(format!("{}{path}", served.url));
        let request =
            request.header("x-request-id", "mine").header("origin", "https://example.org");
        request.send().await.unwrap()
    };
    let models = get("/v1/models").await;
    assert_eq!(models.headers()["x-request-id"], "mine");
    assert_eq!(models.headers()["access-control-allow-origin"], "https://example.org");
    let models: Value = models.json().await.unwrap();
    assert_eq!(models["data"][0]["id"], "demo");
    assert_eq!(models["data"][0]["max_model_len"], MAX_MODEL_LEN);
    assert_eq!(get("/load").await.json::<Value>().await.unwrap(), json!({"server_load": 0}));
    assert_eq!(get("/metrics").await.status(), StatusCode::OK);
    let model: Value = get("/v1/models/demo").await.json().await.unwrap();
    assert_eq!((&model["id"], &model["object"]), (&json!("demo"), &json!("model")));
    // An id may have slashes. Some clients encode them, others do not.
    for path in ["/v1/models/an/organization%27s/demo", "/v1/models/an%2Forganization's%2Fdemo"] {
        let model: Value = get(path).await.json().await.unwrap();
        assert_eq!(model["id"], "an/organization's/demo", "{path}");
    }
    let missing = get("/v1/models/gpt-4").await;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);
    let missing: Value = missing.json().await.unwrap();
    assert_eq!(missing["error"]["code"], "model_not_found");
    let nothing: Value = get("/nothing").await.json().await.unwrap();
    let message = nothing["error"]["message"].as_str().unwrap();
    assert_eq!(message, "Not Found: no route GET /nothing; /openapi.json lists all routes");
    for (path, status) in [("/nothing", 404), ("/v1/completions", 405)] {
        let error: Value = get(path).await.json().await.unwrap();
        assert_eq!(error["error"]["code"], status, "{path}");
    }
    let body = json!({"prompt": "Once upon a time", "return_token_strs": true}).to_string();
    let tokens: Value = post(&served.url, "/tokenize", body).await.json().await.unwrap();
    assert_eq!(tokens["count"], tokens["tokens"].as_array().unwrap().len());
    assert_eq!(tokens["count"], tokens["token_strs"].as_array().unwrap().len());
    let body = json!({"tokens": tokens["tokens"]}).to_string();
    let text: Value = post(&served.url, "/detokenize", body).await.json().await.unwrap();
    assert_eq!(text["prompt"], "Once upon a time");
    for (path, field, body) in [
        ("/detokenize", "tokens", json!({"tokens": vec![1; (1 << 20) + 1]})),
        ("/tokenize", "prompt", json!({"prompt": "x".repeat((4 << 20) + 1)})),
    ] {
        let refused = post(&served.url, path, body.to_string()).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{path}");
        let error: Value = refused.json().await.unwrap();
        assert_eq!(error["error"]["param"], field, "{path}");
        let message = error["error"]["message"].as_str().unwrap();
        let count = body[field].as_str().map_or(1 << 20, |_| 4 << 20);
        assert!(message.contains(&(count + 1).to_string()), "{message}");
        assert!(message.contains(&count.to_string()), "{message}");
    }
    let reset = post(&served.url, "/reset_prefix_cache", "{}").await;
    assert_eq!(reset.json::<Value>().await.unwrap(), json!({"success": true}));
    served.stop().await;
}

/// Returns a copy of the demo model that has NaN in the weights of its last norm.
fn model_without_numbers() -> tempfile::TempDir {
    let model = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"));
    let copy = tempfile::TempDir::new().unwrap();
    for file in std::fs::read_dir(model).unwrap().flatten() {
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
    }
    let path = copy.path().join("model.safetensors");
    let mut weights = std::fs::read(&path).unwrap();
    let header_len = u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&weights[8..8 + header_len]).unwrap();
    let norm = &header["model.norm.weight"];
    assert_eq!(norm["dtype"], "BF16");
    let offset = |end: usize| norm["data_offsets"][end].as_u64().unwrap() as usize;
    for value in weights[8 + header_len..][offset(0)..offset(1)].chunks_exact_mut(2) {
        value.copy_from_slice(&0x7fc0_u16.to_le_bytes());
    }
    std::fs::write(path, weights).unwrap();
    copy
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_whose_logits_are_never_finite_turns_health_red() {
    let model = model_without_numbers();
    let config = EngineConfig { model: model.path().to_owned(), ..engine_config() };
    let served = Served::start(config, ServerConfig::default()).await;
    for number in 0..3 {
        let body = json!({"prompt": format!("No {number}"), "max_tokens": 2}).to_string();
        let response = post(&served.url, "/v1/completions", body).await;
        assert_ne!(response.status(), StatusCode::OK);
    }
    for path in ["/health", "/readyz"] {
        let red = async {
            loop {
                let url = format!("{}{path}", served.url);
                let response = Client::new().get(url).send().await.unwrap();
                if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                    return response.json::<Value>().await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let told = timeout(PATIENCE, red).await.unwrap();
        assert_eq!(told, json!({"status": "unhealthy", "reason": "non_finite_logits"}), "{path}");
    }
    let body = json!({"prompt": "No more", "max_tokens": 2}).to_string();
    let refused = post(&served.url, "/v1/completions", body).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    served.stop().await;
}
