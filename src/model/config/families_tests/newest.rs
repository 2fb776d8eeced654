//! The fields of the families that transformers 5.24 has first.

use serde_json::{Value, json};

use super::{Row, honoured, refused, unchanged};

/// Returns the fields that a config of `architecture` needs for each row to have an effect.
pub(super) fn needed(architecture: &str) -> Value {
    match architecture {
        "FlintForCausalLM" => json!({
            "layer_types": ["full_attention", "sliding_attention"], "mlp_only_layers": [0],
        }),
        "DoryForCausalLM" => json!({
            "num_hidden_layers": 6, "n_input_layers": 2, "n_output_layers": 2,
            "n_recurrent_loops": 2, "initializer_range": 0.02,
            "layer_types": dory_kinds("full_attention"),
        }),
        "Kolibri1ForCausalLM" => json!({ "layer_types": ["full_attention", "sliding_attention"] }),
        _ => json!({}),
    }
}

/// Returns the kinds of six layers of Dory, of which `second` is the second kind of attention.
fn dory_kinds(second: &str) -> Value {
    json!(["sliding_attention", "mlp", second, "mlp", "full_attention", "mlp"])
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
        "Dory" => vec![
            honoured("sliding_window", json!(9)),
            honoured("layer_types", dory_kinds("sliding_attention")),
            honoured(
                "rope_parameters",
                json!({
                    "full_attention": { "rope_theta": 77.0 },
                    "sliding_attention": { "rope_theta": 10_000.0 },
                }),
            ),
            honoured("attention_bias", json!(true)),
            honoured("mlp_bias", json!(true)),
            honoured("hidden_act", json!("gelu")),
            honoured("initializer_range", json!(0.5)),
            honoured("ngpt_alpha_init", json!(-0.5)),
            honoured("n_recurrent_loops", json!(3)),
            unchanged("n_recurrent_loops", json!(2)),
            unchanged("n_recurrent_layers", json!(2)),
            unchanged("recurrent_kv_cache_mode", json!("per_loop")),
            unchanged("attention_output_gate_logit_scale_init", json!(8.0)),
            // HF's class has a number of its own.
            unchanged("rms_norm_eps", json!(0.5)),
            refused("sliding_window", json!(null)),
            refused("layer_types", json!(null)),
            refused("layer_types", json!(["full_attention", "mlp"])),
            refused("layer_types", json!(vec!["full_attention"; 6])),
            // transformers and vLLM have other defaults.
            refused("initializer_range", json!(null)),
            refused("n_recurrent_loops", json!(null)),
            refused("n_input_layers", json!(null)),
            refused("n_output_layers", json!(null)),
            honoured("n_input_layers", json!(0)),
            honoured("n_output_layers", json!(0)),
            refused("n_input_layers", json!(1)),
            refused("n_input_layers", json!(6)),
            refused("n_output_layers", json!(1)),
            refused("n_output_layers", json!(4)),
            refused("n_recurrent_layers", json!(4)),
            refused("n_recurrent_layers", json!(0)),
            refused("n_recurrent_loops", json!(3_000)),
            refused("recurrent_kv_cache_mode", json!("last_loop")),
            refused("attention_output_gate_logit_scale_init", json!(2.0)),
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
