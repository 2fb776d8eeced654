//! Two engines in one process, without HTTP. Each streams a completion of its own, the second one
//! as JSON.
//!
//! ```sh
//! cargo run --release --example two_engines [MODEL_FOLDER]
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::{error::Error, path::PathBuf, sync::Arc};

use playhouse::{
    Engine, EngineConfig,
    api::{OutputFormat, Prompt, RawRequest},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args_os().nth(1).map(PathBuf::from);
    let config = EngineConfig {
        model: model.unwrap_or_else(|| EngineConfig::default().model),
        max_model_len: Some(1024),
        max_num_seqs: 4,
        ..EngineConfig::default()
    };
    let first = Engine::spawn(config.clone(), |_| ()).await?;
    let second = Engine::spawn(config, |_| ()).await?;

    let numbers = r#"{"type": "array", "items": {"enum": [1, 2, 3]}, "maxItems": 8}"#;
    let numbers = OutputFormat::JsonSchema(numbers.to_owned());
    let (here, there) = tokio::join!(
        complete(&first, "Once upon a time", 0.0, None),
        complete(&second, "Some numbers:", 0.8, Some(numbers)),
    );
    println!("first:  {}", here?);
    println!("second: {}", there?);

    // Waits until no request is open. Dropping a stream instead would abort its request.
    first.shutdown().await;
    second.shutdown().await;
    Ok(())
}

/// Returns the text that `engine` writes after `prompt` in this format, collected from its stream.
async fn complete(
    engine: &Engine,
    prompt: &str,
    temperature: f32,
    format: Option<OutputFormat>,
) -> Result<String, Box<dyn Error>> {
    let mut request = RawRequest::new(Prompt::Text(prompt.to_owned()));
    request.params.temperature = temperature;
    request.params.seed = Some(42);
    request.params.structured_output = format.map(|format| Arc::new(format.into()));
    request.max_tokens = Some(32);
    let mut submission = engine.submit(request).await?;
    let mut text = String::new();
    for choice in &mut submission.choices {
        while let Some(delta) = choice.next().await {
            text.push_str(&delta.text);
        }
    }
    Ok(text)
}
