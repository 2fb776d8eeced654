//! The fields of further families.

use serde_json::json;

use super::{Honoured, Refused, Row};

/// Returns the fields of a family.
pub(super) fn rows(name: &str) -> Option<Vec<Row>> {
    let honoured = |field, value| (field, value, Honoured);
    let refused = |field, value| (field, value, Refused);
    Some(match name {
        "GptOss" => vec![
            honoured("num_local_experts", json!(9)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("swiglu_alpha", json!(2.0)),
            honoured("swiglu_limit", json!(2.0)),
            honoured("sliding_window", json!(9)),
            honoured("layer_types", json!(["full_attention", "sliding_attention"])),
            honoured("attention_bias", json!(false)),
            honoured("rope_parameters", json!({ "rope_type": "default" })),
            refused("hidden_act", json!("gelu")),
            refused("layer_types", json!(["full_attention", "chunked_attention"])),
        ],
        "Llama4" => vec![
            honoured("num_local_experts", json!(9)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("intermediate_size_mlp", json!(8)),
            honoured("interleave_moe_layer_step", json!(1)),
            honoured("moe_layers", json!([0])),
            honoured("use_qk_norm", json!(false)),
            honoured("no_rope_layers", json!([0, 1])),
            honoured("no_rope_layer_interval", json!(1)),
            honoured("attention_chunk_size", json!(9)),
            honoured("attention_chunk_size", json!(null)),
            honoured("layer_types", json!(["full_attention", "chunked_attention"])),
            honoured("attn_temperature_tuning", json!(false)),
            honoured("floor_scale", json!(9)),
            honoured("attn_scale", json!(0.5)),
            honoured("attention_bias", json!(true)),
            refused("layer_types", json!(["full_attention", "sliding_attention"])),
        ],
        "Gemma3n" => vec![
            honoured("altup_num_inputs", json!(3)),
            honoured("altup_active_idx", json!(1)),
            honoured("altup_correct_scale", json!(false)),
            honoured("laurel_rank", json!(8)),
            honoured("hidden_size_per_layer_input", json!(8)),
            honoured("vocab_size_per_layer_input", json!(8)),
            honoured("num_kv_shared_layers", json!(1)),
            honoured("activation_sparsity_pattern", json!([0.5, 0.0])),
            honoured("intermediate_size", json!([8, 16])),
            honoured("final_logit_softcapping", json!(7.0)),
            honoured("sliding_window", json!(9)),
            honoured("hidden_activation", json!("relu")),
            honoured("attention_bias", json!(true)),
            refused("altup_active_idx", json!(4)),
            refused("altup_num_inputs", json!(65)),
            refused("num_kv_shared_layers", json!(2)),
            refused("activation_sparsity_pattern", json!([0.5])),
            refused("activation_sparsity_pattern", json!([0.5, 1.0])),
            refused("intermediate_size", json!([8])),
        ],
        "GPTJ" => vec![
            honoured("rotary_dim", json!(4)),
            honoured("n_inner", json!(99)),
            honoured("activation_function", json!("relu")),
            honoured("layer_norm_epsilon", json!(0.5)),
            refused("rotary_dim", json!(18)),
            refused("rotary_dim", json!(3)),
            refused("rotary_dim", json!(null)),
        ],
        "GPTBigCode" => vec![
            honoured("multi_query", json!(false)),
            honoured("scale_attn_weights", json!(false)),
            honoured("n_inner", json!(99)),
            honoured("activation_function", json!("relu")),
            honoured("layer_norm_epsilon", json!(0.5)),
            refused("add_cross_attention", json!(true)),
        ],
        "Helium" => {
            vec![honoured("attention_bias", json!(true)), honoured("mlp_bias", json!(true))]
        }
        "InternLM" => vec![
            honoured("bias", json!(false)),
            honoured("rotary", json!({ "base": 77.0, "type": "origin" })),
            refused("rotary", json!({ "type": "linear" })),
            refused("rotary", json!({ "type": "dynamic", "scaling_factor": 2.0 })),
        ],
        "MiniCPM" => vec![
            honoured("scale_emb", json!(2.0)),
            honoured("scale_depth", json!(2.0)),
            honoured("dim_model_base", json!(8)),
            honoured("attention_bias", json!(true)),
            refused("num_experts", json!(8)),
            refused("sparse_config", json!({ "block_size": 64 })),
        ],
        "Ministral" => vec![
            honoured("sliding_window", json!(9)),
            honoured("layer_types", json!(["full_attention", "sliding_attention"])),
        ],
        "Ministral3" => vec![
            honoured("sliding_window", json!(9)),
            honoured("rope_parameters", json!({ "rope_type": "default" })),
        ],
        "Olmo" => {
            vec![honoured("clip_qkv", json!(2.0)), honoured("attention_bias", json!(true))]
        }
        "Phi" => vec![
            honoured("partial_rotary_factor", json!(0.25)),
            honoured("hidden_act", json!("relu")),
            honoured("layer_norm_eps", json!(0.5)),
            honoured("qk_layernorm", json!(true)),
        ],
        "VaultGemma" => vec![
            honoured("query_pre_attn_scalar", json!(7)),
            honoured("final_logit_softcapping", json!(7.0)),
            honoured("attn_logit_softcapping", json!(7.0)),
            honoured("sliding_window", json!(9)),
            honoured("hidden_activation", json!("relu")),
            honoured("layer_types", json!(["full_attention", "sliding_attention"])),
        ],
        "Dots1" => vec![
            honoured("n_routed_experts", json!(16)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("n_shared_experts", json!(2)),
            honoured("norm_topk_prob", json!(true)),
            honoured("routed_scaling_factor", json!(2.0)),
            honoured("n_group", json!(4)),
            honoured("first_k_dense_replace", json!(1)),
            honoured("max_window_layers", json!(1)),
            honoured("attention_bias", json!(true)),
            refused("topk_group", json!(5)),
            refused("n_shared_experts", json!(null)),
        ],
        "FlexOlmo" => vec![
            honoured("num_experts", json!(9)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("norm_topk_prob", json!(true)),
            honoured("attention_bias", json!(true)),
        ],
        "GraniteMoeShared" => vec![
            honoured("num_local_experts", json!(5)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("shared_intermediate_size", json!(8)),
            honoured("embedding_multiplier", json!(2.0)),
            refused("num_experts_per_tok", json!(50)),
        ],
        "CodeGen" => vec![
            honoured("rotary_dim", json!(8)),
            honoured("n_inner", json!(8)),
            honoured("activation_function", json!("relu")),
            refused("rotary_dim", json!(32)),
            refused("rotary_dim", json!(null)),
        ],
        "Exaone" => vec![
            honoured("layer_norm_epsilon", json!(0.5)),
            honoured("activation_function", json!("relu")),
            honoured("attention_bias", json!(true)),
            honoured("mlp_bias", json!(true)),
        ],
        "Jais2" => vec![
            honoured("layer_norm_eps", json!(0.5)),
            honoured("hidden_act", json!("relu")),
            honoured("attention_bias", json!(false)),
            honoured("mlp_bias", json!(false)),
        ],
        "MiniMaxM2" => vec![
            honoured("num_local_experts", json!(9)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("rotary_dim", json!(8)),
            honoured("hidden_act", json!("relu")),
            refused("rotary_dim", json!(32)),
        ],
        "Persimmon" => vec![
            honoured("partial_rotary_factor", json!(0.25)),
            honoured("qk_layernorm", json!(false)),
            honoured("layer_norm_eps", json!(0.5)),
            honoured("hidden_act", json!("relu")),
        ],
        "SolarOpen" => vec![
            honoured("n_routed_experts", json!(16)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("n_shared_experts", json!(2)),
            honoured("norm_topk_prob", json!(false)),
            honoured("routed_scaling_factor", json!(2.0)),
            honoured("n_group", json!(4)),
            honoured("attention_bias", json!(true)),
            refused("topk_group", json!(5)),
        ],
        _ => return None,
    })
}
