//! Each row of a batch of eight equals its own model: the base model, or the model with one of two
//! adapters. `fidelity/make_adapters.py` made the adapters and the answers of transformers with
//! peft.

use std::path::Path;

use playhouse::{Engine, EngineConfig, api::PauseMode, config::Quantization};
use serde::Deserialize;

use super::{adapter, collect, config, folder, request, submit};

/// Largest accepted difference between a log-probability and transformers'.
const TOLERANCE: f64 = 1e-4;
/// Requests in flight.
const IN_FLIGHT: usize = 8;

/// One recorded continuation.
#[derive(Deserialize)]
struct Recorded {
    adapter: Option<String>,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    logprobs: Vec<f64>,
}

fn models() -> Vec<String> {
    let entries = std::fs::read_dir(folder().join("adapters")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn recorded(model: &str) -> Vec<Recorded> {
    let path = folder().join("adapters").join(model).join("answers.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Runs the recorded prompts, repeated until eight are in flight, in one engine.
async fn run(model: &str, config: EngineConfig) -> Vec<(Recorded, super::Output)> {
    let engine = Engine::start(config).await.unwrap();
    for name in ["a", "b", "c", "d"] {
        let path = adapter(model, name);
        if Path::new(&path).is_dir() {
            engine.load_lora_adapter(name, &path, false).await.unwrap();
        }
    }
    engine.pause(PauseMode::Keep).await.unwrap();
    let mut streams = Vec::new();
    let count = recorded(model).len().max(IN_FLIGHT);
    for recorded in recorded(model).into_iter().chain(recorded(model)).take(count) {
        let lora = match &recorded.adapter {
            Some(name) => Some(engine.lora_adapter(name).await.unwrap()),
            None => None,
        };
        let request = request(&recorded.prompt, recorded.tokens.len(), lora.as_ref());
        streams.push((recorded, submit(&engine, request).await));
    }
    engine.resume();
    let mut outputs = Vec::new();
    for (recorded, stream) in streams {
        outputs.push((recorded, collect(stream).await));
    }
    engine.shutdown().await;
    outputs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_equals_its_own_model() {
    let models = models();
    assert!(models.len() >= 4, "{models:?}");
    for model in models {
        for tokens in [2048, 16] {
            let config = EngineConfig {
                max_num_batched_tokens: tokens,
                max_num_seqs: IN_FLIGHT,
                ..config(&model)
            };
            for (recorded, output) in run(&model, config).await {
                let what = format!("{model}, adapter {:?}", recorded.adapter);
                assert_eq!(output.tokens, recorded.tokens, "{what}");
                let pairs = output.logprobs.iter().zip(&recorded.logprobs);
                let worst = pairs.map(|(got, want)| (f64::from(*got) - want).abs());
                let worst = worst.fold(0.0, f64::max);
                assert!(worst <= TOLERANCE, "{what}: {worst}");
            }
        }
    }
}

/// Quantized base weights differ from transformers', but rows do not depend on their neighbours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_over_a_quantized_base_do_not_depend_on_their_batch() {
    let model = "llama-gqa-f16";
    let quantized = |max_num_seqs| EngineConfig {
        quantization: Quantization::Int8,
        max_num_seqs,
        ..config(model)
    };
    let together = run(model, quantized(IN_FLIGHT)).await;
    let alone = run(model, quantized(1)).await;
    for ((recorded, one), (_, other)) in together.iter().zip(&alone) {
        assert_eq!(one, other, "adapter {:?}", recorded.adapter);
    }
    assert_ne!(together[0].1.tokens, together[2].1.tokens, "the adapter has no effect");
}
