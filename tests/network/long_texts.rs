//! Texts that take long to tokenize: they are cut, counted up to a limit, and do not delay other
//! requests.

use playhouse::{EngineConfig, server::ServerConfig};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{PATIENCE, engine, serve, serving::Served};

/// The longest text that `/tokenize` takes, in bytes.
const TEXT_BYTES_MAX: usize = 4 << 20;

async fn post(served: &Served, path: &str, body: &Value) -> Response {
    let sent = Client::new().post(format!("{}{path}", served.url)).json(body).send();
    timeout(PATIENCE, sent).await.unwrap().unwrap()
}

async fn tokenized(served: &Served, text: &str) -> Vec<u64> {
    let answer: Value =
        post(served, "/tokenize", &json!({ "prompt": text })).await.json().await.unwrap();
    answer["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap()).collect()
}

/// Four prompts of 30 MiB at once, each as long as a body may be, and 20 short ones at the same
/// time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_prompt_of_megabytes_does_not_delay_others() {
    // All four must fit. The default is a share of the memory that is free at that moment.
    let engine = EngineConfig { max_request_memory_bytes: Some(4 << 30), ..engine() };
    let served = Served::start(engine, ServerConfig::default()).await;
    let end = "and so they sailed on, until the wind died down.";
    let long = "Once upon a time, in 1234 BC, the lantern was lit.\n".repeat((30 << 20) / 51) + end;
    let long = json!({
        "prompt": long, "truncate_prompt_tokens": 8, "max_tokens": 1, "temperature": 0,
        "return_token_ids": true,
    });
    let short = json!({ "prompt": "Once upon a time", "max_tokens": 1 });
    let (long_ones, ()) = tokio::join!(
        async {
            let send = || post(&served, "/v1/completions", &long);
            let answers = tokio::join!(send(), send(), send(), send());
            [answers.0, answers.1, answers.2, answers.3]
        },
        async {
            for _ in 0..20 {
                assert_eq!(post(&served, "/v1/completions", &short).await.status(), 200);
            }
        }
    );
    for answer in long_ones {
        assert_eq!(answer.status(), 200);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["usage"]["prompt_tokens"], 8);
    }
    assert!(served.engine.actors().iter().all(|actor| actor.restarts == 0));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_that_only_tokenize_have_a_limit_with_numbers() {
    let served = serve(ServerConfig::default()).await;
    let too_long = "x ".repeat(TEXT_BYTES_MAX / 2) + "x";
    let said = json!([{ "role": "user", "content": too_long }]);
    for (path, body) in [
        ("/tokenize", json!({ "prompt": too_long })),
        ("/tokenize", json!({ "messages": said })),
        ("/v1/messages/count_tokens", json!({ "model": "demo", "messages": said })),
        ("/v1/responses/input_tokens", json!({ "input": too_long })),
    ] {
        let answer = post(&served, path, &body).await;
        assert_eq!(answer.status(), 400, "{path}");
        let error = answer.json::<Value>().await.unwrap()["error"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("4194304") && message.contains(" bytes of text"), "{message}");
    }
    // A text that has no place to be cut.
    let run = post(&served, "/tokenize", &json!({ "prompt": "x".repeat((1 << 20) + 1) })).await;
    assert_eq!(run.status(), 400);
    assert!(run.text().await.unwrap().contains("at most 1048576 such bytes"));
    // A text just short enough has the tokens of its parts.
    let part = "It was late. The fox slept.\n";
    let (one, whole) = (tokenized(&served, part).await, part.repeat(40_000));
    assert_eq!(tokenized(&served, &whole).await.len(), one.len() * 40_000);
    served.stop().await;
}
