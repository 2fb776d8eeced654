//! A program with its own model family, parsers and token rule, on Playhouse's public API.
//!
//! Without arguments it asks the model some questions. `serve PORT` serves OpenAI's API on
//! 127.0.0.1.

mod at_most;
mod folder;
mod model;
mod parsers;

use std::{error::Error, io::Write};

use metrics_exporter_prometheus::PrometheusBuilder;
use playhouse::{
    Engine, EngineConfig,
    api::{ChatPrompt, Prompt, RawRequest, TokenRuleCall},
    config::{Device, ParserChoice},
    server::{InProcess, Listener, ServerConfig, serve_on},
};
use serde_json::{Value, json};

const QUESTION: &str = "what is the weather ?";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("own-model-{}", std::process::id()));
    folder::write(&folder)?;
    let config = EngineConfig {
        served_model_name: vec!["parrot".to_owned()],
        device: Device::Cpu,
        kv_cache_memory_bytes: Some(1 << 20),
        ..EngineConfig::new(&folder)
    };
    let started = Engine::builder(config)
        .model_family(model::ARCHITECTURE, model::Parrots)
        .tool_parser("look", |_| Box::new(parsers::Look::default()))
        .reasoning_parser("hmm", |_| Box::new(parsers::Hmm::default()))
        .token_rule("at_most", |vocabulary| Ok(Box::new(at_most::AtMost::new(vocabulary))))
        .start()
        .await;
    // The weights are in memory now.
    std::fs::remove_dir_all(&folder)?;
    let engine = started?;
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("serve") => serve(&engine, arguments.next()).await?,
        _ => ask(&engine).await?,
    }
    engine.shutdown().await;
    Ok(())
}

/// Returns settings that choose our parsers.
fn server() -> ServerConfig {
    ServerConfig {
        tool_call_parser: ParserChoice::Named("look".to_owned()),
        reasoning_parser: ParserChoice::Named("hmm".to_owned()),
        ..ServerConfig::default()
    }
}

/// Serves OpenAI's API until Ctrl-C.
async fn serve(engine: &Engine, port: Option<String>) -> Result<(), Box<dyn Error>> {
    let port = port.map_or(Ok(8000), |port| port.parse())?;
    let server = ServerConfig { port, ..server() };
    let listener = Listener::bind(&server).await?;
    writeln!(std::io::stdout(), "serving on http://{}", listener.address()?)?;
    let metrics = PrometheusBuilder::new().build_recorder().handle();
    let stopped = async { drop(tokio::signal::ctrl_c().await) };
    serve_on(listener, engine.clone(), server, metrics, stopped).await?;
    Ok(())
}

/// Asks the model in Rust, and over the server's routes.
async fn ask(engine: &Engine) -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    writeln!(out, "in Rust:    {}", answer(engine, Vec::new()).await?)?;
    let rule = TokenRuleCall {
        name: "at_most".to_owned(),
        argument: json!({"hmm": 1, "paris": 0}).to_string(),
    };
    writeln!(out, "by a rule:  {}", answer(engine, vec![rule]).await?)?;

    let metrics = PrometheusBuilder::new().build_recorder().handle();
    let routes = InProcess::new(engine.clone(), server(), metrics)?;
    let body = |rules: Value| {
        json!({
            "messages": [{"role": "user", "content": QUESTION}],
            "tools": [{"type": "function", "function": {"name": "weather"}}],
            "temperature": 0,
            "vllm_xargs": rules,
        })
    };
    let good =
        routes.post("/v1/chat/completions", body(json!({"at_most": {"hmm": 2}})).to_string());
    let good: Value = serde_json::from_slice(&good.await.body)?;
    let message = &good["choices"][0]["message"];
    let thought = message["reasoning"].as_str().unwrap_or_default().trim();
    let call = &message["tool_calls"][0]["function"];
    let (name, arguments) = (&call["name"], &call["arguments"]);
    writeln!(out, "over HTTP:  thinks {thought:?}, calls {name}({arguments})")?;
    let bad = routes.post("/v1/chat/completions", body(json!({"at_least": {}})).to_string()).await;
    let error: Value = serde_json::from_slice(&bad.body)?;
    writeln!(out, "refused:    {} {}", bad.status, error["error"]["message"])?;
    Ok(())
}

/// Returns the model's answer to our question, with these token rules.
async fn answer(engine: &Engine, rules: Vec<TokenRuleCall>) -> Result<String, Box<dyn Error>> {
    let chat = ChatPrompt {
        messages: vec![json!({"role": "user", "content": QUESTION})],
        add_generation_prompt: true,
        ..ChatPrompt::default()
    };
    let mut request = RawRequest::new(Prompt::Chat(chat.into()));
    request.params.temperature = 0.0;
    request.params.token_rules = rules;
    let mut submission = engine.submit(request).await?;
    let mut text = String::new();
    while let Some(delta) = submission.choices[0].next().await {
        text.push_str(&delta.text);
    }
    Ok(text.trim().to_owned())
}
