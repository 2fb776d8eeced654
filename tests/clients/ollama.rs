//! Ollama's own Python and JavaScript clients, unmodified, against the server, and the requests
//! that Open WebUI sends. `PLAYHOUSE_TEST_PYTHON` names a Python that has the client, and
//! `npm install --prefix tests/clients` installs the other one. Without them, a test prints a note
//! and passes.
#![allow(clippy::print_stdout, reason = "the note of a test that is skipped")]

use std::{fs, path::Path, process::Command};

use playhouse::{EngineConfig, config::Runner, server::ServerConfig};
use reqwest::{Client, Method, Response, header::CONTENT_TYPE};
use serde_json::{Value, json};

use crate::{python, serving::Served};

/// Exit code of a script whose package is not installed.
const NO_PACKAGE: i32 = 3;

async fn serve(runner: Runner) -> Served {
    let engine = EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        runner,
        ..EngineConfig::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model"))
    };
    Served::start(engine, ServerConfig::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_chats_and_calls_tools() {
    let served = serve(Runner::Auto).await;
    python::run("clients/ollama_client.py", &[&served.url, "generate"]).await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_embeds() {
    let served = serve(Runner::Pooling).await;
    python::run("clients/ollama_client.py", &[&served.url, "embed"]).await;
    // Ollama's server/routes.go answers a request without a text so, and loads the model.
    for (path, body, field) in [
        ("/api/embed", json!({"model": "demo"}), "embeddings"),
        ("/api/embed", json!({"model": "demo", "input": ""}), "embeddings"),
        ("/api/embed", json!({"model": "demo", "input": []}), "embeddings"),
        ("/api/embeddings", json!({"model": "demo", "prompt": ""}), "embedding"),
        ("/api/embeddings", json!({"model": "demo", "prompt": null}), "embedding"),
    ] {
        let answer = send(&served, Method::POST, path, Some(&body)).await;
        assert_eq!(answer.status(), 200, "{path} {body}");
        assert_eq!(answer.json::<Value>().await.unwrap()[field], json!([]), "{path} {body}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_javascript_client_chats_and_calls_tools() {
    let served = serve(Runner::Auto).await;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/ollama_client.mjs");
    let mut node = Command::new("node");
    node.arg(script).arg(&served.url);
    let output = tokio::task::spawn_blocking(move || node.output()).await.unwrap();
    match output {
        Err(error) => println!("skipped: node does not run: {error}"),
        Ok(output) if output.status.code() == Some(NO_PACKAGE) => {
            println!("skipped: {}", String::from_utf8_lossy(&output.stdout));
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
    }
    served.stop().await;
}

async fn send(served: &Served, method: Method, path: &str, body: Option<&Value>) -> Response {
    let request = Client::new().request(method, format!("{}{path}", served.url));
    let request = match body {
        Some(body) => request.json(body),
        None => request,
    };
    request.send().await.unwrap()
}

async fn get(served: &Served, path: &str) -> Value {
    send(served, Method::GET, path, None).await.json().await.unwrap()
}

async fn lines(served: &Served, path: &str, body: &Value) -> Vec<Value> {
    let answer = send(served, Method::POST, path, Some(body)).await;
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/x-ndjson");
    let text = answer.text().await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The calls of Open WebUI's router for Ollama, in the order of a new conversation: it looks for
/// the server, lists its models and those that are loaded, chats, makes a title in JSON, and
/// unloads the model.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_calls_of_open_webui_are_answered() {
    let served = serve(Runner::Auto).await;
    let version = get(&served, "/api/version").await["version"].as_str().unwrap().to_owned();
    assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
    let tags = get(&served, "/api/tags").await;
    let model = &tags["models"][0];
    assert_eq!((&model["model"], &model["name"]), (&json!("demo"), &json!("demo")));
    assert!(model["size"].as_u64() > Some(0) && model["details"]["family"].is_string(), "{model}");
    let running = get(&served, "/api/ps").await;
    assert!(running["models"][0]["expires_at"].is_string(), "{running}");
    let asked = json!({"name": "demo:latest"});
    let shown = send(&served, Method::POST, "/api/show", Some(&asked)).await;
    let shown: Value = shown.json().await.unwrap();
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("completion")), "{shown}");

    let chat = json!({
        "model": "demo:latest", "stream": true, "keep_alive": "5m",
        "options": {"temperature": 0, "num_predict": 16, "num_ctx": 2048, "seed": 3},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello there"},
        ],
    });
    let told = lines(&served, "/api/chat", &chat).await;
    let (end, parts) = told.split_last().unwrap();
    let text: String = parts.iter().map(|p| p["message"]["content"].as_str().unwrap()).collect();
    assert!(!text.is_empty() && parts.iter().all(|part| part["done"] == false), "{told:?}");
    assert_eq!((&end["done"], &end["model"]), (&json!(true), &json!("demo")));
    assert!(end["eval_count"].as_u64() <= Some(16) && end["prompt_eval_count"].as_u64() > Some(3));

    let title = json!({
        "model": "demo", "stream": false, "format": {
            "type": "object", "properties": {"title": {"type": "string", "maxLength": 12}},
            "required": ["title"], "additionalProperties": false,
        },
        "messages": [{"role": "user", "content": "A title"}], "options": {"num_predict": 64},
    });
    let answer = send(&served, Method::POST, "/api/chat", Some(&title)).await;
    let answer: Value = answer.json().await.unwrap();
    let content = answer["message"]["content"].as_str().unwrap();
    let content: Value = serde_json::from_str(content).unwrap();
    assert!(content["title"].is_string(), "{content}");

    let load = json!({"model": "demo", "prompt": "", "keep_alive": -1, "stream": false});
    let loaded = send(&served, Method::POST, "/api/generate", Some(&load)).await;
    let loaded: Value = loaded.json().await.unwrap();
    assert_eq!((&loaded["done_reason"], &loaded["response"]), (&json!("load"), &json!("")));
    // As the type `ChatRequest` of Ollama's api/types.go is written without messages.
    let load = json!({"model": "demo", "messages": null, "format": null, "options": null});
    let loaded = send(&served, Method::POST, "/api/chat", Some(&load)).await;
    let loaded: Value = loaded.json().await.unwrap();
    assert_eq!(loaded["done_reason"], "load", "{loaded}");
    // Programs pull a model before they use it.
    let pull = json!({"model": "demo"});
    assert_eq!(lines(&served, "/api/pull", &pull).await, [json!({"status": "success"})]);
    // `ollama stop`, and the button of Open WebUI. The model stays loaded.
    let unload = json!({"model": "demo", "prompt": "", "keep_alive": 0});
    let unloaded = send(&served, Method::POST, "/api/generate", Some(&unload)).await;
    let unloaded: Value = unloaded.json().await.unwrap();
    assert_eq!((&unloaded["done_reason"], &unloaded["response"]), (&json!("unload"), &json!("")));
    let unload = json!({"model": "demo", "messages": [], "keep_alive": "0s", "stream": false});
    let unloaded = send(&served, Method::POST, "/api/chat", Some(&unload)).await;
    let unloaded: Value = unloaded.json().await.unwrap();
    assert_eq!((&unloaded["done_reason"], &unloaded["done"]), (&json!("unload"), &json!(true)));
    let loaded = send(&served, Method::GET, "/api/ps", None).await;
    let loaded: Value = loaded.json().await.unwrap();
    assert_eq!(loaded["models"].as_array().map(Vec::len), Some(1), "{loaded}");
    served.stop().await;
}

/// The folder of a model by its name is in the cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_by_its_name_has_a_size() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("models--org--demo/snapshots/main");
    fs::create_dir_all(&folder).unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
    for file in ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"] {
        fs::copy(demo.join(file), folder.join(file)).unwrap();
    }
    let engine = EngineConfig {
        kv_cache_memory_bytes: Some(64 << 20),
        device: playhouse::config::Device::Cpu,
        download_dir: Some(cache.path().to_owned()),
        offline: true,
        ..EngineConfig::new("org/demo")
    };
    let served = Served::start(engine, ServerConfig::default()).await;
    let tags = get(&served, "/api/tags").await;
    assert_eq!(tags["models"][0]["name"], "org/demo");
    let size = fs::metadata(demo.join("model.safetensors")).unwrap().len();
    assert_eq!(tags["models"][0]["size"], size);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_are_one_text_and_say_what_to_do() {
    let served = serve(Runner::Auto).await;
    let hello = json!([{"role": "user", "content": "Hello"}]);
    let tool = json!({"type": "function", "function": {"name": "now"}});
    let cases = [
        ("/api/chat", json!({"model": "other", "messages": hello}), 404, "does not exist"),
        ("/api/chat", json!({"messages": [{"role": "robot"}]}), 400, "messages.0.role"),
        ("/api/chat", json!({"messages": hello, "format": "yaml"}), 400, "format must be"),
        ("/api/chat", json!({"messages": hello, "options": {"mirostat": 1}}), 400, "mirostat"),
        ("/api/chat", json!({"messages": hello, "think": "much"}), 400, "think must be"),
        ("/api/chat", json!({"messages": hello, "tools": [{"type": "x"}]}), 400, "tools.0.type"),
        ("/api/chat", json!({"messages": hello, "tools": tool}), 400, "tools"),
        ("/api/generate", json!({"prompt": "a", "suffix": "b"}), 400, "suffix is not supported"),
        ("/api/generate", json!({"prompt": "a", "context": [1]}), 400, "/api/chat"),
        ("/api/embed", json!({"input": "a"}), 400, "does not support embeddings"),
        ("/api/pull", json!({"model": "llama3"}), 501, "playhouse pull"),
        ("/api/create", json!({"model": "llama3"}), 501, "--served-model-name"),
        ("/api/nothing", json!({}), 404, "no route"),
    ];
    for (path, body, status, wanted) in cases {
        let answer = send(&served, Method::POST, path, Some(&body)).await;
        assert_eq!(answer.status().as_u16(), status, "{path} {body}");
        let answer: Value = answer.json().await.unwrap();
        let message = answer["error"].as_str().unwrap();
        assert!(message.contains(wanted), "{path} {body}: {message}");
    }
    served.stop().await;
}

/// As `curl -d` sends it. A browser names the origin of a page, and then only a declared body is
/// taken, which a page of another site cannot send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_without_a_type_is_taken_from_programs_alone() {
    let served = serve(Runner::Auto).await;
    let url = format!("{}/api/generate", served.url);
    let body = r#"{"prompt": "Once", "raw": true, "stream": false, "options": {"num_predict": 3}}"#;
    let sent = || Client::new().post(&url).body(body);
    let answer: Value = sent().send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["eval_count"], 3, "{answer}");
    let form = sent().header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    assert_eq!(form.try_clone().unwrap().send().await.unwrap().status(), 200);
    let of_a_page = form.header("Origin", "https://evil.example").send().await.unwrap();
    assert_eq!(of_a_page.status(), 400);
    served.stop().await;
}
