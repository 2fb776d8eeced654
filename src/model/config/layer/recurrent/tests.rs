//! The fields of families with a state: honoured, or refused by name.

use serde_json::{Value, json};

use super::*;
use crate::model::config::file::fields;
use crate::model::config::{FeedForward, ModelConfig};

/// Reads the config of a recorded model with other values of some fields.
fn read(folder: &str, changes: &Value) -> Result<ModelConfig, String> {
    let path = format!("{}/tests/fidelity/models/{folder}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(format!("{path}/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for (field, value) in changes.as_object().unwrap() {
        config[field] = value.clone();
    }
    ModelConfig::of_source(&fields(config).into(), None).map_err(|error| error.to_string())
}

#[test]
fn every_field_of_these_families_changes_the_model() {
    let rows = [
        ("qwen3_next", "linear_num_key_heads", json!(4)),
        ("qwen3_next", "linear_num_value_heads", json!(2)),
        ("qwen3_next", "linear_key_head_dim", json!(16)),
        ("qwen3_next", "linear_value_head_dim", json!(16)),
        ("qwen3_next", "linear_conv_kernel_dim", json!(2)),
        ("qwen3_next", "full_attention_interval", json!(2)),
        ("qwen3_next", "partial_rotary_factor", json!(0.5)),
        ("qwen3_next", "hidden_act", json!("gelu")),
        ("qwen3_next", "attention_bias", json!(true)),
        ("qwen3_next", "norm_topk_prob", json!(false)),
        ("qwen3_next", "num_experts", json!(0)),
        ("qwen3_next", "num_experts_per_tok", json!(1)),
        ("qwen3_next", "moe_intermediate_size", json!(8)),
        ("qwen3_next", "shared_expert_intermediate_size", json!(8)),
        ("qwen3_next", "decoder_sparse_step", json!(2)),
        ("qwen3_next", "mlp_only_layers", json!([1])),
        (
            "qwen3_5",
            "layer_types",
            json!(["full_attention", "full_attention", "linear_attention", "linear_attention"]),
        ),
        ("qwen3_5_moe", "num_experts_per_tok", json!(3)),
        ("lfm2", "conv_L_cache", json!(4)),
        ("lfm2", "conv_bias", json!(true)),
        ("lfm2", "full_attn_idxs", json!([0])),
        ("lfm2", "block_ff_dim", json!(48)),
        ("lfm2", "block_auto_adjust_ff_dim", json!(false)),
        ("lfm2", "block_ffn_dim_multiplier", json!(2.0)),
        ("lfm2", "block_multiple_of", json!(100)),
        ("lfm2", "tie_embedding", json!(false)),
        ("lfm2", "norm_eps", json!(0.5)),
        ("lfm2_moe", "num_dense_layers", json!(2)),
        ("lfm2_moe", "use_expert_bias", json!(false)),
        ("lfm2_moe", "routed_scaling_factor", json!(2.5)),
        ("lfm2_moe", "norm_topk_prob", json!(false)),
        (
            "minimax",
            "layer_types",
            json!(["linear_attention", "full_attention", "full_attention", "linear_attention"]),
        ),
        ("minimax", "full_attn_alpha_factor", json!(2.0)),
        ("minimax", "full_attn_beta_factor", json!(2.0)),
        ("minimax", "linear_attn_alpha_factor", json!(2.0)),
        ("minimax", "linear_attn_beta_factor", json!(2.0)),
        ("minimax", "mlp_alpha_factor", json!(2.0)),
        ("minimax", "mlp_beta_factor", json!(2.0)),
        ("minimax", "sliding_window", json!(9)),
        ("minimax", "hidden_act", json!("gelu")),
        ("minimax", "num_attention_heads", json!(8)),
    ];
    for (folder, field, value) in rows {
        let before = read(folder, &json!({})).unwrap();
        let after = read(folder, &json!({ field: value })).unwrap();
        assert_ne!(before, after, "{folder}: {field}");
    }
}

#[test]
fn values_without_a_meaning_are_refused_by_name() {
    let rows = [
        ("qwen3_next", "linear_num_value_heads", json!(3)),
        ("qwen3_next", "linear_key_head_dim", json!(0)),
        ("qwen3_next", "linear_conv_kernel_dim", json!(2_000)),
        ("qwen3_next", "linear_value_head_dim", json!(1_000_000)),
        ("qwen3_next", "full_attention_interval", json!(0)),
        ("qwen3_next", "use_sliding_window", json!(true)),
        ("qwen3_5", "layer_types", json!(["linear_attention"])),
        ("qwen3_5", "layer_types", json!(["conv", "conv", "conv", "full_attention"])),
        ("lfm2", "conv_L_cache", json!(100_000)),
        ("lfm2", "full_attn_idxs", json!("all")),
        ("lfm2", "block_ffn_dim_multiplier", json!(1e30)),
        ("lfm2_moe", "num_experts_per_tok", json!(7)),
        ("minimax", "mlp_beta_factor", json!("one")),
        ("minimax", "hidden_act", json!("xielu")),
    ];
    for (folder, field, value) in rows {
        let error = read(folder, &json!({ field: value })).unwrap_err();
        assert!(error.contains(field), "{folder}: {error}");
    }
}

#[test]
fn absent_fields_are_those_of_the_config_class() {
    let config = read("lfm2", &json!({ "full_attn_idxs": null })).unwrap();
    assert!(config.layers.iter().all(|layer| layer.mixer.attention().is_some()));
    let config = read("minimax", &json!({ "layer_types": null })).unwrap();
    let has_state = |layer: &LayerConfig| layer.mixer.attention().is_none();
    assert_eq!(Vec::from_iter(config.layers.iter().map(has_state)), [false, true, false, true]);
    let width = |config: &ModelConfig| match &config.layers[0].feed_forward {
        FeedForward::Mlp(mlp) => mlp.intermediate_size,
        _ => 0,
    };
    // Two thirds of 100, and the same without a multiple.
    let config = read("lfm2", &json!({ "block_ff_dim": 100 })).unwrap();
    assert_eq!(width(&config), 80);
    let without = json!({ "block_ff_dim": 100, "block_ffn_dim_multiplier": null });
    assert_eq!(width(&read("lfm2", &without).unwrap()), 66);
}

/// The rates that transformers computes for two layers of a model of four heads and four layers.
#[test]
fn rates_are_those_of_transformers() {
    let of = |layer| LightningConfig::of_layer((layer, 4), 4, 8, ActivationName::Silu).slopes;
    for (slopes, expected) in [
        (of(1), [0.166_669_44, 0.041_667_36, 0.010_416_84, 0.002_604_21]),
        (of(3), [3.333_330_6e-6, 8.333_326_5e-7, 2.083_331_6e-7, 5.208_329e-8]),
    ] {
        for (slope, expected) in slopes.iter().zip(expected) {
            assert!((slope / expected - 1.0).abs() < 1e-6, "{slopes:?} {expected:?}");
        }
    }
}
