//! A conversation: each answer becomes a message of it, and the next question follows.
//!
//! ```sh
//! cargo run --release --example chat
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::error::Error;

use playhouse::{ChatRequest, Engine, EngineConfig, Message, chat::ChatAnswer};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::start(EngineConfig::default()).await?;
    let mut messages = Vec::new();
    for question in ["Who are you?", "What is 120 plus 35?", "Thank you"] {
        messages.push(Message::user(question));
        let mut request = ChatRequest::new(messages.clone());
        request.max_tokens = Some(64);
        let answer: ChatAnswer = engine.chat(request).await?.answer().await?;
        println!("> {question}\n{}", answer.text().trim());
        if let Some(thoughts) = &answer.turn.reasoning {
            println!("(after {} characters of thought)", thoughts.chars().count());
        }
        let usage = answer.usage;
        println!(
            "  {} of {} prompt tokens were cached, {} tokens came, the end: {}",
            usage.cached_tokens,
            usage.prompt_tokens,
            usage.completion_tokens,
            answer.turn.finish_reason
        );
        messages.push(answer.message());
    }
    engine.shutdown().await;
    Ok(())
}
