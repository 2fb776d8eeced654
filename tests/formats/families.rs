//! Quantized checkpoints of families whose matrices are not stored as Llama's are: experts, rows in
//! another order, several projections in one matrix, and `[inputs, outputs]`. `make_families.py`
//! recorded the logits of transformers in float32 over the same weights.

use std::fs;
use std::path::{Path, PathBuf};

use half::f16;
use playhouse::model::{Dtype, LoadOptions, load_model};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::logits::{Prompt, check_with};

/// The largest difference from transformers, in units of the spread of logits.
const TOLERANCE: f64 = 1e-4;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/families").join(name)
}

fn options() -> LoadOptions {
    LoadOptions { dtype: Dtype::Float32, max_model_len: Some(64), ..LoadOptions::default() }
}

fn check(name: &str) {
    let golden = fs::read(folder(name).join("golden.json")).unwrap();
    let prompts: Vec<Prompt> = serde_json::from_slice(&golden).unwrap();
    check_with(&options(), &folder(name), &prompts, TOLERANCE);
}

#[test]
fn gptq_experts_with_act_order() {
    check("qwen3_moe");
}

#[test]
fn awq_experts() {
    check("mixtral");
}

#[test]
fn packed_experts_beside_shared_ones() {
    check("glm4_moe");
}

#[test]
fn gptq_rows_in_groups_of_heads() {
    check("gpt_neox");
}

#[test]
fn awq_rows_in_groups_of_heads() {
    check("falcon-groups");
}

#[test]
fn packed_rows_with_rotary_pairs_of_neighbours() {
    check("cohere");
}

#[test]
fn gptq_rows_with_rotary_pairs_of_neighbours() {
    check("glm4");
}

#[test]
fn awq_matrices_of_several_projections() {
    check("phi3");
}

#[test]
fn gptq_matrices_that_are_transposed_elsewhere() {
    check("gpt2");
}

/// Writes a copy of falcon-groups into `folder`, with AutoAWQ's `ScaledActivation` in the first
/// layer. The outputs of the activation are divided by a number of each group, and the weights
/// behind it are multiplied by it. Powers of two round nothing.
fn write_scaled_falcon(folder: &Path, groups: [f32; 2]) {
    let weights = "transformer.h.0.mlp.dense_4h_to_h.scales";
    let original = self::folder("falcon-groups");
    fs::copy(original.join("config.json"), folder.join("config.json")).unwrap();
    let file = fs::read(original.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let stored = tensors.tensor(weights).unwrap();
    assert_eq!(stored.shape(), [2, 32]);
    let numbers = stored.data().as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes));
    let scaled = numbers.enumerate().map(|(at, scale)| scale.to_f32() * groups[at / 32]);
    let bytes = |numbers: Vec<f32>| -> Vec<u8> {
        numbers.into_iter().flat_map(|number| f16::from_f32(number).to_le_bytes()).collect()
    };
    let scaled = bytes(scaled.collect());
    let divisors = bytes((0..64).map(|at| groups[at / 32]).collect());
    let view = |shape, bytes| TensorView::new(safetensors::Dtype::F16, shape, bytes).unwrap();
    let mut all: Vec<_> = tensors.tensors();
    all.retain(|(name, _)| name != weights);
    all.push((weights.to_owned(), view(vec![2, 32], &scaled)));
    all.push(("transformer.h.0.mlp.act.scales".to_owned(), view(vec![64], &divisors)));
    fs::write(folder.join("model.safetensors"), safetensors::serialize(all, None).unwrap())
        .unwrap();
}

/// The logits are those that transformers computed from the weights without factors.
#[test]
fn awq_divides_the_outputs_of_activations() {
    let copy = TempDir::new().unwrap();
    write_scaled_falcon(copy.path(), [4.0, 0.5]);
    let golden = fs::read(folder("falcon-groups").join("golden.json")).unwrap();
    let prompts: Vec<Prompt> = serde_json::from_slice(&golden).unwrap();
    check_with(&options(), copy.path(), &prompts, TOLERANCE);
    write_scaled_falcon(copy.path(), [1.0, 0.0]);
    let message = load_model(copy.path(), &options(), &mut |_| {}).err().unwrap().to_string();
    let expected = "tensor `transformer.h.0.mlp.act.scales`: a divisor of 0";
    assert!(message.contains(expected), "{message}");
}

/// Checkpoints for KV caches of 8 bits have a scale for each layer's keys and values, or one for
/// both. The cache here has no such scales, and the logits stay those of transformers.
#[test]
fn scales_of_a_kv_cache_change_nothing() {
    let copy = TempDir::new().unwrap();
    let original = folder("cohere");
    fs::copy(original.join("config.json"), copy.path().join("config.json")).unwrap();
    let file = fs::read(original.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let scale = 0.25_f32.to_le_bytes();
    let mut all: Vec<_> = tensors.tensors();
    for name in ["kv_scale", "k_scale", "v_scale", "q_scale", "prob_scale"] {
        let view = TensorView::new(safetensors::Dtype::F32, vec![1], &scale).unwrap();
        all.push((format!("model.layers.0.self_attn.{name}"), view));
    }
    fs::write(copy.path().join("model.safetensors"), safetensors::serialize(all, None).unwrap())
        .unwrap();
    let golden = fs::read(original.join("golden.json")).unwrap();
    let prompts: Vec<Prompt> = serde_json::from_slice(&golden).unwrap();
    check_with(&options(), copy.path(), &prompts, TOLERANCE);
}

/// Returns the error of the model `name` whose config and tensors `change` has changed.
fn error(name: &str, setting: (&str, Value), removed: Option<&str>) -> String {
    let copy = TempDir::new().unwrap();
    let config = fs::read(folder(name).join("config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    config[setting.0] = setting.1;
    fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    let file = fs::read(folder(name).join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let kept = tensors.tensors().into_iter().filter(|(name, _)| removed != Some(name.as_str()));
    let file = safetensors::serialize(kept, None).unwrap();
    fs::write(copy.path().join("model.safetensors"), file).unwrap();
    load_model(copy.path(), &options(), &mut |_| {}).err().unwrap().to_string()
}

#[test]
fn broken_experts_are_refused_with_file_and_tensor() {
    let part = "model.layers.0.mlp.experts.1.gate_proj.scales";
    let message = error("qwen3_moe", ("moe_intermediate_size", json!(32)), Some(part));
    assert!(message.contains("model.safetensors: "), "{message}");
    assert!(message.contains(&format!("tensor `{part}` of shape [1, 32] is missing")), "{message}");
    let message = error("qwen3_moe", ("moe_intermediate_size", json!(64)), None);
    let tensor = "model.layers.0.mlp.experts.0.gate_proj.qweight";
    let shapes = "has shape [4, 32], but by config.json it should be [4, 64]";
    assert!(message.contains(&format!("tensor `{tensor}` {shapes}")), "{message}");
    let message = error("gpt2", ("n_embd", json!(64)), None);
    assert!(
        message.contains("has shape [96, 32], but by config.json it should be [96, 64]"),
        "{message}"
    );
}

#[test]
fn other_quantizers_are_refused_by_name() {
    let config = json!({ "quant_method": "hqq", "bits": 4 });
    let message = error("mixtral", ("quantization_config", config), None);
    assert!(message.contains("`quantization_config.quant_method` is \"hqq\""), "{message}");
}
