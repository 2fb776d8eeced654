//! The fields of the families that came last.

use serde_json::{Value, json};

use super::{Row, base, honoured, latent_tests, newest, read, refused, unchanged};
use crate::weights::UnitVectors;

/// Returns the fields that a config of `architecture` needs for each row to have an effect.
pub(super) fn needed(architecture: &str) -> Value {
    match architecture {
        "MiMoV2FlashForCausalLM" | "MiMoV2ForCausalLM" => {
            json!({ "num_key_value_heads": 2, "v_head_dim": 8 })
        }
        "BailingMoeV3ForCausalLM" => json!({
            "layer_types": ["full_attention", "linear_attention"], "first_k_dense_replace": 0,
        }),
        "MiniMaxText01ForCausalLM" | "MiniMaxM1ForCausalLM" => json!({ "postnorm": true }),
        "BailingMoeV2_5ForCausalLM" => json!({
            "layer_group_size": 2, "num_experts": 8, "num_experts_per_tok": 2,
            "moe_intermediate_size": 8,
        }),
        "Zamba2ForCausalLM" => json!({ "layers_block_type": ["mamba", "hybrid"] }),
        "Step3p5ForCausalLM" => json!({
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
            "moe_layers_enum": "1,2", "sliding_window": 8, "rope_theta": [500.0, 100.0, 100.0],
        }),
        "Step3TextForCausalLM" => json!({ "num_key_value_heads": 1, "moe_layers_enum": "1" }),
        "NemotronHPuzzleForCausalLM" => json!({
            "block_configs": [{ "block_type": "mamba" }, { "block_type": "moe" }],
        }),
        "Qwen4ExpForCausalLM" => json!({
            "layer_types": ["linear_attention", "full_attention"], "ple_layer_ids": [1],
            "heads_per_ngram": 2, "ngram_vocab_size_base": 90, "eos_token_id": 2,
            "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16,
            "indexer_budget": 64, "indexer_compress_ratio": 8,
        }),
        "KimiLinearForCausalLM" => {
            json!({ "layer_types": ["full_attention", "linear_attention"] })
        }
        "OuroForCausalLM" => json!({ "use_sliding_window": true, "max_window_layers": 1 }),
        "Rnj1ForCausalLM" => {
            json!({ "layer_types": ["chunked_attention", "full_attention"] })
        }
        "SolarForCausalLM" => {
            json!({ "bskcn_1": [0], "bskcn_2": [], "bskcn_3": [1], "bskcn_4": [] })
        }
        "TeleFLMForCausalLM" => json!({
            "use_mup": true, "input_mult": 2.0, "output_mult": 3.0, "mup_scale_factor": 4.0,
        }),
        other => newest::needed(other),
    }
}

/// vLLM tells the models of Baichuan apart in this way.
#[test]
fn the_sizes_of_baichuan_tell_its_models_apart() {
    let of = |class: &str, hidden_size: usize, vocab_size: usize| {
        let mut config = base("BaichuanForCausalLM");
        config["architectures"] = json!([class]);
        config["hidden_size"] = json!(hidden_size);
        config["vocab_size"] = json!(vocab_size);
        let config = read(&config).unwrap();
        let attention = config.layers[1].mixer.attention().unwrap();
        assert_ne!(attention.rope.is_some(), attention.alibi.is_some());
        (attention.rope.is_some(), config.unit_head)
    };
    assert_eq!(of("BaiChuanForCausalLM", 64, 512), (true, None));
    assert_eq!(of("BaichuanForCausalLM", 5_120, 64_000), (false, None));
    assert_eq!(of("BaichuanForCausalLM", 4_096, 125_696), (true, Some(UnitVectors::Rows)));
    assert_eq!(of("BaichuanForCausalLM", 5_120, 125_696), (false, Some(UnitVectors::Rows)));
    let mut tied = base("BaichuanForCausalLM");
    (tied["vocab_size"], tied["tie_word_embeddings"]) = (json!(125_696), json!(true));
    assert!(read(&tied).unwrap_err().to_string().contains("tie_word_embeddings"));
}

