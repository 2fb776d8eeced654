//! Every actor that works on a stream is killed while it runs, and the stream has the same text as
//! without the kills.
//!
//! ```sh
//! cargo run --release --example survive_a_kill
//! ```
#![allow(clippy::print_stdout, reason = "the output is the example's result")]

use std::error::Error;

use playhouse::{
    Engine, EngineConfig,
    api::{How, Prompt, RawRequest, Role},
};

/// The actors to kill, one after the other.
const ROLES: [Role; 6] = [
    Role::Scheduler,
    Role::Worker,
    Role::KvCacheManager,
    Role::Ledger,
    Role::Detokenizer,
    Role::OutputStreamer,
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let config = EngineConfig { allow_chaos: true, ..EngineConfig::default() };
    let engine = Engine::spawn(config, |_| ()).await?;
    let in_peace = tell(&engine, |_| Ok(())).await?;
    let mut struck = 0;
    let among_kills = tell(&engine, |tokens| {
        // About every hundred tokens; the actor killed before has been replaced by then.
        if let Some(&role) = ROLES.get(struck)
            && tokens > 100 * (struck + 1)
        {
            println!("after {tokens} tokens, the {} panics", role.as_str());
            engine.chaos().strike(role, 0, How::Panic)?;
            struck += 1;
        }
        Ok(())
    })
    .await?;
    let restarts: u64 = engine.actors().iter().map(|actor| actor.restarts).sum();
    println!("actors replaced: {restarts}; the same text: {}", in_peace == among_kills);
    engine.shutdown().await;
    match in_peace == among_kills {
        true => Ok(()),
        false => Err("the streams differ".into()),
    }
}

/// Writes a long sampled story. Calls `look` with the number of tokens whenever some have come.
async fn tell(
    engine: &Engine,
    mut look: impl FnMut(usize) -> Result<(), Box<dyn Error>>,
) -> Result<String, Box<dyn Error>> {
    let mut request = RawRequest::new(Prompt::Text("Once upon a time".to_owned()));
    request.params.seed = Some(7);
    request.params.ignore_eos = true;
    request.max_tokens = Some(1000);
    let mut submission = engine.submit(request).await?;
    let (mut text, mut tokens) = (String::new(), 0);
    while let Some(delta) = submission.choices[0].next().await {
        text.push_str(&delta.text);
        tokens += delta.tokens.len();
        look(tokens)?;
    }
    Ok(text)
}
