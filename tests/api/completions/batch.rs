//! Several conversations in one request, and one route for all.

use playhouse::server::ServerConfig;
use serde_json::{Value, json};

use super::{ask, post, serve};

fn conversation(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_what_its_conversations_are_alone() {
    let served = serve(ServerConfig::default()).await;
    let body = |messages: Value| {
        json!({
            "messages": messages, "max_tokens": 6, "temperature": 0, "ignore_eos": true,
            "logprobs": true, "top_logprobs": 1, "return_token_ids": true,
        })
    };
    let chat = "/v1/chat/completions";
    let first = ask(&served, chat, body(conversation("one"))).await;
    let second = ask(&served, chat, body(conversation("something else"))).await;
    let both = body(json!([conversation("one"), conversation("something else")]));
    let batch = ask(&served, "/v1/chat/completions/batch", both).await;
    assert_eq!(batch["object"], "chat.completion");
    assert_eq!(batch["choices"].as_array().unwrap().len(), 2);
    for (index, alone) in [first, second].iter().enumerate() {
        let choice = &batch["choices"][index];
        assert_eq!(choice["index"], index);
        for part in ["message", "logprobs", "finish_reason", "token_ids"] {
            assert_eq!(choice[part], alone["choices"][0][part], "{part}");
        }
        assert_eq!(choice["prompt_token_ids"], alone["prompt_token_ids"]);
    }
    assert_eq!(batch["usage"]["completion_tokens"], 12);

    let wrong = body(json!([conversation("one"), [{"role": "user"}, 7]]));
    assert_eq!(post(&served, "/v1/chat/completions/batch", wrong).await.0, 400);
    assert_eq!(served.engine.open_requests(), 0, "all or none");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invocation_goes_where_its_shape_belongs() {
    let served = serve(ServerConfig::default()).await;
    let limits = |mut body: Value| {
        body["max_tokens"] = 2.into();
        body["temperature"] = 0.into();
        body
    };
    let text = ask(&served, "/invocations", limits(json!({"prompt": "x"}))).await;
    assert_eq!(text["object"], "text_completion");
    let chat = ask(&served, "/invocations", limits(json!({"messages": conversation("x")}))).await;
    assert_eq!(chat["object"], "chat.completion");
    assert_eq!(post(&served, "/invocations", json!({"input": "x"})).await.0, 400);
    served.stop().await;
}
