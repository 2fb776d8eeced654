//! Answers that a program can read. With any model, they have the form of a JSON schema, a choice
//! or a regular expression.
//!
//! ```sh
//! cargo run --release --example structured_output
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::{error::Error, sync::Arc};

use playhouse::{
    Engine, EngineConfig,
    api::{ChatPrompt, OutputFormat, Prompt, RawRequest},
};
use serde::Deserialize;
use serde_json::json;

/// The facts to extract from a text.
#[derive(Debug, Deserialize)]
struct Person {
    name: String,
    age: u8,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::spawn(EngineConfig::default(), |_| ()).await?;

    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
        },
        "required": ["name", "age"],
        "additionalProperties": false,
    });
    let question = "Extract name and age as JSON: Mira is 31 years old.";
    let text = ask(&engine, question, OutputFormat::JsonSchema(schema.to_string())).await?;
    let Person { name, age } = serde_json::from_str(&text)?;
    println!("{name} is {age}");

    let yes_or_no = OutputFormat::Choice(vec!["yes".to_owned(), "no".to_owned()]);
    println!("{}", ask(&engine, "Is 7 greater than 3?", yes_or_no).await?);

    let date = OutputFormat::Regex(r"\d{4}-\d{2}-\d{2}".to_owned());
    println!("{}", ask(&engine, "Tell me a date.", date).await?);

    engine.shutdown().await;
    Ok(())
}

/// Returns the answer to `question` in this format.
async fn ask(
    engine: &Engine,
    question: &str,
    format: OutputFormat,
) -> Result<String, Box<dyn Error>> {
    let chat = ChatPrompt {
        messages: vec![json!({"role": "user", "content": question})],
        add_generation_prompt: true,
        ..ChatPrompt::default()
    };
    let mut request = RawRequest::new(Prompt::Chat(Arc::new(chat)));
    request.params.temperature = 0.0;
    request.params.structured_output = Some(Arc::new(format.into()));
    request.max_tokens = Some(256);
    let mut submission = engine.submit(request).await?;
    let mut text = String::new();
    while let Some(delta) = submission.choices[0].next().await {
        text.push_str(&delta.text);
    }
    Ok(text)
}
