//! The same models on a GPU, or on a software device of the same runtime. They give transformers'
//! answers, and the same bytes however the work is split.

use playhouse::config::Device;
use playhouse::model::{Dtype, LoadOptions, load_model};
use playhouse_kernels::{ComputeDevice, KvDtype, QuantizationScheme};
use serde::Deserialize as _;
use serde_json::json;

use super::{Path, TOLERANCE, check_chunking, folder};
use crate::golden::Golden;
use crate::runner::{Chunking, Runner};

/// A model of each kind: with windows, with biases and tied weights, with norms of heads and two
/// kinds of layers, and with norms of lengths and several passes.
const DENSE: [&str; 4] = ["mistral-window", "qwen2-tied", "qwen3-layer-types", "dory"];
/// Mixtures of experts: each scoring, with a correction bias, with groups, with shared experts,
/// beside dense layers, and with windows.
const MIXTURES: [&str; 6] =
    ["mixtral", "qwen3_moe", "ernie4_5_moe", "glm4_moe", "kolibri1", "flint"];
/// Latent attention, with one projection of queries and with two.
const LATENT: [&str; 2] = ["deepseek_v2", "deepseek_v3"];
/// Each recurrence over states, alone, beside attention and parallel to it.
const STATES: [&str; 7] =
    ["mamba", "mamba2", "jamba", "falcon_h1", "qwen3_next", "lfm2", "minimax"];

/// Prompts a model. A software device is slow.
const PROMPTS_MAX: usize = 2;

/// Returns the first device beside the CPU. If there is none, it prints the reason and the test
/// passes. With `PLAYHOUSE_TEST_REQUIRE_GPU=1` the test fails instead.
pub(crate) fn gpu() -> Option<ComputeDevice> {
    let found = playhouse_kernels::devices().into_iter().find(|device| device.id != "cpu");
    if found.is_none() {
        let is_required =
            std::env::var("PLAYHOUSE_TEST_REQUIRE_GPU").is_ok_and(|value| value == "1");
        assert!(
            !is_required,
            "PLAYHOUSE_TEST_REQUIRE_GPU=1, but there is no device beside the CPU"
        );
        eprintln!("skipped: there is no device beside the CPU");
    }
    found
}

/// Returns the setting that names this device.
pub(crate) fn setting() -> Option<Device> {
    let name = gpu()?.id;
    let setting: Result<_, serde_json::Error> = Device::deserialize(json!(name));
    Some(setting.unwrap())
}

fn runner(folder: &Path, dtype: Dtype, max_model_len: Option<usize>, on: &ComputeDevice) -> Runner {
    let device = on.device.clone();
    let options = LoadOptions { dtype, max_model_len, device, ..LoadOptions::default() };
    Runner::new(load_model(folder, &options, &mut |_| {}).unwrap(), &options.device)
}

/// Tests that may run at the same time, because a software device compiles a kernel on one core.
#[test]
fn dense_models_answer_as_transformers_does() {
    check(&DENSE);
}

#[test]
fn latent_models_answer_as_transformers_does() {
    check(&LATENT);
}

#[test]
fn mixtures_answer_as_transformers_does() {
    check(&MIXTURES);
}

#[test]
fn models_with_states_answer_as_transformers_does() {
    check(&STATES);
}

/// Asserts that models give transformers' answers, whole and in pieces.
fn check(names: &[&str]) {
    let Some(gpu) = gpu() else { return };
    for name in names {
        let folder = folder(name);
        let mut run = Golden::read(&folder).runs.remove(0);
        run.prompts.truncate(PROMPTS_MAX);
        let runner = runner(&folder, Dtype::Float32, run.max_model_len, &gpu);
        let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
        let whole = runner.answer(&prompts, Chunking::Whole);
        for (prompt, answer) in run.prompts.iter().zip(&whole) {
            let difference = prompt.difference(answer);
            assert!(difference <= TOLERANCE, "{name}: log-probabilities differ by {difference}");
            assert_eq!(answer.greedy, prompt.greedy_token_ids, "{name}");
        }
        check_chunking(name, &runner, &prompts, &whole, &[Chunking::Ragged]);
    }
}

