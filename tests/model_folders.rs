//! Whole model folders: the reports during loading, and how a broken folder is rejected.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use playhouse::model::{
    Dtype, GenerationConfig, LoadFormat, LoadOptions, LoadProgress, Model, ModelError, load_model,
};
use playhouse_kernels::WeightDtype;
use safetensors::{Dtype as SafeDtype, SafeTensors, tensor::TensorView};
use serde_json::{Value, json};
use tempfile::TempDir;

fn demo_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model")
}

fn small_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models/qwen2-tied")
}

fn load(folder: &Path) -> Result<Arc<Model>, ModelError> {
    let options = LoadOptions::default();
    load_model(folder, &options, &mut |_| {})
}

fn refusal(folder: &Path) -> String {
    load(folder).err().unwrap().to_string()
}

/// Returns a copy of the small model whose weights file went through `change`.
fn with_weights(change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> TempDir {
    let copy = TempDir::new().unwrap();
    fs::copy(small_model().join("config.json"), copy.path().join("config.json")).unwrap();
    let weights = fs::read(small_model().join("model.safetensors")).unwrap();
    fs::write(copy.path().join("model.safetensors"), change(weights)).unwrap();
    copy
}

/// Returns a copy of the small model with some fields of its config changed.
fn with_config(changes: Value) -> TempDir {
    let copy = with_weights(|weights| weights);
    let path = copy.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (field, value) in changes.as_object().unwrap() {
        config[field] = value.clone();
    }
    fs::write(path, config.to_string()).unwrap();
    copy
}

#[test]
fn the_demo_model_loads_and_reports_progress() {
    let mut reports: Vec<LoadProgress> = Vec::new();
    let options = LoadOptions { max_model_len: Some(64), ..LoadOptions::default() };
    let model = load_model(&demo_model(), &options, &mut |report| reports.push(report)).unwrap();
    assert_eq!(model.architecture, "Qwen3ForCausalLM");
    assert_eq!(model.max_model_len, 64);
    assert_eq!(model.dtype, WeightDtype::Bf16);
    // Embedding, final norm, and eleven tensors in each of six layers.
    assert_eq!(reports.last().unwrap().tensors, 2 + 6 * 11);
    assert!(reports.is_sorted_by_key(|report| report.tensors));
    assert!(reports.is_sorted_by_key(|report| report.bytes));
    let last = reports.last().unwrap();
    assert_eq!((last.tensors, last.bytes), (last.tensors_total, last.bytes_total));
    let size = fs::metadata(demo_model().join("model.safetensors")).unwrap().len();
    assert_eq!(last.bytes_total, size);

    let generation = GenerationConfig::from_dir(&demo_model()).unwrap();
    assert_eq!((generation.is_of_file, generation.eos_token_ids), (true, vec![2, 0]));
    assert_eq!((generation.temperature, generation.top_k), (Some(0.7), Some(20)));
}

#[test]
fn the_dtype_is_the_checkpoints_unless_asked_otherwise() {
    let fidelity = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models");
    let dtype_of = |name: &str, dtype| {
        let options = LoadOptions { dtype, ..LoadOptions::default() };
        load_model(&fidelity.join(name), &options, &mut |_| {}).unwrap().dtype
    };
    assert_eq!(dtype_of("qwen2-tied", Dtype::Auto), WeightDtype::Bf16);
    assert_eq!(dtype_of("llama-tied", Dtype::Auto), WeightDtype::F32);
    assert_eq!(dtype_of("llama-gqa-f16", Dtype::Auto), WeightDtype::F32);
    assert_eq!(dtype_of("qwen2-tied", Dtype::Float32), WeightDtype::F32);
    assert_eq!(dtype_of("llama-tied", Dtype::Bfloat16), WeightDtype::Bf16);
    // If the config names no dtype, the tensors decide.
    let silent = with_config(json!({ "torch_dtype": null }));
    assert_eq!(load(silent.path()).unwrap().dtype, WeightDtype::Bf16);
}

#[test]
fn weights_are_made_up_where_that_is_asked_for() {
    let folder = with_weights(|weights| weights);
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(refusal(folder.path()).contains("no weights"), "{}", refusal(folder.path()));
    let dummy = LoadOptions { load_format: LoadFormat::Dummy, ..LoadOptions::default() };
    let mut last = LoadProgress::default();
    let model = load_model(folder.path(), &dummy, &mut |progress| last = progress).unwrap();
    assert_eq!(model.dtype, WeightDtype::Bf16);
    assert!(last.tensors > 0 && last.bytes > 0, "{last:?}");
    // Made-up weights of a quantized model would have to be integers.
    let config = json!({"quantization_config": {
        "quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": false, "sym": true,
    }});
    let error = load_model(with_config(config).path(), &dummy, &mut |_| {}).err().unwrap();
    assert!(error.to_string().contains("load_format dummy"), "{error}");
}

#[test]
fn a_truncated_file_is_refused_wherever_it_is_cut() {
    let size = fs::metadata(small_model().join("model.safetensors")).unwrap().len() as usize;
    for length in (0..size).step_by(9_973).chain([1, 7, 8, 9, size - 1]) {
        let folder = with_weights(|weights| weights[..length].to_vec());
        let message = refusal(folder.path());
        assert!(message.contains("model.safetensors: "), "{length} bytes: {message}");
    }
    let message = refusal(with_weights(|weights| weights[..size - 1].to_vec()).path());
    assert!(message.contains("truncated: tensor `model."), "{message}");
}

#[test]
fn a_missing_tensor_is_named() {
    let without = |name: &str| {
        with_weights(|weights| {
            let tensors = SafeTensors::deserialize(&weights).unwrap();
            let kept = tensors.iter().filter(|(tensor, _)| *tensor != name);
            safetensors::serialize(kept, None).unwrap()
        })
    };
    for (name, shape) in [
        ("model.embed_tokens.weight", "[512, 64]"),
        ("model.layers.1.self_attn.k_proj.weight", "[32, 64]"),
        ("model.layers.0.self_attn.v_proj.bias", "[32]"),
        ("model.layers.1.mlp.down_proj.weight", "[64, 96]"),
        ("model.norm.weight", "[64]"),
    ] {
        let message = refusal(without(name).path());
        let expected = format!("model.safetensors: tensor `{name}` of shape {shape} is missing");
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[test]
fn a_config_that_disagrees_with_the_weights_is_rejected_with_both_shapes() {
    for (changes, expected) in [
        (
            json!({ "vocab_size": 513 }),
            "tensor `model.embed_tokens.weight` has shape [512, 64], but by config.json it should \
             be [513, 64]",
        ),
        (
            json!({ "intermediate_size": 100 }),
            "tensor `model.layers.0.mlp.gate_proj.weight` has shape [96, 64], but by config.json \
             it should be [100, 64]",
        ),
        (
            json!({ "num_key_value_heads": 4 }),
            "tensor `model.layers.0.self_attn.k_proj.weight` has shape [32, 64], but by \
             config.json it should be [64, 64]",
        ),
        (json!({ "num_hidden_layers": 3 }), "tensor `model.layers.2.input_layernorm.weight` of"),
        (json!({ "tie_word_embeddings": false }), "tensor `lm_head.weight` of shape [512, 64] is"),
        (
            json!({ "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16 }),
            "tensor `model.layers.0.self_attn.q_norm.weight` of shape [16] is missing",
        ),
    ] {
        let message = refusal(with_config(changes).path());
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn absurd_configs_are_refused_before_anything_is_allocated() {
    for (changes, expected) in [
        (json!({ "num_hidden_layers": 4_096 }), "model.safetensors: tensor"),
        (
            json!({ "vocab_size": 16_777_216, "hidden_size": 16_777_216, "head_dim": 2 }),
            "model.safetensors: tensor",
        ),
        (
            json!({ "num_attention_heads": 1 << 24, "num_key_value_heads": 1, "head_dim": 1 << 24 }),
            "`num_attention_heads` is 16777216; expected an integer from 1 to 4096",
        ),
    ] {
        let message = refusal(with_config(changes).path());
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_context_that_no_memory_has_room_for_is_refused() {
    // Rotary tables of 8 TiB beside a few megabytes of weights.
    let config = json!({
        "hidden_size": 8, "intermediate_size": 8, "vocab_size": 8, "num_attention_heads": 1,
        "num_key_value_heads": 1, "head_dim": 1 << 18, "max_position_embeddings": 1 << 23,
    });
    let folder = with_config(config);
    let dummy = LoadOptions { load_format: LoadFormat::Dummy, ..LoadOptions::default() };
    let message = load_model(folder.path(), &dummy, &mut |_| {}).err().unwrap().to_string();
    let expected = "rotary embedding: cosines and sines of max_model_len positions: cannot";
    assert!(message.starts_with(expected), "{message}");
    let short = LoadOptions { max_model_len: Some(2), ..dummy };
    assert!(load_model(folder.path(), &short, &mut |_| {}).is_ok());
}

#[test]
fn a_tied_output_layer_of_its_own_is_refused_unless_it_is_the_embedding() {
    let with_lm_head = |change: fn(&mut Vec<u8>)| {
        with_weights(|weights| {
            let tensors = SafeTensors::deserialize(&weights).unwrap();
            let embedding = tensors.tensor("model.embed_tokens.weight").unwrap();
            let mut bytes = embedding.data().to_vec();
            change(&mut bytes);
            let shape = embedding.shape().to_vec();
            let lm_head = TensorView::new(embedding.dtype(), shape, &bytes).unwrap();
            let all = tensors.iter().chain([("lm_head.weight", lm_head)]);
            safetensors::serialize(all, None).unwrap()
        })
    };
    assert!(load(with_lm_head(|_| {}).path()).is_ok());
    let message = refusal(with_lm_head(|bytes| bytes[7] ^= 1).path());
    let expected = "tensor `lm_head.weight` is not used: it differs from the embedding, while \
                    `tie_word_embeddings` is true";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn tensors_of_the_decoder_that_would_be_left_out_are_refused() {
    let added = |name: &'static str, values: [u8; 4]| {
        with_weights(|weights| {
            let tensors = SafeTensors::deserialize(&weights).unwrap();
            let more = TensorView::new(SafeDtype::F32, vec![1], &values).unwrap();
            safetensors::serialize(tensors.iter().chain([(name, more)]), None).unwrap()
        })
    };
    for name in [
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.o_proj.bias",
        "model.layers.0.mlp.up_proj.lora_A.weight",
        "model.layers.2.mlp.up_proj.weight",
        "lm_head.bias",
    ] {
        let message = refusal(added(name, [1; 4]).path());
        let expected = format!("model.safetensors: tensor `{name}` is not used: the model that");
        assert!(message.contains(&expected), "{message}");
    }
    for name in ["model.layers.0.self_attn.rotary_emb.inv_freq", "vision.weight"] {
        assert!(load(added(name, [1; 4]).path()).is_ok(), "{name}");
    }
    for name in ["model.layers.0.self_attn.o_proj.bias", "lm_head.bias"] {
        assert!(load(added(name, [0; 4]).path()).is_ok(), "{name}");
    }
    // The config has one layer less than the file.
    let message = refusal(with_config(json!({ "num_hidden_layers": 1 })).path());
    assert!(message.contains("tensor `model.layers.1."), "{message}");
}

/// The parts for media are not read, so their tensors may have any shape and type.
#[test]
fn a_multimodal_checkpoint_may_have_the_modules_of_its_class_and_no_others() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/models/llava");
    let weights = fs::read(model.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&weights).unwrap();
    let with = |added: &str| {
        let copy = TempDir::new().unwrap();
        fs::copy(model.join("config.json"), copy.path().join("config.json")).unwrap();
        let more = TensorView::new(SafeDtype::I8, vec![1], &[7]).unwrap();
        let all = tensors.iter().chain([(added, more)]);
        let bytes = safetensors::serialize(all, None).unwrap();
        fs::write(copy.path().join("model.safetensors"), bytes).unwrap();
        copy
    };
    for name in ["vision_tower.more.weight", "model.multi_modal_projector.weight"] {
        assert!(load(with(name).path()).is_ok(), "{name}");
    }
    for (name, why) in [
        ("vision_towers.weight", "it is in no module that the model's class is known to have"),
        ("audio_tower.weight", "it is in no module that the model's class is known to have"),
        ("language_model.model.layers.9.mlp.up_proj.weight", "the model that config.json"),
        ("language_model.model.layers.0.self_attn.q_proj.bias", "the model that config.json"),
    ] {
        let message = refusal(with(name).path());
        let expected = format!("tensor `{name}` is not used: {why}");
        assert!(message.contains(&expected), "{message}");
    }
}

/// transformers writes a text model that it has read from a multimodal checkpoint so.
#[test]
fn a_text_model_may_have_the_names_of_a_multimodal_checkpoint() {
    let moved = |to: &'static str| {
        with_weights(|weights| {
            let tensors = SafeTensors::deserialize(&weights).unwrap();
            let moved = tensors.iter().map(|(name, tensor)| {
                let rest = name.strip_prefix("model.").unwrap();
                (format!("{to}.{rest}"), tensor)
            });
            safetensors::serialize(moved, None).unwrap()
        })
    };
    assert!(load(moved("model.language_model").path()).is_ok());
    let message = refusal(moved("model.vision_model").path());
    assert!(message.contains("tensor `model.embed_tokens.weight` of shape"), "{message}");
}

#[test]
fn a_folder_with_an_adapter_is_refused() {
    let folder = with_weights(|weights| weights);
    fs::write(folder.path().join("adapter_config.json"), "{}").unwrap();
    let message = refusal(folder.path());
    assert!(message.contains("adapter_config.json: an adapter is no model"), "{message}");
    fs::remove_file(folder.path().join("config.json")).unwrap();
    assert!(refusal(folder.path()).contains("an adapter is no model"));
}

#[cfg(unix)]
#[test]
fn a_fifo_or_a_device_is_refused_and_a_link_to_a_file_is_not() {
    for name in ["config.json", "model.safetensors"] {
        let folder = with_weights(|weights| weights);
        let path = folder.path().join(name);
        let (blobs, blob) = (folder.path().join("blobs"), folder.path().join("blobs/0123"));
        fs::create_dir(&blobs).unwrap();
        fs::rename(&path, &blob).unwrap();
        std::os::unix::fs::symlink(Path::new("blobs/0123"), &path).unwrap();
        assert!(load(folder.path()).is_ok(), "as Hugging Face's cache has it");
        fs::remove_file(&blob).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&blob).status().unwrap().success());
        let message = refusal(folder.path());
        let expected = format!("{name}: cannot be read: it is a FIFO; expected a regular file");
        assert!(message.ends_with(&expected), "{message}");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(refusal(folder.path()).contains("it is a device"), "{}", refusal(folder.path()));
    }
}

#[test]
fn a_context_beyond_the_models_is_refused() {
    let options = LoadOptions { max_model_len: Some(4_097), ..LoadOptions::default() };
    let message = load_model(&demo_model(), &options, &mut |_| {}).err().unwrap().to_string();
    assert!(message.starts_with("max_model_len is 4097; expected 1 to 4096"), "{message}");
}

#[test]
fn folders_without_a_model_are_refused() {
    let empty = TempDir::new().unwrap();
    assert!(refusal(empty.path()).contains("config.json: cannot be read"));
    fs::copy(small_model().join("config.json"), empty.path().join("config.json")).unwrap();
    assert!(refusal(empty.path()).contains("expected model.safetensors or"));
    assert!(refusal(Path::new("/nonexistent")).contains("/nonexistent/config.json"));
}
