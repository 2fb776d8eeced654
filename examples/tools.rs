//! A model that calls a function of the program. The call is forced into the function's schema, so
//! any model can make it. The program sends its result back, and the model answers.
//!
//! ```sh
//! cargo run --release --example tools
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::error::Error;

use playhouse::{
    ChatRequest, Engine, EngineConfig, Message, Tool, ToolChoice,
    api::SamplingParams,
    chat::{ChatAnswer, ChatError},
};
use serde::Deserialize;
use serde_json::json;

/// The arguments of our function.
#[derive(Deserialize)]
struct Sum {
    a: i64,
    b: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::start(EngineConfig::default()).await?;
    let number = json!({"type": "integer", "minimum": 0, "maximum": 999});
    let parameters = json!({
        "type": "object",
        "properties": {"a": number, "b": number},
        "required": ["a", "b"],
        "additionalProperties": false,
    });
    let tools = [Tool::new("add", "Adds two numbers", parameters)];
    let mut messages = vec![Message::user("What is 120 plus 35?")];

    // The first answer is a call, and nothing else.
    let answer = ask(&engine, &messages, &tools, ToolChoice::Required).await?;
    messages.push(answer.message());
    for call in answer.turn.tool_calls {
        let Sum { a, b } = serde_json::from_str(&call.arguments)?;
        println!("the model calls {}({a}, {b})", call.name);
        messages.push(Message::tool(call.id, (a + b).to_string()));
    }

    // The second answer is free text.
    let answer = ask(&engine, &messages, &tools, ToolChoice::None).await?;
    println!("and says: {}", answer.text().trim());
    engine.shutdown().await;
    Ok(())
}

/// Returns the next answer of the model.
async fn ask(
    engine: &Engine,
    messages: &[Message],
    tools: &[Tool],
    tool_choice: ToolChoice,
) -> Result<ChatAnswer, ChatError> {
    let mut request = ChatRequest::new(messages.iter().cloned());
    request.tools = tools.to_vec();
    request.tool_choice = Some(tool_choice);
    request.parallel_tool_calls = false;
    request.params = Some(SamplingParams { temperature: 0.0, ..SamplingParams::default() });
    request.max_tokens = Some(64);
    engine.chat(request).await?.answer().await
}
