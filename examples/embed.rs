//! A model in a program of your own: one question, one answer.
//!
//! ```sh
//! cargo run --release --example embed
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::{error::Error, sync::Arc};

use playhouse::{
    Engine, EngineConfig,
    api::{ChatPrompt, Prompt, RawRequest},
};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The demo model; `EngineConfig::new("models/qwen3")` takes another one.
    let engine = Engine::spawn(EngineConfig::default(), |_| ()).await?;
    let chat = ChatPrompt {
        messages: vec![json!({"role": "user", "content": "Who are you?"})],
        add_generation_prompt: true,
        ..ChatPrompt::default()
    };
    let mut request = RawRequest::new(Prompt::Chat(Arc::new(chat)));
    request.max_tokens = Some(64);
    let mut submission = engine.submit(request).await?;
    while let Some(delta) = submission.choices[0].next().await {
        print!("{}", delta.text);
    }
    println!();
    engine.shutdown().await;
    Ok(())
}
