//! `/generative_scoring`.

use playhouse::server::ServerConfig;
use serde_json::{Value, json};

use super::{ask, post, serve};

async fn tokens(served: &crate::serving::Served, text: &str, special: bool) -> Value {
    let body = json!({"prompt": text, "add_special_tokens": special});
    ask(served, "/tokenize", body).await["tokens"].clone()
}

/// As in vLLM, query and items may be ids of tokens, and the prefix cache may have a salt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_score_as_their_text() {
    let server = ServerConfig { enable_prompt_tokens_details: true, ..ServerConfig::default() };
    let served = serve(server).await;
    let query = "Once upon a time there was a little dog, who liked to play. ".repeat(3);
    let items = ["He ran", "It slept"];
    let body = |query: Value, items: Value, salt: Value| {
        json!({
            "query": query, "items": items, "label_token_ids": [5, 9], "cache_salt": salt,
            "request_id": "mine",
        })
    };
    let text = body(json!(query), json!(items), Value::Null);
    let text = ask(&served, "/generative_scoring", text).await;
    let ids = [tokens(&served, items[0], false).await, tokens(&served, items[1], false).await];
    let query_ids = tokens(&served, &query, true).await;
    let same = body(query_ids.clone(), json!(ids), json!("other"));
    let same = ask(&served, "/generative_scoring", same).await;
    assert_eq!(
        (&text["data"], text["id"].as_str()),
        (&same["data"], Some("generative-scoring-mine"))
    );
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    let salted = body(query_ids, json!([ids[0]]), json!("third"));
    assert_eq!(cached(&ask(&served, "/generative_scoring", salted).await), 0);
    for (field, wrong) in [("query", json!(["a", "b"])), ("cache_salt", json!(""))] {
        let mut body = body(json!("a"), json!(["b"]), Value::Null);
        body[field] = wrong;
        let (status, error) = post(&served, "/generative_scoring", body).await;
        assert_eq!((status, error["error"]["param"].as_str()), (400, Some(field)), "{error}");
    }
    served.stop().await;
}

/// Each prompt has the query, so the prompts of a long one are not made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_beyond_the_context_is_refused_before_it_is_copied() {
    let served = serve(ServerConfig::default()).await;
    let long = json!({
        "query": "a dog ".repeat(200_000), "items": vec!["b"; 1_000], "label_token_ids": [5],
    });
    let (status, error) = post(&served, "/generative_scoring", long).await;
    assert_eq!((status, error["error"]["param"].as_str()), (400, Some("input_tokens")), "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("your prompt contains at least"), "{message}");
    served.stop().await;
}
