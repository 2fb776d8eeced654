//! Several streams at once, each read as it comes. One is dropped half-way, which frees its
//! resources within a step.
//!
//! ```sh
//! cargo run --release --example stream
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::error::Error;

use playhouse::{
    Engine, EngineConfig,
    api::{FinishReason, Prompt, RawRequest},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::spawn(EngineConfig::default(), |_| ()).await?;
    let (whole, half) = tokio::join!(
        read(&engine, "Once upon a time", usize::MAX),
        read(&engine, "In the morning", 8)
    );
    let (text, finish) = whole?;
    println!("whole: {text:?}\n  ended by {}", finish.map_or("us", |finish| finish.as_str()));
    let (text, finish) = half?;
    println!("half:  {text:?}\n  ended by {}", finish.map_or("us", |finish| finish.as_str()));

    // The engine has released the dropped stream completely.
    engine.shutdown().await;
    println!("open requests: {}", engine.open_requests());
    Ok(())
}

/// Returns the text after `prompt`, until its end or until at least `enough` tokens have come. Also
/// returns the reason of its end, if it ended.
async fn read(
    engine: &Engine,
    prompt: &str,
    enough: usize,
) -> Result<(String, Option<FinishReason>), Box<dyn Error>> {
    let mut request = RawRequest::new(Prompt::Text(prompt.to_owned()));
    request.params.temperature = 0.0;
    request.params.ignore_eos = true;
    request.max_tokens = Some(64);
    let mut submission = engine.submit(request).await?;
    let (mut text, mut tokens) = (String::new(), 0);
    while let Some(delta) = submission.choices[0].next().await {
        text.push_str(&delta.text);
        tokens += delta.tokens.len();
        if delta.finish.is_some() || tokens >= enough {
            return Ok((text, delta.finish));
        }
    }
    Ok((text, None))
}
