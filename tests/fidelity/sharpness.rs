//! The recorded answers would reveal a mistake: each setting, if ignored, changes a log-probability
//! by far more than the tolerance.

use playhouse::model::{Dtype, LoadOptions, load_model};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::golden::Golden;
use crate::runner::Chunking;
use crate::{TOLERANCE, folder, runner};

/// Returns the model `name` with some fields of its `config.json` changed.
fn changed(name: &str, changes: &Value) -> TempDir {
    let copy = TempDir::new().unwrap();
    for entry in std::fs::read_dir(folder(name)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = copy.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for (field, value) in changes.as_object().unwrap() {
        assert!(config.get(field).is_some(), "{field} is not set in {name}");
        config[field] = value.clone();
    }
    std::fs::write(path, config.to_string()).unwrap();
    copy
}

#[test]
fn a_forgotten_setting_shows() {
    let plain_rope = json!({ "rope_type": "default", "rope_theta": 10000.0 });
    for (name, changes) in [
        ("llama-gqa-f16", json!({ "rope_theta": 10000.0 })),
        ("llama-gqa-f16", json!({ "rms_norm_eps": 1e-3 })),
        ("llama-llama3", json!({ "rope_scaling": null })),
        ("llama-yarn", json!({ "rope_parameters": plain_rope })),
        ("llama-longrope", json!({ "rope_parameters": plain_rope })),
        ("mistral-window", json!({ "sliding_window": 25 })),
        ("qwen2-window-mix", json!({ "use_sliding_window": false })),
        ("qwen2-window-mix", json!({ "max_window_layers": 2 })),
        ("qwen3-layer-types", json!({ "sliding_window": 19 })),
        ("minimax", json!({ "linear_attn_alpha_factor": 1.0 })),
        ("minimax", json!({ "linear_attn_beta_factor": 1.0 })),
        ("minimax", json!({ "mlp_beta_factor": 1.0 })),
        ("minimax-layer-types", json!({ "hidden_act": "silu" })),
        ("minimax_text01", json!({ "layernorm_linear_attention_alpha": 1.0 })),
        ("minimax_text01", json!({ "layernorm_mlp_beta": 1.0 })),
        ("minimax_text01", json!({ "rotary_dim": 8 })),
        ("bailing_moe_v2_5", json!({ "linear_rope": false })),
        ("bailing_moe_v2_5", json!({ "group_norm_size": 1 })),
        ("step3p5", json!({ "swiglu_limits": null })),
        ("step3p5", json!({ "swiglu_limits_shared": null })),
        ("step3p5", json!({ "partial_rotary_factors": null })),
        ("qwen3_next-layer-types", json!({ "norm_topk_prob": true })),
        ("qwen3_next-layer-types", json!({ "hidden_act": "silu" })),
        ("qwen4_exp-layers", json!({ "eos_token_id": 5 })),
        ("qwen4_exp-layers", json!({ "output_gate_type": null })),
        ("lfm2_moe-no-bias", json!({ "routed_scaling_factor": 1.0 })),
    ] {
        let copy = changed(name, &changes);
        let run = Golden::read(copy.path()).runs.remove(0);
        let runner = runner(copy.path(), Dtype::Float32, run.max_model_len);
        let prompt = run.prompts.last().unwrap();
        let answer = runner.answer(&[prompt.ids()], Chunking::Whole).remove(0);
        let difference = prompt.difference(&answer);
        assert!(difference > 50.0 * TOLERANCE, "{name}, {changes}: only {difference}");
    }
}

/// If biases are ignored, their tensors are unused, and the loader rejects unused tensors.
#[test]
fn forgotten_biases_are_refused() {
    for field in ["attention_bias", "mlp_bias"] {
        let copy = changed("llama-biases-sharded", &json!({ field: false }));
        let loaded = load_model(copy.path(), &LoadOptions::default(), &mut |_| {});
        let message = loaded.err().unwrap().to_string();
        assert!(message.contains("_proj.bias` is not used"), "{field}: {message}");
    }
}
