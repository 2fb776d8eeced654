//! `/v1/responses` without a client library: clients that leave, a server that drains, and the
//! limit of the store.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::serving::Served;
use playhouse::{EngineConfig, server::ServerConfig};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{interval, timeout};

const PATIENCE: Duration = Duration::from_secs(60);

async fn serve(server: ServerConfig) -> Served {
    let engine = EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    Served::start(engine, server).await
}

async fn post(served: &Served, fields: Value) -> Response {
    let mut body = json!({"input": "Hello", "temperature": 0, "max_output_tokens": 8});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let url = format!("{}/v1/responses", served.url);
    Client::new().post(url).json(&body).send().await.unwrap()
}

async fn create(served: &Served, fields: Value) -> Value {
    let response = post(served, fields).await;
    let status = response.status();
    let body: Value = response.json().await.unwrap();
    assert_eq!(status, StatusCode::OK, "{body}");
    body
}

async fn get(served: &Served, response: &Value) -> (StatusCode, Value) {
    let id = response["id"].as_str().unwrap();
    let response = reqwest::get(format!("{}/v1/responses/{id}", served.url)).await.unwrap();
    (response.status(), response.json().await.unwrap())
}

async fn refused(served: &Served, fields: Value) -> Value {
    let response = post(served, fields).await;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    response.json::<Value>().await.unwrap()["error"]["param"].clone()
}

/// Returns the fields of a response that takes long.
fn endless() -> Value {
    json!({"max_output_tokens": 3500, "ignore_eos": true})
}

async fn until_idle(served: &Served) {
    let mut ticks = interval(Duration::from_millis(10));
    let idle = async {
        while served.engine.open_requests() > 0 {
            ticks.tick().await;
        }
    };
    timeout(PATIENCE, idle).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_ends_its_response_but_not_one_in_the_background() {
    let served = serve(ServerConfig::default()).await;
    let mut fields = endless();
    fields["stream"] = json!(true);
    let mut stream = post(&served, fields.clone()).await;
    assert!(stream.chunk().await.unwrap().unwrap().starts_with(b"event: response.created\n"));
    drop(stream);
    until_idle(&served).await;
    fields["background"] = json!(true);
    let mut stream = post(&served, fields).await;
    let first = String::from_utf8(stream.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    let data = first.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let response = serde_json::from_str::<Value>(data).unwrap()["response"].clone();
    drop(stream);
    // The first event may come before the engine has the request.
    let begun = async {
        while served.engine.open_requests() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, begun).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(served.engine.open_requests(), 1);
    let url = format!("{}/v1/responses/{}", served.url, response["id"].as_str().unwrap());
    let deleted: Value = Client::new().delete(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(deleted["deleted"], true);
    until_idle(&served).await;
    assert_eq!(get(&served, &response).await.0, StatusCode::NOT_FOUND);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_waits_for_the_background() {
    let served = serve(ServerConfig::default()).await;
    let mut fields = endless();
    fields["max_output_tokens"] = json!(600);
    fields["background"] = json!(true);
    let response = create(&served, fields).await;
    assert_eq!(response["status"], "queued");
    let engine = served.engine.clone();
    // `stop` asserts that nothing was cut off.
    served.stop().await;
    assert_eq!(engine.open_requests(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_keeps_as_many_as_it_may() {
    let served =
        serve(ServerConfig { responses_store_max_count: 2, ..ServerConfig::default() }).await;
    let mut responses = Vec::new();
    for _ in 0..3 {
        responses.push(create(&served, json!({})).await);
    }
    assert_eq!(get(&served, &responses[0]).await.0, StatusCode::NOT_FOUND);
    for response in &responses[1..] {
        assert_eq!(get(&served, response).await, (StatusCode::OK, response.clone()));
    }
    served.stop().await;
    let served =
        serve(ServerConfig { responses_store_max_count: 0, ..ServerConfig::default() }).await;
    let response = create(&served, json!({})).await;
    assert_eq!(response["store"], false);
    assert_eq!(get(&served, &response).await.0, StatusCode::NOT_FOUND);
    assert_eq!(refused(&served, json!({"store": true})).await, "store");
    assert_eq!(refused(&served, json!({"background": true})).await, "background");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_cut_off_goes_on() {
    let served = serve(ServerConfig::default()).await;
    let num_tokens = async |status: &str| {
        let said = json!({"role": "assistant", "status": status, "content": "The dog"});
        let input = json!([{"role": "user", "content": "Hello"}, said]);
        let response = create(&served, json!({"input": input, "max_output_tokens": 1})).await;
        response["usage"]["input_tokens"].as_u64().unwrap()
    };
    // The end of the message and the beginning of the next one are left out.
    assert!(num_tokens("incomplete").await < num_tokens("completed").await);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_is_no_text_is_refused_like_anything_else() {
    let served = serve(ServerConfig::default()).await;
    let answer = reqwest::get(format!("{}/v1/responses/%FF", served.url)).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(answer.json::<Value>().await.unwrap()["error"]["param"], "path");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_that_is_too_long_is_refused_or_loses_its_beginning() {
    let served = serve(ServerConfig::default()).await;
    let long = "word ".repeat(6_000);
    let param = refused(&served, json!({ "input": long })).await;
    assert_eq!(param, "input_tokens");
    // This input is rejected by its length, before it is tokenized.
    let param = refused(&served, json!({ "input": "word ".repeat(600_000) })).await;
    assert_eq!(param, "input_tokens");
    let response = create(&served, json!({"input": long, "truncation": "auto"})).await;
    assert_eq!(
        (&response["truncation"], &response["status"]),
        (&json!("auto"), &json!("incomplete"))
    );
    let usage = &response["usage"];
    assert_eq!(usage["total_tokens"], 4096, "as much as the context takes: {usage}");
    served.stop().await;
}

/// The arguments of the model are JSON, and it sees a longer name. The client gets neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_custom_tool_gets_text_and_a_function_keeps_its_namespace() {
    let served = serve(ServerConfig::default()).await;
    let parameters = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let find = json!({"type": "function", "name": "find", "parameters": parameters});
    let tools = json!([
        {"type": "custom", "name": "patch"},
        {"type": "namespace", "name": "crm", "tools": [find]},
    ]);
    let chosen = |kind: &str, name: &str| {
        let choice = json!({"type": kind, "name": name});
        json!({"tools": tools, "tool_choice": choice, "max_output_tokens": 200})
    };
    let response = create(&served, chosen("custom", "patch")).await;
    let call = &response["output"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("custom_tool_call"), &json!("patch")));
    let input = call["input"].as_str().unwrap();
    assert!(!input.contains("\"input\""), "{input}");
    let response = create(&served, chosen("function", "find")).await;
    let call = &response["output"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("function_call"), &json!("find")));
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((&call["namespace"], arguments), (&json!("crm"), json!({})));
    served.stop().await;
}
