//! Two engines in one process, without HTTP: each streams a completion of its own.
//!
//! ```sh
//! cargo run --release --example embedded [MODEL_FOLDER]
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::{error::Error, path::PathBuf};

use playhouse::{
    Engine, EngineConfig,
    actors::message::input_processor::{Prompt, RawRequest},
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

    let (here, there) = tokio::join!(
        complete(&first, "Once upon a time", 0.0),
        complete(&second, "In a galaxy far away", 0.8),
    );
    println!("first:  {}", here?);
    println!("second: {}", there?);

    // Waits until nothing is open; dropping a stream instead would abort its request.
    first.shutdown().await;
    second.shutdown().await;
    Ok(())
}

/// The text that `engine` writes after `prompt`, collected from its stream.
async fn complete(
    engine: &Engine,
    prompt: &str,
    temperature: f32,
) -> Result<String, Box<dyn Error>> {
    let mut request = RawRequest::new(Prompt::Text(prompt.to_owned()));
    request.params.temperature = temperature;
    request.params.seed = Some(42);
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
