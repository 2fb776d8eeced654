//! The layer after a model's last one guesses, and the bytes stay.

use std::{fs, path::PathBuf};

use playhouse::{
    Engine, EngineConfig,
    api::{Prompt, RawRequest, SamplingParams},
    config::{Dtype, HeadMethod, SpeculativeConfig, SpeculativeMethod},
};

use crate::heads;

/// Returns the small DeepSeek V3 of the fidelity tests.
fn config(speculative: Option<SpeculativeConfig>) -> EngineConfig {
    let models = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models");
    EngineConfig {
        dtype: Dtype::Float32,
        tokenizer: Some(models.join("llama-tied")),
        max_num_batched_tokens: 64,
        num_gpu_blocks_override: Some(60),
        speculative_config: speculative,
        ..EngineConfig::new(models.join("deepseek_v3"))
    }
}

/// Returns greedy, sampled and nearly forced requests.
fn request(index: u32) -> RawRequest {
    let params = SamplingParams {
        temperature: [0.0, 0.9][index as usize % 2],
        seed: Some(index.into()),
        ignore_eos: true,
        logprobs: Some(1),
        logit_bias: if index.is_multiple_of(3) { vec![(77, 90.0)] } else { Vec::new() },
        ..SamplingParams::default()
    };
    let prompt = Prompt::Tokens((0..4 + index * 3).map(|i| 5 + (i * 37 + index) % 400).collect());
    RawRequest { params, max_tokens: Some(40), ..RawRequest::new(prompt) }
}

/// Returns the tokens of each request.
async fn run(config: EngineConfig) -> Vec<Vec<u32>> {
    let engine = Engine::spawn(config, |_| ()).await.unwrap();
    let mut outputs = Vec::new();
    for wave in 0..3 {
        let mut streams = Vec::new();
        for index in 0..8 {
            let submission = engine.submit(request(wave * 8 + index)).await.unwrap();
            streams.extend(submission.choices);
        }
        for mut stream in streams {
            let mut tokens = Vec::new();
            while let Some(delta) = stream.next().await {
                tokens.extend(delta.tokens.iter().map(|token| token.token_id));
            }
            outputs.push(tokens);
        }
    }
    engine.shutdown().await;
    outputs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_with_multi_token_prediction_equal_those_without() {
    let expected = run(config(None)).await;
    for num_speculative_tokens in [1, 3] {
        let method = heads::config(HeadMethod::Mtp, num_speculative_tokens);
        let found = run(config(Some(method))).await;
        assert_eq!(found, expected, "{num_speculative_tokens} guesses");
    }
}

/// The first of several layers guesses. The others may be absent, because they are not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_of_several_layers_guesses() {
    let folder = tempfile::TempDir::new().unwrap();
    for file in fs::read_dir(heads::head(HeadMethod::Mtp)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let path = folder.path().join("config.json");
    let mut json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    json["num_nextn_predict_layers"] = 3.into();
    fs::write(&path, json.to_string()).unwrap();
    let model = Some(folder.path().to_owned());
    let method = SpeculativeMethod::Head { method: HeadMethod::Mtp, model };
    let found = run(config(Some(SpeculativeConfig::new(method, 3)))).await;
    assert_eq!(found, run(config(None)).await);
}

/// A model whose own folder has no such layer names the tensor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_without_the_layer_is_refused() {
    let method = SpeculativeMethod::Head { method: HeadMethod::Mtp, model: None };
    let speculative = SpeculativeConfig::new(method, 1);
    let error = Engine::spawn(config(Some(speculative)), |_| ()).await.err().unwrap().to_string();
    assert!(error.contains("model.layers.3.") && error.contains("missing"), "{error}");
}
