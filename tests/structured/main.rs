//! Outputs constrained to a format, through the engine's Rust API on the demo model. The weights
//! are random, so only the constraint makes an output valid.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

mod coverage;
mod engine;
#[path = "../python/mod.rs"]
mod python;
mod schemas;

use playhouse::{
    Engine, EngineConfig,
    api::{ChoiceStream, FinishReason, RawRequest},
};

/// The result of one choice.
#[derive(Debug, Clone, PartialEq)]
struct Output {
    text: String,
    tokens: Vec<u32>,
    /// For each token: the token itself, then the likeliest ones.
    logprobs: Vec<Vec<(u32, f32)>>,
    finish: Option<FinishReason>,
}

fn config() -> EngineConfig {
    EngineConfig {
        allow_chaos: true,
        max_model_len: Some(1024),
        kv_cache_memory_bytes: Some(64 << 20),
        ..EngineConfig::default()
    }
}

async fn collect(mut stream: ChoiceStream) -> Output {
    let mut output = Output { text: String::new(), tokens: vec![], logprobs: vec![], finish: None };
    while let Some(delta) = stream.next().await {
        output.text.push_str(&delta.text);
        output.finish = delta.finish.or(output.finish);
        for token in delta.tokens {
            output.tokens.push(token.token_id);
            let logprobs = token.logprobs.into_iter().flatten();
            output.logprobs.push(logprobs.map(|entry| (entry.token_id, entry.logprob)).collect());
        }
    }
    output
}

/// Runs all requests at once. Returns their choices in order.
async fn run(engine: &Engine, requests: Vec<RawRequest>) -> Vec<Output> {
    let mut streams = Vec::new();
    for request in requests {
        streams.extend(engine.submit(request).await.unwrap().choices);
    }
    let mut outputs = Vec::new();
    for stream in streams {
        outputs.push(collect(stream).await);
    }
    outputs
}
