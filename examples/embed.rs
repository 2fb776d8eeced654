//! The shortest embedding: one engine, one question, its answer as it comes.
//!
//! ```sh
//! cargo run --release --example embed
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::error::Error;

use playhouse::{ChatRequest, Engine, EngineConfig, Message, chat::TurnEvent};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The demo model; `EngineConfig::new("models/qwen3")` takes another one.
    let engine = Engine::start(EngineConfig::default()).await?;
    let mut request = ChatRequest::new([Message::user("Who are you?")]);
    request.max_tokens = Some(64);
    let mut answer = engine.chat(request).await?;
    while let Some(event) = answer.next().await {
        if let TurnEvent::Content(text) = event? {
            print!("{text}");
        }
    }
    println!();
    engine.shutdown().await;
    Ok(())
}
