//! Spans of requests, as a collector receives them.

use std::sync::{Arc, Mutex};

use axum::{Router, body::Bytes, extract::State, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use playhouse::{EngineConfig, server::ServerConfig};
use prost::Message;
use reqwest::Client;
use serde_json::{Value as Json, json};
use tokio::net::TcpListener;

use crate::serving::Served;

/// The spans that arrived, each with the name of its service.
type Spans = Arc<Mutex<Vec<(String, Span)>>>;

/// Starts a collector. Returns its URL.
async fn collect(spans: Spans) -> String {
    let receive = async |State(spans): State<Spans>, body: Bytes| {
        let exported = ExportTraceServiceRequest::decode(body).unwrap();
        for group in exported.resource_spans {
            let service = attribute(&group.resource.unwrap().attributes, "service.name");
            let Some(Value::StringValue(service)) = service else { unreachable!("{service:?}") };
            let scoped = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.lock().unwrap().extend(scoped.map(|span| (service.clone(), span)));
        }
    };
    let collector = Router::new().route("/v1/traces", post(receive)).with_state(spans);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, collector).await });
    url
}

fn attribute(attributes: &[KeyValue], key: &str) -> Option<Value> {
    attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value
}

fn demo() -> EngineConfig {
    EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        max_model_len: Some(512),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    }
}

async fn ask(served: &Served, headers: &[(&str, &str)], fields: Json) -> Json {
    let mut body = json!({"messages": [{"role": "user", "content": "Who are you?"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let url = format!("{}/v1/chat/completions", served.url);
    let mut request = Client::new().post(url).json(&body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_a_span_with_vllms_attributes() {
    let spans = Spans::default();
    let endpoint = collect(spans.clone()).await;
    let server = ServerConfig { otlp_traces_endpoint: Some(endpoint), ..ServerConfig::default() };
    let served = Served::start(demo(), server).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let headers = [("traceparent", parent), ("tracestate", "vendor=x"), ("x-request-id", "mine")];
    let sampling = json!({"max_tokens": 8, "temperature": 0.7, "top_p": 0.9, "n": 2, "seed": 1,
        "ignore_eos": true});
    let answer = ask(&served, &headers, sampling).await;
    // The client does not want this one traced, and the server rejects the last one.
    let unsampled = "00-0af7651916cd43dd8448eb211c80319d-b7ad6b7169203331-00";
    ask(&served, &[("traceparent", unsampled)], json!({"max_tokens": 1})).await;
    ask(&served, &[("traceparent", "nonsense")], json!({"max_tokens": 1})).await;
    let refused = ask(&served, &[], json!({"max_tokens": 1, "temperature": -1})).await;
    assert_eq!(refused["error"]["code"], 400, "{refused}");
    served.stop().await;

    let spans = std::mem::take(&mut *spans.lock().unwrap());
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert!(spans.iter().all(|(service, span)| {
        (service.as_str(), span.name.as_str(), span.kind) == ("playhouse", "llm_request", 2)
    }));
    let (_, span) = &spans[0];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&span.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&span.parent_span_id), "b7ad6b7169203331");
    assert_eq!(span.trace_state, "vendor=x");
    let (_, root) = &spans[1];
    assert!(root.parent_span_id.is_empty(), "a malformed parent counts as none");

    let int = |key: &str| match attribute(&span.attributes, key) {
        Some(Value::IntValue(value)) => value,
        other => unreachable!("{key}: {other:?}"),
    };
    let float = |key: &str| match attribute(&span.attributes, key) {
        Some(Value::DoubleValue(value)) => value,
        other => unreachable!("{key}: {other:?}"),
    };
    let text = |key: &str| match attribute(&span.attributes, key) {
        Some(Value::StringValue(value)) => value,
        other => unreachable!("{key}: {other:?}"),
    };
    assert_eq!(text("gen_ai.request.id"), "chatcmpl-mine");
    assert_eq!(answer["id"], "chatcmpl-mine");
    assert_eq!(text("gen_ai.response.model"), "demo");
    assert_eq!((int("gen_ai.request.max_tokens"), int("gen_ai.request.n")), (8, 2));
    assert_eq!((float("gen_ai.request.temperature"), float("gen_ai.request.top_p")), (0.7, 0.9));
    assert_eq!(int("gen_ai.usage.prompt_tokens"), answer["usage"]["prompt_tokens"]);
    assert_eq!(int("gen_ai.usage.completion_tokens"), 16);
    let latency = |name: &str| float(&format!("gen_ai.latency.{name}"));
    let (queue, first, all) =
        (latency("time_in_queue"), latency("time_to_first_token"), latency("e2e"));
    assert!(0.0 <= queue && queue <= first && first <= all, "{queue} {first} {all}");
    let (prefill, decode) = (latency("time_in_model_prefill"), latency("time_in_model_decode"));
    let inference = latency("time_in_model_inference");
    assert!((prefill + decode - inference).abs() < 1e-6, "{prefill} {decode} {inference}");
    assert!(inference <= all && inference > 0.0);
    let duration = (span.end_time_unix_nano - span.start_time_unix_nano) as f64 / 1e9;
    assert!((duration - all).abs() < 1e-3, "{duration} {all}");
}

/// A collector that is not there costs no request.
#[tokio::test(flavor = "multi_thread")]
async fn requests_do_not_wait_for_a_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    drop(listener);
    let server = ServerConfig { otlp_traces_endpoint: Some(endpoint), ..ServerConfig::default() };
    let served = Served::start(demo(), server).await;
    let answer = ask(&served, &[], json!({"max_tokens": 1})).await;
    assert_eq!(answer["usage"]["completion_tokens"], 1, "{answer}");
    served.stop().await;
}
