//! The limits of one request, and streams that have nothing to send.

use futures_util::StreamExt;
use playhouse::{EngineConfig, config::LimitSettings, server::ServerConfig};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{PATIENCE, engine, serve, serving::Served};

async fn post(served: &Served, path: &str, body: &Value) -> Response {
    Client::new().post(format!("{}{path}", served.url)).json(body).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_much_of_anything_is_refused_by_field_and_limit() {
    let limits = LimitSettings {
        max_json_depth: 20,
        max_completion_prompts: 3,
        max_n_sequences: 6,
        max_num_bad_words: 5,
        max_messages: 7,
        max_tools: 2,
        ..LimitSettings::default()
    };
    let served = serve(ServerConfig { limits, ..ServerConfig::default() }).await;
    let message = json!({"role": "user", "content": "hi"});
    let tool = json!({"type": "function", "function": {"name": "now"}});
    let deep = (0..20).fold(json!(1), |inner, _| json!([inner]));
    let completion = "/v1/completions";
    let chat = "/v1/chat/completions";
    let said = json!([message]);
    let cases = [
        (completion, "prompt", "3", json!({"prompt": vec!["x"; 4]})),
        (completion, "n", "6", json!({"prompt": vec!["x"; 2], "n": 4})),
        (completion, "stop", "4", json!({"prompt": "x", "stop": vec!["y"; 5]})),
        (completion, "bad_words", "5", json!({"prompt": "x", "bad_words": vec!["y"; 6]})),
        (completion, "body", "20", json!({"prompt": "x", "extra": deep})),
        (chat, "messages", "7", json!({"messages": vec![message; 8]})),
        (chat, "tools", "2", json!({"messages": said, "tools": vec![tool; 3]})),
        (chat, "n", "6", json!({"messages": said, "n": 7})),
    ];
    for (path, field, limit, body) in cases {
        let answer = post(&served, path, &body).await;
        assert_eq!(answer.status(), 400, "{field}");
        let error = answer.json::<Value>().await.unwrap()["error"].clone();
        assert_eq!(error["param"], field, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(field) || field == "body", "{message}");
        assert!(message.contains(limit), "{message}");
    }
    let fits = json!({"prompt": vec!["x"; 3], "n": 2, "max_tokens": 1, "stop": vec!["y"; 4]});
    assert_eq!(post(&served, completion, &fits).await.status(), 200);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_waits_its_turn_says_that_it_lives() {
    let alone = EngineConfig { max_num_seqs: 1, ..engine() };
    let server = ServerConfig { sse_keep_alive_interval_secs: 1, ..ServerConfig::default() };
    let served = Served::start(alone, server).await;
    let body =
        json!({"prompt": "x", "max_tokens": 4000, "ignore_eos": true, "stream": true, "n": 4});
    let mut first = post(&served, "/v1/completions", &body).await.bytes_stream();
    first.next().await.unwrap().unwrap();
    // The four choices of the first request run one after the other, and this request comes after
    // them.
    let mut second = post(&served, "/v1/completions", &body).await.bytes_stream();
    let comment = timeout(PATIENCE, second.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(comment, ": keep-alive\n\n");
    drop((first, second));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_choices_than_an_empty_engine_admits_are_refused_by_field_and_limit() {
    let small = EngineConfig { max_num_requests: 9, ..engine() };
    let served = Served::start(small, ServerConfig::default()).await;
    let ask = |n| json!({"prompt": "x", "max_tokens": 1, "n": n});
    let answer = post(&served, "/v1/completions", &ask(9)).await;
    assert_eq!(answer.status(), 400, "waiting would not help");
    let error = answer.json::<Value>().await.unwrap()["error"].clone();
    assert_eq!(error["param"], "n");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("at most 8") && message.contains("max_num_requests"), "{message}");
    assert_eq!(post(&served, "/v1/completions", &ask(8)).await.status(), 200);
    served.stop().await;
}
