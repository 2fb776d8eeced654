//! Compares whole models with transformers in float32 over the same dequantized weights.

use std::fs;
use std::path::Path;

use playhouse::model::config::FeedForward;
use playhouse::model::{
    ActivationQuantization, Dtype, GenerationConfig, LoadOptions, ModelConfig, load_model,
};
use serde::Deserialize;

use crate::fixture;
use crate::runner::{Chunking, Runner};

#[derive(Deserialize)]
pub(crate) struct Prompt {
    ids: Vec<u32>,
    /// Logits after the last token.
    logits: Vec<f64>,
}

/// With activations in float32, only the order of sums and the rounding of recorded values to four
/// digits remain.
const TOLERANCE: f64 = 5e-5;

/// Activations are quantized to eight bits before each product, in a model that is bfloat16
/// otherwise. This moves logits by one or a few hundredths of their spread. A wrong layout moves
/// them by about the spread, because the logits are unrelated then.
const TOLERANCE_INT8: f64 = 0.1;

/// Returns the root of the mean square of differences, in units of the spread of `golden`.
fn relative_difference(logits: &[f32], golden: &[f64]) -> f64 {
    assert_eq!(logits.len(), golden.len());
    let count = golden.len() as f64;
    let mean = golden.iter().sum::<f64>() / count;
    let spread = golden.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    let pairs = logits.iter().zip(golden);
    (pairs.map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>() / spread).sqrt()
}

fn check(model: &Path, golden: &Path) {
    let prompts: Vec<Prompt> = serde_json::from_slice(&fs::read(golden).unwrap()).unwrap();
    let int8 = ActivationQuantization::Int8;
    for (dtype, activation_quantization, tolerance) in [
        (Dtype::Float32, ActivationQuantization::Auto, TOLERANCE),
        (Dtype::Bfloat16, int8, TOLERANCE_INT8),
    ] {
        let options = LoadOptions { dtype, activation_quantization, ..LoadOptions::default() };
        check_with(&options, model, &prompts, tolerance);
    }
}

pub(crate) fn check_with(options: &LoadOptions, model: &Path, prompts: &[Prompt], tolerance: f64) {
    let model = load_model(model, options, &mut |_| {}).unwrap();
    let runner = Runner::new(model, &options.device);
    let ids: Vec<_> = prompts.iter().map(|prompt| &prompt.ids[..]).collect();
    let whole = runner.answer(&ids, Chunking::Whole);
    for (prompt, answer) in prompts.iter().zip(&whole) {
        let difference = relative_difference(answer.prompt_rows.last().unwrap(), &prompt.logits);
        assert!(difference < tolerance, "{} tokens: {difference}", prompt.ids.len());
    }
    // A row depends on itself alone, also with quantized weights.
    for (ragged, whole) in runner.answer(&ids, Chunking::Ragged).iter().zip(&whole) {
        assert!(ragged.bits().eq(whole.bits()));
    }
}

fn check_folder(name: &str) {
    check(&fixture(name), &fixture(name).join("golden.json"));
}

fn check_gguf(name: &str) {
    check(&fixture(&format!("{name}.gguf")), &fixture(&format!("{name}.golden.json")));
}

#[test]
fn gptq_with_act_order_and_biases() {
    check_folder("gptq");
}

#[test]
fn awq() {
    check_folder("awq");
}

#[test]
fn compressed_tensors_w8a8_without_its_lm_head() {
    check_folder("compressed-tensors");
}

/// `hf_quant_config.json` alone names the format. There are scales of inputs and of a KV cache.
#[test]
fn model_optimizer_nvfp4_without_its_lm_head() {
    check_folder("modelopt-nvfp4");
}

/// The weights are floats after the load. In one model, the scales themselves have eight bits.
#[test]
fn bitsandbytes() {
    for name in ["bitsandbytes-nf4", "bitsandbytes-fp4", "bitsandbytes-int8"] {
        let golden = fs::read(fixture(name).join("golden.json")).unwrap();
        let prompts: Vec<Prompt> = serde_json::from_slice(&golden).unwrap();
        let options = LoadOptions { dtype: Dtype::Float32, ..LoadOptions::default() };
        check_with(&options, &fixture(name), &prompts, TOLERANCE);
    }
}

/// Rows of q and k in llama.cpp's order, and Llama 3's rope scaling as a tensor. q, k and v have
/// three types; that of v is not quantized.
#[test]
fn gguf_llama() {
    check_gguf("llama");
}

/// The same in parts, the first of which has no tensors.
#[test]
fn gguf_in_parts() {
    let first = fixture("parts/llama-00001-of-00004.gguf");
    check(&first, &fixture("llama.golden.json"));
}

#[test]
fn parts_must_be_complete_and_in_order() {
    let error = |path: &Path| ModelConfig::of_model(path, None).unwrap_err().to_string();
    let second = error(&fixture("parts/llama-00002-of-00004.gguf"));
    assert!(second.contains("metadata `split.no` is 1; expected 0"), "{second}");
    let folder = tempfile::tempdir().unwrap();
    let name = |number: usize| format!("llama-0000{number}-of-00004.gguf");
    let copy = |from: usize, to: usize| {
        fs::copy(fixture(&format!("parts/{}", name(from))), folder.path().join(name(to))).unwrap();
    };
    [1, 2, 3].into_iter().for_each(|number| copy(number, number));
    let first = folder.path().join(name(1));
    let missing = error(&first);
    assert!(missing.contains("llama-00004-of-00004.gguf"), "{missing}");
    copy(3, 4);
    let twice = error(&first);
    assert!(twice.contains("metadata `split.no` is 2; expected 3"), "{twice}");
    let renamed = folder.path().join("model.gguf");
    fs::copy(&first, &renamed).unwrap();
    let renamed = error(&renamed);
    assert!(renamed.contains("a file whose name ends in `-00001-of-00004.gguf`"), "{renamed}");
}

/// K-quants, a tied output, and a head size that does not follow from the hidden size. q, k and v
/// have two types.
#[test]
fn gguf_qwen3() {
    check_gguf("qwen3");
}

#[test]
fn the_metadata_of_a_gguf_file_is_the_models_config() {
    let config = ModelConfig::of_model(&fixture("qwen3.gguf"), None).unwrap();
    assert_eq!(config.architecture(), "Qwen3ForCausalLM");
    let attention = config.layers[0].mixer.attention().unwrap();
    let FeedForward::Mlp(mlp) = &config.layers[0].feed_forward else {
        panic!("the layer is dense")
    };
    assert_eq!((config.vocab_size, config.hidden_size, mlp.intermediate_size), (288, 256, 32));
    assert_eq!((attention.num_heads, attention.num_kv_heads), (2, 1));
    assert_eq!((attention.head_dim, config.layers.len(), config.max_model_len), (16, 1, 256));
    assert!(config.tie_word_embeddings && !attention.qkv_bias);
    // `<|im_end|>`, and `<|endoftext|>`, which ends an output of any model that has it.
    assert_eq!(config.eos_token_ids, [284, 282]);
    let generation = GenerationConfig::of_model(&fixture("qwen3.gguf")).unwrap();
    assert_eq!((generation.temperature, generation.top_k), (Some(0.5), Some(20)));
}