/// The published model of Solar Pro has 64 layers, and the lists that are the defaults here.
#[test]
fn layers_of_solar_skip_to_later_ones() {
    let mut config = base("SolarForCausalLM");
    let fields = config.as_object_mut().unwrap();
    fields.retain(|field, _| !field.starts_with("bskcn"));
    fields.insert("num_hidden_layers".to_owned(), json!(64));
    let skips = read(&config).unwrap().skips;
    let layers: Vec<_> = skips.iter().map(|skip| (skip.from, skip.layer)).collect();
    assert_eq!(layers, [(12, 16), (20, 24), (32, 36), (44, 48), (20, 28), (32, 40)]);
    assert!(skips.iter().all(|skip| skip.weight == 0.8));
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
            refused("expert_swiglu_limit_list", json!([null, 7.0])),
            refused("share_expert_swiglu_limit_list", json!([7.0, 0])),
            unchanged("expert_swiglu_limit_list", json!([0.0, null])),
            refused("rope_interleave", json!(false)),
            refused("tie_word_embeddings", json!(true)),
            refused("layer_types", json!(["full_attention", "conv"])),
        ],
        "MiniMaxText01" => vec![
            honoured("attn_type_list", json!([0, 1])),
            unchanged("attn_type_list", json!([1, 1])),
            honoured("layernorm_full_attention_alpha", json!(2.0)),
            honoured("layernorm_full_attention_beta", json!(2.0)),
            honoured("layernorm_linear_attention_alpha", json!(2.0)),
            honoured("layernorm_linear_attention_beta", json!(2.0)),
            honoured("layernorm_mlp_alpha", json!(2.0)),
            honoured("layernorm_mlp_beta", json!(2.0)),
            honoured("num_local_experts", json!(5)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("rotary_dim", json!(8)),
            honoured("rms_norm_eps", json!(0.5)),
            unchanged("shared_intermediate_size", json!(0)),
            refused("attn_type_list", json!([0])),
            refused("attn_type_list", json!([0, 2])),
            refused("postnorm", json!(false)),
            refused("shared_intermediate_size", json!(8)),
            refused("num_attention_heads", json!(12)),
        ],
        "BailingMoeV2_5" => vec![
            honoured("layer_group_size", json!(1)),
            unchanged("layer_types", json!(["linear_attention", "full_attention"])),
            honoured("q_lora_rank", json!(24)),
            honoured("kv_lora_rank", json!(24)),
            honoured("head_dim", json!(8)),
            honoured("use_qkv_bias", json!(true)),
            honoured("use_qk_norm", json!(true)),
            honoured("linear_silu", json!(true)),
            honoured("use_linear_silu", json!(true)),
            honoured("linear_rope", json!(false)),
            honoured("group_norm_size", json!(4)),
            honoured("partial_rotary_factor", json!(0.5)),
            honoured("rope_theta", json!(77.0)),
            honoured("rms_norm_eps", json!(0.5)),
            honoured("num_experts", json!(16)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(12)),
            honoured("num_shared_experts", json!(2)),
            honoured("norm_topk_prob", json!(false)),
            honoured("routed_scaling_factor", json!(7.0)),
            honoured("first_k_dense_replace", json!(1)),
            honoured("n_group", json!(4)),
            honoured("score_function", json!("sigmoid")),
            honoured("num_nextn_predict_layers", json!(1)),
            // Each head has its own key.
            unchanged("num_key_value_heads", json!(2)),
            refused("layer_group_size", json!(3)),
            refused("group_norm_size", json!(5)),
            refused("num_attention_heads", json!(6)),
            refused("rope_scaling", json!({ "type": "yarn", "factor": 4.0 })),
            refused("use_bias", json!(true)),
            refused("moe_router_enable_expert_bias", json!(true)),
            refused("tie_word_embeddings", json!(true)),
        ],
        "Zamba2" => vec![
            honoured("layers_block_type", json!(["hybrid", "mamba"])),
            unchanged("layers_block_type", json!(["linear_attention", "hybrid"])),
            honoured("n_mamba_heads", json!(4)),
            honoured("mamba_d_state", json!(8)),
            honoured("mamba_d_conv", json!(3)),
            honoured("mamba_expand", json!(4)),
            honoured("mamba_ngroups", json!(2)),
            honoured("time_step_min", json!(0.5)),
            honoured("add_bias_linear", json!(true)),
            honoured("hidden_act", json!("relu")),
            honoured("intermediate_size", json!(8)),
            honoured("num_mem_blocks", json!(2)),
            honoured("adapter_rank", json!(8)),
            honoured("use_shared_attention_adapter", json!(true)),
            honoured("use_mem_rope", json!(true)),
            honoured("rms_norm_eps", json!(0.5)),
            refused("tie_word_embeddings", json!(false)),
            refused("layers_block_type", json!(["mamba"])),
            refused("layers_block_type", json!(["mamba", "conv"])),
            refused("num_attention_heads", json!(6)),
            refused("num_key_value_heads", json!(2)),
            refused("mamba_ngroups", json!(3)),
            refused("use_conv_bias", json!(false)),
            refused("use_long_context", json!(true)),
        ],
        "Step3p5" => vec![
            honoured("layer_types", json!(["sliding_attention", "full_attention"])),
            honoured("sliding_window", json!(9)),
            honoured("rope_theta", json!(77.0)),
            honoured("partial_rotary_factors", json!([0.5, 1.0])),
            honoured("rope_scaling", json!({ "rope_type": "linear", "factor": 2.0 })),
            honoured("num_sliding_attention_heads", json!(8)),
            honoured("attention_other_setting", json!({ "num_attention_heads": 8 })),
            honoured("query_pre_attn_scalar", json!(7)),
            honoured("moe_layers_enum", json!([0])),
            honoured("mlp_layer_types", json!(["sparse", "sparse"])),
            honoured("moe_num_experts", json!(16)),
            honoured("moe_top_k", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("share_expert_dim", json!(8)),
            honoured("norm_expert_weight", json!(false)),
            honoured("moe_router_scaling_factor", json!(3.0)),
            honoured("num_nextn_predict_layers", json!(1)),
            honoured("swiglu_limits", json!([0.0, 7.0, 0.0])),
            honoured("swiglu_limits_shared", json!([16.0, null])),
            // Both classes have SiLU.
            unchanged("hidden_act", json!("gelu")),
            unchanged("swiglu_limits", json!([0.0, 0.0])),
            unchanged("use_rope_layers", json!([])),
            refused("layer_types", json!(["full_attention"])),
            refused("sliding_window", json!(null)),
            refused("rope_theta", json!([500.0])),
            refused("num_sliding_attention_heads", json!(6)),
            refused("attention_other_setting", json!({ "num_attention_groups": 2 })),
            refused("moe_layers_enum", json!("a")),
            refused("swiglu_limits", json!([0.0])),
            refused("swiglu_limits_shared", json!([0.5, 0.5])),
            refused("use_rope_layers", json!([false, true])),
            refused("use_head_wise_attn_gate", json!(false)),
            refused("use_moe_router_bias", json!(false)),
            refused("moe_router_activation", json!("softmax")),
            refused("attention_bias", json!(true)),
            refused("mlp_bias", json!(true)),
        ],
        "Step3Text" => vec![
            honoured("share_q_dim", json!(24)),
            honoured("moe_layers_enum", json!("0, 1")),
            honoured("moe_layers_enum", json!([0])),
            honoured("moe_num_experts", json!(16)),
            honoured("moe_top_k", json!(2)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("share_expert_dim", json!(8)),
            honoured("norm_expert_weight", json!(true)),
            honoured("rope_theta", json!(77.0)),
            honoured("max_position_embedding", json!(99)),
            refused("share_q_dim", json!(0)),
            refused("num_attention_groups", json!(2)),
            refused("moe_layers_enum", json!("1;2")),
            refused("attention_bias", json!(true)),
            refused("mlp_bias", json!(true)),
        ],
        "NemotronHPuzzle" => {
            let second = |block: Value| json!([{ "block_type": "mamba" }, block]);
            let moe = |field: &str, value: Value| {
                ("block_configs", second(json!({ "block_type": "moe", field: value })))
            };
            let is_honoured = |(field, value)| honoured(field, value);
            let is_refused = |(field, value)| refused(field, value);
            let attention = |window| json!({ "block_type": "attention", "sliding_window": window });
            vec![
                honoured("block_configs", second(attention(json!(null)))),
                honoured("block_configs", second(attention(json!(9)))),
                honoured(
                    "block_configs",
                    second(json!({ "block_type": "mlp", "intermediate_size": 8 })),
                ),
                honoured(
                    "block_configs",
                    json!([
                        { "block_type": "mamba", "ssm_state_size": 8 },
                        { "block_type": "moe" },
                    ]),
                ),
                is_honoured(moe("n_routed_experts", json!(16))),
                is_honoured(moe("num_experts_per_tok", json!(3))),
                is_honoured(moe("moe_intermediate_size", json!(8))),
                is_honoured(moe("moe_shared_expert_intermediate_size", json!(8))),
                is_honoured(moe("moe_latent_size", json!(8))),
                is_honoured(moe("routed_scaling_factor", json!(2.0))),
                is_honoured(moe("norm_topk_prob", json!(false))),
                unchanged("block_configs", moe("moe_latent_size", json!(null)).1),
                is_refused(moe("q_indexer_dim", json!(8))),
                refused("block_configs", json!([])),
                refused("block_configs", second(json!({ "block_type": "conv" }))),
                refused(
                    "block_configs",
                    json!([
                        { "block_type": "mamba", "ssm_state_size": 8 },
                        { "block_type": "mamba", "ssm_state_size": 16 },
                    ]),
                ),
                refused("sliding_window", json!(9)),
                refused("tie_word_embeddings", json!(true)),
            ]
        }
        "BitNet" => vec![
            honoured("attention_bias", json!(true)),
            honoured("hidden_act", json!("silu")),
            unchanged("mlp_bias", json!(true)),
        ],
        "Laguna" => vec![
            honoured("gating", json!("per-element")),
            unchanged("gating", json!("per-head")),
            honoured("num_attention_heads_per_layer", json!([8, 4])),
            honoured("layer_types", json!(["full_attention", "sliding_attention"])),
            honoured("rope_parameters", json!({ "full_attention": { "rope_theta": 77.0 } })),
            honoured("attention_bias", json!(true)),
            honoured("num_experts", json!(16)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("shared_expert_intermediate_size", json!(8)),
            honoured("moe_routed_scaling_factor", json!(2.0)),
            honoured("mlp_layer_types", json!(["sparse", "dense"])),
            // No layer has a window by default.
            unchanged("sliding_window", json!(9)),
            refused("gating", json!(false)),
            refused("num_attention_heads_per_layer", json!([8])),
            refused("num_attention_heads_per_layer", json!([6, 4])),
            refused("moe_router_logit_softcapping", json!(3.0)),
            refused("moe_apply_router_weight_on_input", json!(true)),
        ],
        "Baichuan" => vec![
            honoured("model_max_length", json!(99)),
            honoured("hidden_act", json!("relu")),
            honoured("architectures", json!(["BaiChuanForCausalLM"])),
            // These models have ALiBi, and no biases.
            unchanged("rope_theta", json!(77.0)),
            unchanged("attention_bias", json!(true)),
        ],
        "Nanbeige" => vec![
            honoured("num_loops", json!(2)),
            honoured("skip_loop_final_norm", json!(true)),
            honoured("attention_bias", json!(true)),
            unchanged("num_loops", json!(null)),
            unchanged("loop_share_kv", json!(false)),
            unchanged("loop_middle_layers", json!([])),
            refused("num_loops", json!(0)),
            refused("num_loops", json!(3_000)),
            unchanged("loop_loss_weights", json!([])),
            refused("loop_loss_weights", json!([0.5])),
            refused("loop_share_kv", json!(true)),
            refused("loop_middle_layers", json!([1])),
            refused("emb_neighbor_num", json!(4)),
            refused("qk_layernorm", json!(true)),
            refused("enable_mhc", json!(true)),
        ],
        "Ouro" => vec![
            honoured("total_ut_steps", json!(2)),
            honoured("sliding_window", json!(9)),
            unchanged("total_ut_steps", json!(4)),
            unchanged("early_exit_threshold", json!(1.0)),
            unchanged("attention_bias", json!(true)),
            refused("total_ut_steps", json!(3_000)),
            refused("early_exit_threshold", json!(0.5)),
        ],
        "Rnj1" => vec![
            honoured("sliding_window", json!(9)),
            honoured("layer_types", json!(["full_attention", "full_attention"])),
            honoured("query_pre_attn_scalar", json!(7)),
            honoured("final_logit_softcapping", json!(7.0)),
            honoured("hidden_activation", json!("relu")),
            honoured("attention_bias", json!(true)),
            honoured(
                "rope_parameters",
                json!({
                    "full_attention": { "rope_theta": 7.0 },
                    "chunked_attention": { "rope_theta": 9.0 },
                }),
            ),
            refused("layer_types", json!(null)),
            refused("layer_types", json!(["full_attention"])),
            refused("layer_types", json!(["full_attention", "sliding_attention"])),
            refused("sliding_window", json!(1)),
            refused("use_bidirectional_attention", json!(true)),
        ],
        "Solar" => vec![
            honoured("attention_bias", json!(true)),
            honoured("bias", json!(true)),
            honoured("mlp_bias", json!(true)),
            honoured("logit_scale", json!(2.0)),
            honoured("bskcn_1", json!([1])),
            honoured("bskcn_3", json!([])),
            honoured("bskcn_tv", json!([0.9, 0.5])),
            // The first number is for training. There is no eighth layer.
            unchanged("bskcn_tv", json!([0.1, 0.8])),
            unchanged("bskcn_3", json!([1, 7])),
            unchanged("sliding_window", json!(9)),
            refused("bskcn_4", json!([1])),
            refused("bskcn_1", json!("0")),
            refused("bskcn_tv", json!([0.8])),
            refused("bskcn_tv", json!([0.8, 2.0])),
        ],
        "TeleChat2" => vec![
            honoured("n_embed", json!(8)),
            honoured("n_layer", json!(3)),
            honoured("n_head", json!(8)),
            honoured("num_key_value_heads", json!(2)),
            honoured("ffn_hidden_size", json!(8)),
            honoured("layer_norm_epsilon", json!(0.5)),
            honoured("seq_length", json!(99)),
            unchanged("hidden_act", json!("relu")),
            unchanged("attention_bias", json!(true)),
            unchanged("mlp_bias", json!(true)),
            refused("apply_residual_connection_post_layernorm", json!(true)),
            refused("embed_layernorm", json!(true)),
        ],
        "TeleFLM" => vec![
            honoured("use_mup", json!(false)),
            honoured("input_mult", json!(7.0)),
            honoured("output_mult", json!(7.0)),
            honoured("mup_scale_factor", json!(7.0)),
            honoured("attention_bias", json!(true)),
            refused("input_mult", json!(null)),
            refused("mup_scale_factor", json!(0)),
        ],
        other => return newest::rows(other),
    })
}
