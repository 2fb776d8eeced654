//! A model that calls a function of the program. The call is forced into the function's schema, so
//! any model can make it. The program sends its result back, and the model answers.
//!
//! ```sh
//! cargo run --release --example tools
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::{error::Error, sync::Arc};

use playhouse::{
    Engine, EngineConfig,
    api::{ChatPrompt, OutputFormat, Prompt, RawRequest},
    parsers::{
        ForcedCall, Message, MessageParser, ParsedCall, Tools, constraint_schema,
        required_call_parser,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};

/// The arguments of our function.
#[derive(Deserialize)]
struct Sum {
    a: i64,
    b: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::spawn(EngineConfig::default(), |_| ()).await?;
    let number = json!({"type": "integer", "minimum": 0, "maximum": 999});
    let tools = vec![json!({"type": "function", "function": {
        "name": "add",
        "description": "Adds two numbers",
        "parameters": {
            "type": "object",
            "properties": {"a": number, "b": number},
            "required": ["a", "b"],
            "additionalProperties": false,
        },
    }})];
    let mut messages = vec![json!({"role": "user", "content": "What is 120 plus 35?"})];

    // The first answer is a call, and nothing else.
    let schema = constraint_schema(&Tools::from_request(&tools), &ForcedCall::Required, false)?;
    let format = OutputFormat::JsonSchema(schema.to_string());
    let text = ask(&engine, &messages, &tools, Some(format)).await?;
    let parser = MessageParser::new(None, Some(Box::new(required_call_parser())));
    let calls = Message::parse(parser, &text).calls;
    for ParsedCall { name, arguments, .. } in calls {
        let Sum { a, b } = serde_json::from_str(&arguments)?;
        println!("the model calls {name}({a}, {b})");
        let call = json!({"id": "1", "type": "function",
            "function": {"name": name, "arguments": arguments}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        let result = (a + b).to_string();
        messages.push(json!({"role": "tool", "tool_call_id": "1", "content": result}));
    }

    // The second answer is free text.
    println!("and says: {}", ask(&engine, &messages, &tools, None).await?.trim());
    engine.shutdown().await;
    Ok(())
}

/// Returns the next answer of the model.
async fn ask(
    engine: &Engine,
    messages: &[Value],
    tools: &[Value],
    format: Option<OutputFormat>,
) -> Result<String, Box<dyn Error>> {
    let chat = ChatPrompt {
        messages: messages.to_vec(),
        tools: Some(tools.to_vec()),
        add_generation_prompt: true,
        ..ChatPrompt::default()
    };
    let mut request = RawRequest::new(Prompt::Chat(Arc::new(chat)));
    request.params.temperature = 0.0;
    request.params.structured_output = format.map(|format| Arc::new(format.into()));
    request.max_tokens = Some(96);
    let mut submission = engine.submit(request).await?;
    let mut text = String::new();
    while let Some(delta) = submission.choices[0].next().await {
        text.push_str(&delta.text);
    }
    Ok(text)
}
