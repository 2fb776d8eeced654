//! Fields that change the form of the answer.

use playhouse::{EngineConfig, config::JsonObject, server::ServerConfig};
use reqwest::Client;
use serde_json::{Value, json};

use super::{ask, engine, post, serve};
use crate::serving::Served;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_reported_if_they_are_turned_on() {
    let completion = json!({"prompt": "x", "max_tokens": 4, "ignore_eos": true});
    let body = json!({"prompt": ["x", "y"], "max_tokens": 4, "ignore_eos": true});
    let served = serve(ServerConfig::default()).await;
    assert_eq!(ask(&served, "/v1/completions", body.clone()).await["metrics"], json!(null));
    served.stop().await;

    let config = ServerConfig { enable_per_request_metrics: true, ..ServerConfig::default() };
    let served = serve(config).await;
    let metrics = ask(&served, "/v1/completions", body).await["metrics"].clone();
    let told = |name: &str| metrics[name].as_f64().unwrap_or(-1.0);
    for name in ["time_to_first_token_ms", "mean_itl_ms", "tokens_per_second"] {
        assert!(told(name) > 0.0, "{name}: {metrics}");
    }
    assert!(told("queue_time_ms") >= 0.0, "{metrics}");
    assert!(told("generation_time_ms") >= told("mean_itl_ms"), "{metrics}");

    let chat = json!({
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "ignore_eos": true,
    });
    let metrics = ask(&served, "/v1/chat/completions", chat.clone()).await["metrics"].clone();
    assert!(metrics["tokens_per_second"].as_f64().unwrap() > 0.0, "{metrics}");
    for (path, body) in [("/v1/chat/completions", chat), ("/v1/completions", completion)] {
        let told = chunks_with_metrics(&served, path, body).await;
        let [last] = told.as_slice() else { panic!("{path}: {told:?}") };
        assert_eq!(last["choices"], json!([]), "beside the usage");
        assert!(last["metrics"]["mean_itl_ms"].as_f64().unwrap() > 0.0, "{last}");
    }
    served.stop().await;
}

