//! Tools and thoughts over HTTP, with random weights. Their text is forced, or read by the test's
//! own parsers.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

use crate::{contrived, serving::Served};
use playhouse::{EngineConfig, config::ParserChoice, server::ServerConfig};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

async fn serve(server: ServerConfig) -> Served {
    Served::start(demo(), server).await
}

fn demo() -> EngineConfig {
    EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        max_model_len: Some(1024),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    }
}

/// Returns a conversation that offers two tools, with `fields` added or replaced.
fn chat(fields: Value) -> Value {
    let tool = |name: &str, properties: Value| {
        let required: Vec<&String> = properties.as_object().unwrap().keys().collect();
        let parameters = json!({
            "type": "object",
            "required": required,
            "properties": properties,
            "additionalProperties": false,
        });
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let unit = json!({"enum": ["c", "f"]});
    let mut body = json!({
        "messages": [{"role": "user", "content": "What now?"}],
        "tools": [tool("weather", json!({"unit": unit})), tool("now", json!({}))],
        "max_tokens": 16,
        "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

async fn post(served: &Served, body: &Value) -> Response {
    let url = format!("{}/v1/chat/completions", served.url);
    Client::new().post(url).json(body).send().await.unwrap()
}

async fn answer(served: &Served, body: &Value) -> Value {
    let response = post(served, body).await;
    let status = response.status();
    let answer: Value = response.json().await.unwrap();
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

/// Returns the message and the finish reason that the events of a stream add up to.
async fn streamed(served: &Served, body: &Value) -> (Value, Value) {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let text = post(served, &body).await.text().await.unwrap();
    let mut message = json!({"content": null, "reasoning": null, "tool_calls": []});
    let mut finish = Value::Null;
    let append = |to: &mut Value, text: &Value| {
        if let Some(text) = text.as_str() {
            *to = json!(to.as_str().unwrap_or_default().to_owned() + text);
        }
    };
    for event in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(chunk) = serde_json::from_str::<Value>(event) else { continue };
        let choice = &chunk["choices"][0];
        for field in ["content", "reasoning"] {
            append(&mut message[field], &choice["delta"][field]);
        }
        for piece in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let calls = message["tool_calls"].as_array_mut().unwrap();
            if piece["id"].is_string() {
                assert_eq!(piece["index"], calls.len());
                calls.push(piece.clone());
            } else {
                let arguments = &mut calls.last_mut().unwrap()["function"]["arguments"];
                append(arguments, &piece["function"]["arguments"]);
            }
        }
        if choice["finish_reason"].is_string() {
            assert!(finish.is_null(), "two finish reasons: {text}");
            finish = choice["finish_reason"].clone();
        }
    }
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    (message, finish)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parsers_of_a_librarys_user_read_answers() {
    let engine = contrived::engine(demo()).await;
    let served = Served::of(engine, contrived::reading(ServerConfig::default())).await;

    let plain = answer(&served, &chat(json!({"tool_choice": "none", "ignore_eos": true}))).await;
    let plain = &plain["choices"][0]["message"];
    let (thought, said) = (&plain["reasoning"], &plain["content"]);
    assert_eq!(thought.as_str().unwrap().chars().count(), 1);

    let body = chat(json!({"ignore_eos": true}));
    let whole = answer(&served, &body).await;
    let choice = &whole["choices"][0];
    let message = &choice["message"];
    assert_eq!((&message["reasoning"], &message["content"]), (thought, &Value::Null));
    let call = &message["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("echo")));
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let arguments_read: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments_read, json!({ "text": said }));
    // The model may not stop by itself.
    assert_eq!(choice["finish_reason"], "length");

    let (message, finish) = streamed(&served, &body).await;
    assert_eq!((&message["reasoning"], &finish), (thought, &json!("length")));
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], arguments);

    // As vLLM 0.33, which hides all that would tell the thoughts.
    let told = json!({"logprobs": true, "return_token_ids": true});
    let seen = answer(&served, &chat(told.clone())).await;
    assert!(seen["choices"][0]["logprobs"].is_object(), "{seen}");
    assert!(seen["choices"][0]["token_ids"].is_array(), "{seen}");
    let mut fields = told;
    fields["include_reasoning"] = json!(false);
    let unseen = answer(&served, &chat(fields)).await;
    assert_eq!(unseen["choices"][0]["message"]["reasoning"], Value::Null);
    assert_eq!(unseen["choices"][0]["logprobs"], Value::Null);
    assert_eq!(unseen["choices"][0]["token_ids"], Value::Null);
    assert_eq!(unseen["prompt_token_ids"], seen["prompt_token_ids"]);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsupported_requests_are_rejected_by_their_field() {
    let served = serve(ServerConfig {
        tool_call_parser: ParserChoice::None,
        reasoning_parser: ParserChoice::None,
        ..ServerConfig::default()
    })
    .await;
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let refused = [
        (json!({}), "tool_choice"),
        (json!({"tool_choice": "auto"}), "tool_choice"),
        (json!({"tool_choice": named("later")}), "tool_choice"),
        (json!({"tool_choice": "maybe"}), "tool_choice"),
        (json!({"tool_choice": allowed("required", "later")}), "tool_choice"),
        (json!({"tools": null, "tool_choice": "required"}), "tool_choice"),
        (json!({"tools": []}), "tools"),
        // As vLLM 0.33, which takes other kinds of structure and other choices together.
        (
            json!({"tool_choice": named("now"), "structured_outputs": {"regex": "a"}}),
            "structured_outputs",
        ),
        (json!({"tool_choice": "none", "thinking_token_budget": 3}), "thinking_token_budget"),
        (json!({"tool_choice": "none", "thinking_token_budget": -2}), "thinking_token_budget"),
    ];
    for (fields, param) in refused {
        let response = post(&served, &chat(fields.clone())).await;
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{fields}");
        let error: Value = response.json().await.unwrap();
        assert_eq!(error["error"]["param"], param, "{fields}: {error}");
    }
    served.stop().await;
}

/// Returns the names and arguments of a message's calls.
fn calls(message: &Value) -> Vec<(String, Value)> {
    let calls = message["tool_calls"].as_array().unwrap();
    let call = |call: &Value| {
        let function = &call["function"];
        let arguments = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        (function["name"].as_str().unwrap().to_owned(), arguments)
    };
    calls.iter().map(call).collect()
}

fn is_on_offer((name, arguments): &(String, Value)) -> bool {
    match name.as_str() {
        "now" => *arguments == json!({}),
        "weather" => [json!({"unit": "c"}), json!({"unit": "f"})].contains(arguments),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_must_be_made_is_made() {
    let served = serve(ServerConfig::default()).await;
    let named = json!({"type": "function", "function": {"name": "weather"}});
    for seed in 0..8 {
        for (choice, finish) in [(json!("required"), "tool_calls"), (named.clone(), "stop")] {
            let body = chat(json!({
                "tool_choice": choice,
                "parallel_tool_calls": false,
                "temperature": 1,
                "seed": seed,
                "max_tokens": 200,
            }));
            let whole = answer(&served, &body).await;
            let message = &whole["choices"][0]["message"];
            let made = calls(message);
            assert!(made.len() == 1 && made.iter().all(is_on_offer), "{message}");
            assert!(choice == "required" || made[0].0 == "weather");
            assert_eq!(message["content"], "");
            assert_eq!(whole["choices"][0]["finish_reason"], finish);
            let (streamed, streamed_finish) = streamed(&served, &body).await;
            assert_eq!((calls(&streamed), streamed_finish), (made, json!(finish)));
        }
    }
    served.stop().await;
}

/// Returns a tool choice that allows one of the tools.
fn allowed(mode: &str, name: &str) -> Value {
    let tools = json!([{"type": "function", "function": {"name": name}}]);
    json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_the_allowed_tools_is_called() {
    let served = serve(ServerConfig::default()).await;
    for seed in 0..4 {
        let choice = allowed("required", "now");
        let fields =
            json!({"tool_choice": choice, "temperature": 1, "seed": seed, "max_tokens": 400});
        let whole = answer(&served, &chat(fields)).await;
        let made = calls(&whole["choices"][0]["message"]);
        assert!(made.iter().all(|(name, _)| name == "now") && !made.is_empty(), "{made:?}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_cut_off_is_incomplete_and_no_text() {
    let served = serve(ServerConfig::default()).await;
    let raw = |message: &Value| -> Vec<(Value, Value)> {
        let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        let functions = calls.iter().map(|call| &call["function"]);
        functions
            .map(|function| (function["name"].clone(), function["arguments"].clone()))
            .collect()
    };
    let named = json!({"type": "function", "function": {"name": "weather"}});
    let mut num_incomplete = 0;
    for choice in [json!("required"), named] {
        for max_tokens in 1..16 {
            let fields = json!({"tool_choice": choice, "temperature": 0, "max_tokens": max_tokens});
            let body = chat(fields);
            let whole = answer(&served, &body).await;
            let (message, finish) =
                (&whole["choices"][0]["message"], &whole["choices"][0]["finish_reason"]);
            assert!(message["content"].as_str().unwrap_or_default().is_empty(), "{message}");
            let (streamed, streamed_finish) = streamed(&served, &body).await;
            assert_eq!((raw(&streamed), &streamed_finish), (raw(message), finish));
            assert_eq!(streamed["content"].as_str().unwrap_or_default(), "");
            num_incomplete += usize::from(finish == "length" && !raw(message).is_empty());
        }
    }
    assert!(num_incomplete > 0, "some calls are cut off");
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_the_model_makes_as_it_likes_is_found() {
    let served = serve(ServerConfig::default()).await;
    let said =
        "Well:<tool_call>{\"name\": \"weather\", \"arguments\": {\"unit\": \"c\"}}</tool_call>";
    let body = chat(json!({"structured_outputs": {"choice": [said]}, "max_tokens": 200}));
    let whole = answer(&served, &body).await;
    let choice = &whole["choices"][0];
    let made = vec![("weather".to_owned(), json!({"unit": "c"}))];
    assert_eq!(calls(&choice["message"]), made);
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("Well:"), &json!("tool_calls"))
    );
    let (message, finish) = streamed(&served, &body).await;
    assert_eq!((calls(&message), finish), (made, json!("tool_calls")));
    assert_eq!(message["content"], "Well:");

    let cut_off = chat(json!({"structured_outputs": {"choice": [said]}, "max_tokens": 20}));
    let cut_off = answer(&served, &cut_off).await["choices"][0].clone();
    assert_eq!(cut_off["finish_reason"], "length");
    assert!(said.starts_with(cut_off["message"]["content"].as_str().unwrap()), "{cut_off}");
    served.stop().await;
}

/// Returns the model of the recordings, whose tokenizer knows the markers of thoughts.
fn thinking_model() -> Option<std::path::PathBuf> {
    let root = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let places = [root.join("../shared/conformance/model"), root.join("shared/conformance/model")];
    places.into_iter().find(|place| place.join("config.json").is_file())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thoughts_come_first_and_are_bounded() {
    let Some(model) = thinking_model() else {
        println!("skipped: no ../shared/conformance beside the repository");
        return;
    };
    let engine = EngineConfig {
        max_model_len: Some(2048),
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        ..EngineConfig::new(model)
    };
    let server = ServerConfig {
        reasoning_parser: ParserChoice::Named("qwen3".to_owned()),
        trust_request_chat_template: true,
        ..ServerConfig::default()
    };
    let served = Served::start(engine, server).await;
    let body = json!({
        "messages": [{"role": "user", "content": "Is it?"}],
        "chat_template": "<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n<think>",
        "structured_outputs": {"choice": ["yes"]},
        "thinking_token_budget": 6,
        "temperature": 0,
        "max_tokens": 64,
    });
    let whole = answer(&served, &body).await;
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], "yes", "{whole}");
    assert!(!message["reasoning"].as_str().unwrap().is_empty());
    assert_eq!(whole["usage"]["completion_tokens_details"], json!({"reasoning_tokens": 6}));
    let (streamed, _) = streamed(&served, &body).await;
    assert_eq!(
        (&streamed["content"], &streamed["reasoning"]),
        (&json!("yes"), &message["reasoning"])
    );
    served.stop().await;
}
