//! LoRA adapters in a running engine: compared with transformers and peft, beside requests of the
//! base model, while actors die, and with files that are wrong.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

mod bad_files;
mod fidelity;
mod gpu;
mod life;
mod media;
mod pooling;
#[cfg(unix)]
mod process;
#[path = "../serving/mod.rs"]
mod serving;

use std::path::{Path, PathBuf};

use playhouse::{
    Engine, EngineConfig,
    api::{ChoiceStream, FinishReason, LoraRequest, Prompt, RawRequest, SamplingParams},
    config::{Device, Dtype},
};

/// The output of one request.
#[derive(Debug, Clone, PartialEq)]
struct Output {
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    finish: FinishReason,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity")
}

/// Returns the settings of an engine with a model of the fidelity tests, in float32.
fn config(model: &str) -> EngineConfig {
    config_of(folder().join("models").join(model))
}

/// Returns the settings of an engine with the model at `path`, in float32.
fn config_of(path: PathBuf) -> EngineConfig {
    EngineConfig {
        device: Device::Cpu,
        dtype: Dtype::Float32,
        kv_cache_memory_bytes: Some(16 << 20),
        // Requests have token ids. The smallest tokenizer fits every vocabulary.
        tokenizer: Some(folder().join("../lora/tokenizer.json")),
        enable_lora: true,
        max_loras: 2,
        max_lora_rank: 8,
        ..EngineConfig::new(path)
    }
}

/// Returns the path of a recorded adapter.
fn adapter(model: &str, name: &str) -> String {
    folder().join("adapters").join(model).join(name).to_string_lossy().into_owned()
}

fn request(prompt: &[u32], count: usize, lora: Option<&std::sync::Arc<LoraRequest>>) -> RawRequest {
    let params = SamplingParams {
        temperature: 0.0,
        ignore_eos: true,
        logprobs: Some(1),
        ..SamplingParams::default()
    };
    RawRequest {
        params,
        max_tokens: Some(count as u32),
        lora: lora.cloned(),
        ..RawRequest::new(Prompt::Tokens(prompt.to_vec()))
    }
}

async fn collect(mut stream: ChoiceStream) -> Output {
    let (mut tokens, mut logprobs, mut finish) = (Vec::new(), Vec::new(), None);
    while let Some(delta) = stream.next().await {
        for token in &delta.tokens {
            tokens.push(token.token_id);
            logprobs.extend(token.logprobs.as_ref().map(|entries| entries[0].logprob));
        }
        finish = delta.finish.or(finish);
    }
    Output { tokens, logprobs, finish: finish.unwrap() }
}

async fn submit(engine: &Engine, request: RawRequest) -> ChoiceStream {
    engine.submit(request).await.unwrap().choices.remove(0)
}
