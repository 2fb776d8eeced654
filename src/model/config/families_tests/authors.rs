//! The fields of families whose code is in their authors' folders, and of some that followed.

use serde_json::{Value, json};

use super::{Row, honoured, newer, refused, unchanged};

/// Returns the fields that a config of `architecture` needs for each row to have an effect.
pub(super) fn needed(architecture: &str) -> Value {
    let experts = |count: usize| -> Value {
        json!({ "num_experts": count, "num_experts_per_tok": 2, "moe_intermediate_size": 8 })
    };
    match architecture {
        "ChatGLMForConditionalGeneration" | "ChatGLMModel" => {
            json!({ "multi_query_attention": true })
        }
        "DeepseekForCausalLM" => experts(8),
        "BailingMoeForCausalLM" => experts(8),
        "BailingMoeV2ForCausalLM" | "Param2MoEForCausalLM" => experts(32),
        "DeciLMForCausalLM" => json!({ "block_configs": blocks(json!({}), json!({})) }),
        other => newer::needed(other),
    }
}

/// Returns the layers of a Nemotron. `attention` and `ffn` change the parts of the first one.
fn blocks(attention: Value, ffn: Value) -> Value {
    let plain = json!({ "attention": { "n_heads_in_group": 1 }, "ffn": { "ffn_mult": 1.0 } });
    let mut first = plain.clone();
    for (part, changes) in [("attention", attention), ("ffn", ffn)] {
        for (field, value) in changes.as_object().into_iter().flatten() {
            first[part][field] = value.clone();
        }
    }
    json!([first, plain])
}

