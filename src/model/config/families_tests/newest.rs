//! The fields of the families that transformers 5.24 has first.

use serde_json::{Value, json};

use super::{Row, honoured, refused, unchanged};

/// Returns the fields that a config of `architecture` needs for each row to have an effect.
pub(super) fn needed(architecture: &str) -> Value {
    match architecture {
        "FlintForCausalLM" => json!({
            "layer_types": ["full_attention", "sliding_attention"], "mlp_only_layers": [0],
        }),
        "Kolibri1ForCausalLM" => json!({ "layer_types": ["full_attention", "sliding_attention"] }),
        _ => json!({}),
    }
}

/// Returns the fields of a family.
pub(super) fn rows(name: &str) -> Option<Vec<Row>> {
    Some(match name {
        "Flint" => vec![
            honoured("sliding_window", json!(9)),
            honoured("layer_types", json!(["sliding_attention", "full_attention"])),
            // Then the first two layers have no window.
            honoured("layer_types", json!(null)),
            honoured("rope_theta", json!(77.0)),
            honoured("attention_bias", json!(true)),
            honoured("hidden_act", json!("gelu")),
            honoured("num_experts", json!(16)),
            honoured("num_experts", json!(0)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("shared_expert_intermediate_size", json!(8)),
            honoured("norm_topk_prob", json!(false)),
            honoured("mlp_only_layers", json!([])),
            // Then the first two layers have no experts.
            honoured("mlp_only_layers", json!(null)),
            honoured("decoder_sparse_step", json!(3)),
            unchanged("mlp_bias", json!(true)),
            unchanged("use_sliding_window", json!(true)),
            unchanged("router_score_function", json!("sigmoid")),
            unchanged("no_rope_layer_indices", json!([0])),
            refused("no_rope_layer_indices", json!([])),
            refused("sliding_window", json!(null)),
            refused("use_sliding_window", json!(false)),
            refused("router_score_function", json!("softmax")),
        ],
        "Kolibri1" => vec![
            honoured("sliding_window", json!(9)),
            honoured("layer_types", json!(["sliding_attention", "full_attention"])),
            // Then the first four layers have a window.
            honoured("layer_types", json!(null)),
            honoured("rope_theta", json!(77.0)),
            honoured("hidden_act", json!("gelu")),
            honoured("num_experts", json!(16)),
            honoured("num_local_experts", json!(16)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("shared_expert_intermediate_size", json!(8)),
            honoured("norm_topk_prob", json!(true)),
            // HF's class has neither biases nor dense layers.
            unchanged("attention_bias", json!(true)),
            unchanged("mlp_only_layers", json!([0])),
            unchanged("intermediate_size", json!(8)),
            refused("sliding_window", json!(null)),
            refused("layer_types", json!(["full_attention"])),
        ],
        _ => return None,
    })
}
