//! Compares models with Hugging Face transformers in float32. Log-probabilities agree within 1e-4,
//! greedy tokens are equal, and the bytes do not depend on how the work is split. `make_models.py`
//! made the models and their answers.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod engine;
mod golden;
#[cfg(feature = "wgpu")]
mod gpu;
#[cfg(feature = "wgpu")]
mod gpu_engine;
mod quantized;
mod rope;
mod runner;
mod sharpness;

use std::path::{Path, PathBuf};

use golden::Golden;
use playhouse::model::{Dtype, LoadOptions, load_model};
use playhouse_kernels::KvDtype;
use runner::{Answer, Chunking, Runner};

/// Largest accepted difference between a log-probability and transformers'.
const TOLERANCE: f64 = 1e-4;

macro_rules! models {
    ($($test:ident: $folder:literal,)*) => {
        const MODELS: &[&str] = &[$($folder),*];
        $(#[test] fn $test() { check_model($folder); })*
    };
}

models! {
    llama_tied: "llama-tied",
    llama_gqa_f16: "llama-gqa-f16",
    llama_biases_sharded: "llama-biases-sharded",
    llama_llama3: "llama-llama3",
    llama_linear: "llama-linear",
    llama_yarn: "llama-yarn",
    llama_dynamic: "llama-dynamic",
    llama_longrope: "llama-longrope",
    mistral_window: "mistral-window",
    qwen2_tied: "qwen2-tied",
    qwen2_window_mix: "qwen2-window-mix",
    qwen3_layer_types: "qwen3-layer-types",
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models").join(name)
}

fn runner(folder: &Path, dtype: Dtype, max_model_len: Option<usize>) -> Runner {
    let options = LoadOptions { dtype, max_model_len, ..LoadOptions::default() };
    Runner::new(load_model(folder, &options, &mut |_| {}).unwrap(), &options.device)
}

/// Compares one model with transformers, and its ways of running with each other.
fn check_model(name: &str) {
    let folder = folder(name);
    for run in Golden::read(&folder).runs {
        let runner = runner(&folder, Dtype::Float32, run.max_model_len);
        let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
        let whole = runner.answer(&prompts, Chunking::Whole);
        for (prompt, answer) in run.prompts.iter().zip(&whole) {
            let difference = prompt.difference(answer);
            assert!(difference <= TOLERANCE, "{name}: log-probabilities differ by {difference}");
            assert_eq!(answer.greedy, prompt.greedy_token_ids, "{name}");
        }
        check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
    }
}

/// Every way of running prompts except in one step.
const CHUNKINGS: [Chunking; 3] = [Chunking::Chunks(16), Chunking::Chunks(1), Chunking::Ragged];

/// Asserts that other ways of running `prompts` give the bytes of `whole`.
fn check_chunking(
    name: &str,
    runner: &Runner,
    prompts: &[&[u32]],
    whole: &[Answer],
    chunkings: &[Chunking],
) {
    for &chunking in chunkings {
        for (answer, expected) in runner.answer(prompts, chunking).iter().zip(whole) {
            assert_eq!(answer.greedy, expected.greedy, "{name} in {chunking:?}");
            assert!(answer.bits().eq(expected.bits()), "{name}: other bytes in {chunking:?}");
        }
    }
}

/// bfloat16 has eight bits of precision. The answer is close to transformers' in float32, and still
/// does not depend on chunking, to the last bit.
#[test]
fn bf16_is_close_and_independent_of_chunking() {
    for name in ["llama-biases-sharded", "qwen2-window-mix", "qwen3-layer-types"] {
        let folder = folder(name);
        let run = Golden::read(&folder).runs.remove(0);
        let runner = runner(&folder, Dtype::Auto, None);
        let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
        let whole = runner.answer(&prompts, Chunking::Whole);
        for (prompt, answer) in run.prompts.iter().zip(&whole) {
            let difference = prompt.mean_difference(answer);
            assert!(difference < 0.05, "{name}: mean difference {difference}");
        }
        check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
    }
}

/// Keys and values of fewer bits than the model's. The answers are close, and do not depend on
/// chunking, to the last bit.
///
/// In bfloat16 the worst prompt differs by 0.017, in int8 by three times as much. One step size of
/// int8 serves a whole row, because it depends on the row's largest element.
#[test]
fn narrower_kv_caches_are_close_and_independent_of_chunking() {
    for (kv_dtype, tolerance) in [(KvDtype::Bf16, 0.03), (KvDtype::Int8, 0.1)] {
        for name in MODELS {
            let folder = folder(name);
            let run = Golden::read(&folder).runs.remove(0);
            let runner = runner(&folder, Dtype::Float32, run.max_model_len).with_kv_dtype(kv_dtype);
            let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
            let whole = runner.answer(&prompts, Chunking::Whole);
            for (prompt, answer) in run.prompts.iter().zip(&whole) {
                let difference = prompt.mean_difference(answer);
                assert!(difference > 0.0, "{name}: {kv_dtype} is not in use");
                assert!(difference < tolerance, "{name}, {kv_dtype}: {difference}");
            }
            check_chunking(name, &runner, &prompts, &whole, &CHUNKINGS);
        }
    }
}

#[test]
fn every_recorded_model_is_tested() {
    let mut recorded: Vec<_> = std::fs::read_dir(folder(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    recorded.sort();
    let mut tested = MODELS.to_vec();
    tested.sort_unstable();
    assert_eq!(recorded, tested);
}