/// Returns the chunks of a stream that report durations.
async fn chunks_with_metrics(served: &Served, path: &str, mut body: Value) -> Vec<Value> {
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let request = Client::new().post(format!("{}{path}", served.url)).json(&body);
    let text = request.send().await.unwrap().text().await.unwrap();
    let events = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let chunks = events.filter_map(|event| serde_json::from_str::<Value>(event).ok());
    chunks.filter(|chunk| chunk.get("metrics").is_some()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_logprobs_of_named_tokens_are_reported() {
    let served = serve(ServerConfig::default()).await;
    let body = |logprobs: u32, named: &[u32]| {
        json!({
            "prompt": [11, 22, 33], "max_tokens": 1, "temperature": 0, "ignore_eos": true,
            "logprobs": logprobs, "logprob_token_ids": named, "return_tokens_as_token_ids": true,
        })
    };
    let top = async |logprobs, named: &[u32]| {
        let answer = ask(&served, "/v1/completions", body(logprobs, named)).await;
        answer["choices"][0]["logprobs"]["top_logprobs"][0].as_object().unwrap().clone()
    };
    let likeliest = top(20, &[]).await;
    let last = likeliest.keys().next_back().unwrap();
    let id: u32 = last.strip_prefix("token_id:").unwrap().parse().unwrap();
    let named = top(0, &[id, 5]).await;
    assert_eq!(named.len(), 3, "{named:?}");
    assert_eq!(named[last], likeliest[last]);
    assert_eq!(top(3, &[id, 5]).await, named, "in place of the likeliest");
    assert!(named["token_id:5"].as_f64().unwrap() < 0.0);
    let error = post(&served, "/v1/completions", body(0, &[4_000_000])).await;
    assert_eq!((error.0, &error.1["error"]["param"]), (400, &json!("logprob_token_ids")));
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_fields_are_named() {
    let served = serve(ServerConfig::default()).await;
    let fields = [
        ("suffix", json!("x")),
        ("prompt_embeds", json!("x")),
        ("watermarking", json!({"key": 1})),
        ("kv_transfer_params", json!({"x": 1})),
        ("ec_transfer_params", json!({"x": 1})),
        ("vllm_xargs", json!({"rule": 1})),
    ];
    for (field, value) in fields {
        let mut body = json!({"prompt": "x"});
        body[field] = value;
        let (status, error) = post(&served, "/v1/completions", body).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!(field)), "{error}");
    }
    let suffix = post(&served, "/v1/completions", json!({"prompt": "x", "suffix": "y"})).await.1;
    assert_eq!(suffix["error"]["message"], "suffix is not currently supported");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn null_max_tokens_are_the_default() {
    // As `normalize_null_max_tokens` of vLLM 0.33 has it.
    let served = serve(ServerConfig::default()).await;
    let body = json!({"prompt": "x", "max_tokens": null, "ignore_eos": true});
    let answer = ask(&served, "/v1/completions", body).await;
    assert_eq!(answer["usage"]["completion_tokens"], 16, "{answer}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_is_echoed_as_text_or_as_ids() {
    // As vLLM 0.33, which leaves the prompt out of the text beside `return_token_ids`.
    let served = serve(ServerConfig::default()).await;
    let body = |ids: bool, max_tokens: u32| {
        json!({
            "prompt": "Once upon a time", "echo": true, "logprobs": 0, "max_tokens": max_tokens,
            "temperature": 0, "ignore_eos": true, "return_token_ids": ids,
        })
    };
    let choice = async |ids, max_tokens| {
        let answer = ask(&served, "/v1/completions", body(ids, max_tokens)).await;
        answer["choices"][0].clone()
    };
    let (text, ids) = (choice(false, 4).await, choice(true, 4).await);
    let whole = text["text"].as_str().unwrap();
    assert_eq!(whole.strip_prefix("Once upon a time"), ids["text"].as_str(), "{whole}");
    assert_eq!(ids["logprobs"]["tokens"], text["logprobs"]["tokens"], "of the prompt too");
    let num_prompt_tokens = ids["prompt_token_ids"].as_array().unwrap().len();
    let num_tokens = ids["logprobs"]["tokens"].as_array().unwrap().len();
    assert_eq!(num_tokens, num_prompt_tokens + 4);
    assert_eq!(choice(true, 0).await["text"], "");
    assert_eq!(choice(false, 0).await["text"], "Once upon a time");

    let mut streamed = body(true, 4);
    streamed["stream"] = json!(true);
    let request = Client::new().post(format!("{}/v1/completions", served.url)).json(&streamed);
    let events = request.send().await.unwrap().text().await.unwrap();
    let events = events.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let chunks: Vec<Value> = events.filter_map(|event| serde_json::from_str(event).ok()).collect();
    let texts: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(Some(texts.as_str()), ids["text"].as_str());
    assert_eq!(chunks[0]["choices"][0]["prompt_token_ids"], ids["prompt_token_ids"]);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokenizing_takes_an_empty_list_of_tools_for_none() {
    // As vLLM 0.33, where chat alone refuses such a list.
    let served = serve(ServerConfig::default()).await;
    let mut body = json!({"messages": [{"role": "user", "content": "x"}]});
    let without = ask(&served, "/tokenize", body.clone()).await;
    body["tools"] = json!([]);
    assert_eq!(ask(&served, "/tokenize", body.clone()).await, without);
    assert_eq!(post(&served, "/v1/chat/completions", body).await.0, 400);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_at_their_edges_are_taken_or_refused_as_by_vllm() {
    let served = serve(ServerConfig::default()).await;
    let status = async |field: &str, value: &Value| {
        let mut body = json!({"prompt": "x", "max_tokens": 1});
        body[field] = value.clone();
        post(&served, "/v1/completions", body).await.0
    };
    let cases = [
        ("bad_words", json!([]), 200),
        ("bad_words", json!([""]), 400),
        ("bad_words", json!(["y", " "]), 400),
        ("repetition_detection", json!({}), 200),
        ("repetition_detection", json!({"max_pattern_size": 0, "min_count": 1}), 200),
        ("repetition_detection", json!({"max_pattern_size": 3, "min_count": 2}), 200),
        ("repetition_detection", json!({"max_pattern_size": 3, "min_count": 1}), 400),
        ("repetition_detection", json!({"min_pattern_size": 3}), 400),
        ("repetition_detection", json!({"max_pattern_size": -1}), 400),
    ];
    for (field, value, expected) in cases {
        assert_eq!(status(field, &value).await, expected, "{field}: {value}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_says_that_no_token_is_left() {
    let served = serve(ServerConfig::default()).await;
    let of_text = json!({"prompt": "y", "add_special_tokens": false});
    let token = ask(&served, "/tokenize", of_text).await["tokens"][0].clone();
    let mut body = json!({"prompt": "x", "max_tokens": 4, "allowed_token_ids": [token]});
    let alone = ask(&served, "/v1/completions", body.clone()).await;
    assert_eq!(alone["choices"][0]["text"], "yyyy");
    body["bad_words"] = json!(["y"]);
    let (status, answer) = post(&served, "/v1/completions", body).await;
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains("leave no token"), "{answer}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_output_ends_with_the_context() {
    // As `get_max_tokens` of vLLM 0.33 has it: only a wish beyond the whole context is refused.
    let served = serve(ServerConfig::default()).await;
    let body = |prompt_tokens: usize, max_tokens: usize, search: bool| {
        json!({
            "prompt": vec![5; prompt_tokens], "max_tokens": max_tokens, "ignore_eos": true,
            "truncate_prompt_tokens": -1, "use_beam_search": search,
        })
    };
    for (prompt_tokens, max_tokens, left) in [(510, 512, 2), (508, 3, 3), (600, 20, 1)] {
        for search in [false, true] {
            let body = body(prompt_tokens, max_tokens, search);
            let answer = ask(&served, "/v1/completions", body).await;
            assert_eq!(answer["usage"]["completion_tokens"], left, "{answer}");
            assert_eq!(answer["usage"]["prompt_tokens"], prompt_tokens.min(511), "{answer}");
            assert_eq!(answer["choices"][0]["finish_reason"], "length");
        }
    }
    let (status, error) = post(&served, "/v1/completions", body(1, 513, false)).await;
    assert_eq!((status, &error["error"]["param"]), (400, &json!("max_tokens")), "{error}");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_bounds_the_output_of_clients() {
    // As vLLM 0.33, where `TokenizeParams` refuses a wish before `override_max_tokens` bounds it.
    let settings = json!({"max_new_tokens": 8}).as_object().unwrap().clone();
    let override_generation_config = Some(JsonObject(settings));
    let engine = EngineConfig { override_generation_config, ..engine() };
    let served = Served::start(engine, ServerConfig::default()).await;
    let body = |max_tokens: u32, search: bool| {
        json!({
            "prompt": [5, 6], "max_tokens": max_tokens, "ignore_eos": true,
            "use_beam_search": search,
        })
    };
    for search in [false, true] {
        for (max_tokens, left) in [(3, 3), (20, 8)] {
            let answer = ask(&served, "/v1/completions", body(max_tokens, search)).await;
            assert_eq!(answer["usage"]["completion_tokens"], left, "{answer}");
        }
        let (status, error) = post(&served, "/v1/completions", body(513, search)).await;
        assert_eq!((status, &error["error"]["param"]), (400, &json!("max_tokens")), "{error}");
    }
    served.stop().await;
}
