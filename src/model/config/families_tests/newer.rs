//! The fields of the families that came last.

use serde_json::{Value, json};

use super::{Row, honoured, latent_tests, refused, unchanged};

/// Returns the fields that a config of `architecture` needs for each row to have an effect.
pub(super) fn needed(architecture: &str) -> Value {
    match architecture {
        "MiMoV2FlashForCausalLM" => json!({ "num_key_value_heads": 2, "v_head_dim": 8 }),
        "BailingMoeV3ForCausalLM" => json!({
            "layer_types": ["full_attention", "linear_attention"], "first_k_dense_replace": 0,
        }),
        "KimiLinearForCausalLM" => {
            json!({ "layer_types": ["full_attention", "linear_attention"] })
        }
        _ => json!({}),
    }
}

/// Returns the fields of a family.
pub(super) fn rows(name: &str) -> Option<Vec<Row>> {
    Some(match name {
        "AXK1" | "Mistral4" => latent_tests::rows(name),
        "OlmoHybrid" => vec![
            honoured("linear_num_key_heads", json!(2)),
            honoured("linear_num_value_heads", json!(8)),
            honoured("linear_key_head_dim", json!(8)),
            honoured("linear_value_head_dim", json!(8)),
            honoured("linear_conv_kernel_dim", json!(3)),
            honoured("linear_allow_neg_eigval", json!(false)),
            honoured("attention_bias", json!(true)),
            honoured("layer_types", json!(["full_attention", "linear_attention"])),
            // Without a base, queries and keys do not rotate.
            honoured("rope_theta", json!(null)),
            honoured("rope_parameters", json!({ "rope_theta": null })),
            unchanged("rope_parameters", json!(null)),
            unchanged("mlp_bias", json!(true)),
            refused("linear_num_key_heads", json!(3)),
            refused("layer_types", json!(["full_attention", "sliding_attention"])),
        ],
        "KimiLinear" => vec![
            honoured("q_lora_rank", json!(24)),
            honoured("kv_lora_rank", json!(24)),
            honoured("qk_nope_head_dim", json!(12)),
            honoured("qk_rope_head_dim", json!(12)),
            honoured("v_head_dim", json!(12)),
            honoured("attention_bias", json!(true)),
            honoured("hidden_act", json!("gelu")),
            honoured("linear_num_heads", json!(4)),
            honoured("linear_head_dim", json!(16)),
            honoured("linear_conv_kernel_dim", json!(3)),
            honoured("linear_attn_config", json!({ "num_heads": 4 })),
            honoured("num_local_experts", json!(16)),
            honoured("num_experts_per_token", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("num_shared_experts", json!(3)),
            honoured("moe_renormalize", json!(false)),
            honoured("num_expert_group", json!(4)),
            honoured("routed_scaling_factor", json!(7.0)),
            honoured("first_k_dense_replace", json!(0)),
            honoured("mlp_layer_types", json!(["sparse", "dense"])),
            honoured("num_nextn_predict_layers", json!(1)),
            // Attention has no positions.
            unchanged("rope_theta", json!(77.0)),
            unchanged("rope_scaling", json!({ "rope_type": "linear", "factor": 2.0 })),
            refused("mla_use_nope", json!(false)),
            refused("moe_router_activation_func", json!("softmax")),
            refused("linear_attn_config", json!({ "num_heads": 100_000 })),
            refused("tie_word_embeddings", json!(true)),
            refused("layer_types", json!(["full_attention", "conv"])),
        ],
        "BailingMoeV3" => vec![
            honoured("q_lora_rank", json!(24)),
            honoured("kv_lora_rank", json!(24)),
            honoured("attention_bias", json!(true)),
            honoured("head_dim", json!(8)),
            honoured("short_conv_kernel_size", json!(3)),
            honoured("kda_safe_gate", json!(false)),
            honoured("kda_lower_bound", json!(-3.0)),
            honoured("rope_theta", json!(77.0)),
            honoured("num_local_experts", json!(32)),
            honoured("num_experts_per_token", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("num_shared_experts", json!(3)),
            honoured("moe_renormalize", json!(false)),
            honoured("num_expert_group", json!(16)),
            honoured("routed_scaling_factor", json!(7.0)),
            honoured("first_k_dense_replace", json!(1)),
            honoured("mlp_layer_types", json!(["dense", "sparse"])),
            honoured("num_mtp_layers", json!(0)),
            refused("kda_lower_bound", json!(1.0)),
            refused("rope_interleave", json!(false)),
            refused("tie_word_embeddings", json!(true)),
            refused("layer_types", json!(["full_attention", "conv"])),
        ],
        "BitNet" => vec![
            honoured("attention_bias", json!(true)),
            honoured("hidden_act", json!("silu")),
            unchanged("mlp_bias", json!(true)),
        ],
        "MiMoV2Flash" => vec![
            honoured("v_head_dim", json!(16)),
            honoured("attention_value_scale", json!(0.5)),
            honoured("attention_value_scale", json!(null)),
            honoured("attention_bias", json!(true)),
            honoured("add_full_attention_sink_bias", json!(true)),
            honoured("add_swa_attention_sink_bias", json!(false)),
            honoured("hybrid_layer_pattern", json!([1, 0])),
            honoured("layer_types", json!(["sliding_attention", "full_attention"])),
            honoured("moe_layer_freq", json!([1, 1])),
            honoured("mlp_layer_types", json!(["sparse", "dense"])),
            honoured("sliding_window", json!(9)),
            honoured("sliding_window_size", json!(9)),
            unchanged("sliding_window_size", json!(128)),
            honoured("swa_num_key_value_heads", json!(1)),
            honoured("swa_rope_theta", json!(77.0)),
            honoured("rope_theta", json!(77.0)),
            honoured("partial_rotary_factor", json!(0.5)),
            honoured("n_routed_experts", json!(16)),
            honoured("num_local_experts", json!(16)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("norm_topk_prob", json!(false)),
            honoured("routed_scaling_factor", json!(2.0)),
            honoured("n_group", json!(4)),
            honoured("layernorm_epsilon", json!(0.5)),
            refused("v_head_dim", json!(32)),
            refused("swa_v_head_dim", json!(9)),
            refused("swa_head_dim", json!(9)),
            refused("swa_num_attention_heads", json!(9)),
            refused("swa_num_key_value_heads", json!(3)),
            refused("hybrid_layer_pattern", json!([2, 0])),
            refused("moe_layer_freq", json!(1)),
            refused("n_shared_experts", json!(1)),
            refused("scoring_func", json!("softmax")),
            refused("topk_method", json!("greedy")),
        ],
        _ => return None,
    })
}