#[test]
fn narrow_weights_and_caches_are_close() {
    let Some(gpu) = gpu() else { return };
    let options = |dtype| LoadOptions { dtype, ..LoadOptions::default() };
    for (dtype, kv_dtype, tolerance) in [
        (Dtype::Float16, KvDtype::F16, 0.01),
        (Dtype::Bfloat16, KvDtype::Bf16, 0.05),
        (Dtype::Bfloat16, KvDtype::Int8, 0.1),
    ] {
        check_narrow("qwen3-layer-types", &options(dtype), kv_dtype, tolerance, &gpu);
    }
}

#[test]
fn narrow_experts_are_close() {
    let Some(gpu) = gpu() else { return };
    let int4 = QuantizationScheme::Int4 { group_size: 32 };
    for (dtype, quantization, tolerance) in [
        (Dtype::Float16, None, 0.02),
        (Dtype::Bfloat16, None, 0.1),
        (Dtype::Float32, Some(QuantizationScheme::Int8), 0.3),
        (Dtype::Float32, Some(int4), 1.5),
    ] {
        let options = LoadOptions { dtype, quantization, ..LoadOptions::default() };
        check_narrow("qwen3_moe", &options, KvDtype::F32, tolerance, &gpu);
    }
}

/// Latents, and states beside keys. No recorded model has latents that int8 takes on a GPU.
#[test]
fn narrow_latents_and_hybrids_are_close() {
    let Some(gpu) = gpu() else { return };
    let options = |dtype| LoadOptions { dtype, ..LoadOptions::default() };
    for (name, dtype, kv_dtype, tolerance) in [
        ("deepseek_v2", Dtype::Bfloat16, KvDtype::Bf16, 0.1),
        ("deepseek_v2", Dtype::Float16, KvDtype::F16, 0.1),
        ("falcon_h1", Dtype::Float16, KvDtype::F16, 0.02),
        ("qwen3_next", Dtype::Bfloat16, KvDtype::Int8, 0.1),
    ] {
        check_narrow(name, &options(dtype), kv_dtype, tolerance, &gpu);
    }
}

/// Asserts that a model's answers are near transformers' in float32, but not equal, and the same
/// however the work is split.
fn check_narrow(
    name: &str,
    options: &LoadOptions,
    kv_dtype: KvDtype,
    tolerance: f64,
    gpu: &ComputeDevice,
) {
    let folder = folder(name);
    let mut run = Golden::read(&folder).runs.remove(0);
    run.prompts.truncate(PROMPTS_MAX);
    let (max_model_len, device) = (run.max_model_len, gpu.device.clone());
    let options = LoadOptions { max_model_len, device, ..options.clone() };
    let model = load_model(&folder, &options, &mut |_| {}).unwrap();
    let runner = Runner::new(model, &options.device).with_kv_dtype(kv_dtype);
    let prompts: Vec<_> = run.prompts.iter().map(|prompt| prompt.ids()).collect();
    let whole = runner.answer(&prompts, Chunking::Whole);
    let what = format!("{name}, {:?}, {:?}, {kv_dtype}", options.dtype, options.quantization);
    for (prompt, answer) in run.prompts.iter().zip(&whole) {
        let difference = prompt.mean_difference(answer);
        assert!(difference > 0.0, "{what}: not in use");
        assert!(difference < tolerance, "{what}: {difference}");
    }
    check_chunking(name, &runner, &prompts, &whole, &[Chunking::Ragged]);
}

/// The demo model with its default settings gives the CPU's tokens.
#[test]
fn the_demo_model_gives_the_tokens_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
    let prompt: Vec<u32> = (0..40).map(|i| 5 + i * 37 % 1900).collect();
    let on_cpu = super::runner(&folder, Dtype::Float32, None).answer(&[&prompt], Chunking::Whole);
    let on_gpu = runner(&folder, Dtype::Float32, None, &gpu).answer(&[&prompt], Chunking::Whole);
    let (cpu, gpu) = (&on_cpu[0], &on_gpu[0]);
    assert_eq!(gpu.greedy, cpu.greedy);
    let logits = |answer: &crate::runner::Answer| -> Vec<f32> {
        answer.prompt_rows.iter().chain(&answer.greedy_rows).flatten().copied().collect()
    };
    for (gpu, cpu) in logits(gpu).into_iter().zip(logits(cpu)) {
        assert!((gpu - cpu).abs() < 1e-3, "a logit is {gpu}, not {cpu}");
    }
}