/// Returns the fields of a family.
pub(super) fn rows(name: &str) -> Option<Vec<Row>> {
    Some(match name {
        "ChatGLMForConditionalGeneration" => vec![
            honoured("num_layers", json!(3)),
            honoured("padded_vocab_size", json!(600)),
            honoured("ffn_hidden_size", json!(8)),
            honoured("kv_channels", json!(8)),
            honoured("seq_length", json!(99)),
            honoured("layernorm_epsilon", json!(0.5)),
            honoured("add_qkv_bias", json!(true)),
            honoured("multi_query_group_num", json!(2)),
            honoured("rope_ratio", json!(2.0)),
            // The class does not read these, or has no use for them here.
            unchanged("num_key_value_heads", json!(2)),
            unchanged("rope_theta", json!(77.0)),
            unchanged("hidden_act", json!("gelu")),
            unchanged("quantization_bit", json!(0)),
            refused("multi_query_attention", json!(false)),
            refused("rmsnorm", json!(false)),
            refused("post_layer_norm", json!(false)),
            refused("original_rope", json!(false)),
            refused("apply_residual_connection_post_layernorm", json!(true)),
            refused("interleaved_qkv", json!(true)),
            refused("add_bias_linear", json!(true)),
            refused("quantization_bit", json!(4)),
            refused("pre_seq_len", json!(8)),
            refused("vision_config", json!({})),
        ],
        "MiMo" => vec![unchanged("num_nextn_predict_layers", json!(1))],
        "Orion" => {
            vec![honoured("rms_norm_eps", json!(0.5)), honoured("hidden_act", json!("relu"))]
        }
        "PanguEmbedded" => vec![honoured("bias", json!(true)), unchanged("mlp_bias", json!(true))],
        "Deepseek" => vec![
            honoured("n_routed_experts", json!(16)),
            honoured("n_routed_experts", json!(null)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(12)),
            honoured("n_shared_experts", json!(2)),
            honoured("norm_topk_prob", json!(true)),
            honoured("moe_layer_freq", json!(2)),
            honoured("first_k_dense_replace", json!(1)),
            honoured("attention_bias", json!(true)),
            refused("scoring_func", json!("sigmoid")),
            refused("num_experts_per_tok", json!(50)),
        ],
        "BailingMoe" => {
            let mut rows = of_ling();
            rows.extend([
                honoured("num_experts", json!(16)),
                honoured("first_k_dense_replace", json!(1)),
                honoured("use_qk_norm", json!(true)),
                honoured("score_function", json!("sigmoid")),
                refused("moe_router_enable_expert_bias", json!(true)),
            ]);
            rows
        }
        "BailingMoeV2" => {
            let mut rows = of_ling();
            rows.extend([
                honoured("num_experts", json!(64)),
                honoured("use_qk_norm", json!(false)),
                honoured("score_function", json!("softmax")),
                refused("use_rmsnorm", json!(false)),
                refused("moe_router_enable_expert_bias", json!(false)),
                refused("topk_group", json!(9)),
            ]);
            rows
        }
        "Param2MoE" => {
            const SHARED_WIDTH: &str = "moe_shared_expert_intermediate_size";
            let mut rows = of_ling();
            rows.retain(|(field, ..)| *field != SHARED_WIDTH);
            rows.extend([
                honoured("num_experts", json!(64)),
                honoured("use_qk_norm", json!(false)),
                honoured("first_k_dense_replace", json!(0)),
                honoured("num_shared_experts", json!(0)),
                // One expert is shared.
                honoured(SHARED_WIDTH, json!(9)),
                refused("use_rmsnorm", json!(false)),
                refused("moe_router_enable_expert_bias", json!(false)),
            ]);
            rows
        }
        "SarvamMoE" => vec![
            honoured("n_routed_experts", json!(16)),
            honoured("num_local_experts", json!(16)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("n_shared_experts", json!(2)),
            honoured("num_shared_experts", json!(2)),
            honoured("norm_topk_prob", json!(false)),
            honoured("routed_scaling_factor", json!(2.0)),
            honoured("n_group", json!(4)),
            honoured("use_qk_norm", json!(false)),
            honoured("attention_bias", json!(true)),
            honoured("use_qkv_bias", json!(true)),
            honoured("first_k_dense_replace", json!(0)),
            honoured("partial_rotary_factor", json!(0.5)),
            honoured("num_mtp_layers", json!(1)),
            refused("score_function", json!("softmax")),
            refused("topk_group", json!(5)),
        ],
        "SarvamMLA" => vec![
            honoured("q_lora_rank", json!(24)),
            honoured("kv_lora_rank", json!(24)),
            honoured("n_routed_experts", json!(16)),
            honoured("num_local_experts", json!(16)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("n_shared_experts", json!(3)),
            honoured("num_shared_experts", json!(3)),
            honoured("norm_topk_prob", json!(false)),
            honoured("routed_scaling_factor", json!(7.0)),
            honoured("first_k_dense_replace", json!(0)),
            honoured("n_group", json!(4)),
            honoured("num_mtp_layers", json!(1)),
            honoured("rope_interleave", json!(false)),
            honoured("rope_scaling", json!({ "type": "deepseek_yarn", "factor": 4.0 })),
            // Authors have the width of a token in the KV cache here.
            unchanged("head_dim", json!(576)),
            refused("scoring_func", json!("softmax")),
            refused("topk_method", json!("greedy")),
        ],
        "DeciLM" => {
            let changed = |attention, ffn| ("block_configs", blocks(attention, ffn));
            let is_honoured = |(field, value)| honoured(field, value);
            let is_refused = |(field, value)| refused(field, value);
            vec![
                is_honoured(changed(json!({ "n_heads_in_group": 2 }), json!({}))),
                is_honoured(changed(json!({ "no_op": true }), json!({}))),
                is_honoured(changed(json!({}), json!({ "no_op": true }))),
                is_honoured(changed(json!({}), json!({ "ffn_mult": 9.0 }))),
                is_honoured(changed(
                    json!({}),
                    json!({ "ffn_mult": null, "intermediate_size": 8 }),
                )),
                is_refused(changed(json!({ "n_heads_in_group": 3 }), json!({}))),
                is_refused(changed(json!({ "n_heads_in_group": null }), json!({}))),
                is_refused(changed(json!({ "replace_with_linear": true }), json!({}))),
                is_refused(changed(json!({ "window_length": 9 }), json!({}))),
                is_refused(changed(json!({ "num_sink_tokens": 9 }), json!({}))),
                is_refused(changed(json!({}), json!({ "sparsify": ["q"] }))),
                is_refused(changed(json!({}), json!({ "ffn_mult": 1e30 }))),
                is_refused(changed(json!({}), json!({ "ffn_mult": null }))),
                is_refused(changed(json!({}), json!({ "hidden_act": "relu" }))),
                refused("block_configs", json!([])),
                refused("block_configs", json!(null)),
                refused("parallel_blocks", json!([])),
                refused("position_embedding_type", json!("mistral_yarn")),
                unchanged("num_key_value_heads", json!(2)),
                unchanged("intermediate_size", json!(8)),
            ]
        }
        "Cohere2Moe" => vec![
            honoured("num_experts", json!(9)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("num_shared_experts", json!(1)),
            honoured("expert_selection_fn", json!("sigmoid")),
            honoured("rms_norm_eps", json!(1e-5)),
            honoured("first_k_dense_replace", json!(1)),
            honoured("mlp_layer_types", json!(["dense", "sparse"])),
            honoured("layer_types", json!(["full_attention", "sliding_attention"])),
            honoured("sliding_window", json!(9)),
            honoured("sliding_window_pattern", json!(2)),
            honoured("logit_scale", json!(2.0)),
            honoured("attention_bias", json!(true)),
            honoured("num_nextn_predict_layers", json!(1)),
            // They count beside shared experts, dense layers and sigmoids alone.
            unchanged("shared_expert_combination_strategy", json!("sum")),
            unchanged("prefix_dense_intermediate_size", json!(8)),
            unchanged("norm_topk_prob", json!(false)),
            refused("shared_expert_combination_strategy", json!("max")),
            refused("expert_selection_fn", json!("tanh")),
            refused("first_k_dense_replace", json!(3)),
            refused("mlp_layer_types", json!(["dense"])),
        ],
        "GraniteSWA" => {
            let mut rows = of_swash();
            rows.push(honoured("mlp_bias", json!(true)));
            rows
        }
        "GraniteMoeSWA" => {
            let mut rows = of_swash();
            rows.extend([
                honoured("num_local_experts", json!(5)),
                honoured("num_experts_per_tok", json!(3)),
                honoured("shared_intermediate_size", json!(8)),
            ]);
            rows
        }
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
            refused("attention_projection_layout", json!("fused_qkv")),
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

/// Returns the fields of both generations of Ling.
fn of_ling() -> Vec<Row> {
    vec![
        honoured("num_experts_per_tok", json!(3)),
        honoured("moe_intermediate_size", json!(12)),
        honoured("num_shared_experts", json!(2)),
        honoured("norm_topk_prob", json!(false)),
        honoured("routed_scaling_factor", json!(2.0)),
        honoured("num_nextn_predict_layers", json!(1)),
        honoured("n_group", json!(4)),
        honoured("use_qkv_bias", json!(true)),
        honoured("partial_rotary_factor", json!(0.5)),
        unchanged("rotary_dim", json!(16)),
        // No expert is shared.
        unchanged("moe_shared_expert_intermediate_size", json!(9)),
        refused("rotary_dim", json!(8)),
        refused("use_bias", json!(true)),
        honoured("norm_head", json!(true)),
        refused("use_sliding_window", json!(true)),
        refused("score_function", json!("tanh")),
        refused("num_experts", json!(null)),
        refused("moe_intermediate_size", json!(null)),
    ]
}

/// Returns the fields of Granite Swash, dense and with experts.
fn of_swash() -> Vec<Row> {
    vec![
        honoured("sliding_window", json!(9)),
        honoured("layer_types", json!(["full_attention", "full_attention"])),
        honoured("layer_rope_theta", json!([0, 77.0])),
        honoured("embedding_multiplier", json!(2.0)),
        honoured("attention_multiplier", json!(2.0)),
        honoured("residual_multiplier", json!(2.0)),
        honoured("logits_scaling", json!(2.0)),
        honoured("attention_bias", json!(true)),
        refused("layer_rope_theta", json!([1.0])),
        refused("layer_rope_theta", json!([-1.0, 1.0])),
    ]
}
