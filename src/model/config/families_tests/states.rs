//! The fields of families that have layers with a state.

use serde_json::{Value, json};

use super::Outcome::{Honoured, Refused, Unchanged};
use super::{ModelConfig, Row, base, fields};

/// Returns the fields of a family, by its architecture without its end.
pub(super) fn rows(architecture: &str) -> Option<Vec<Row>> {
    let honoured = |field, value: Value| (field, value, Honoured);
    let refused = |field, value: Value| (field, value, Refused);
    Some(match architecture {
        "Mamba" => mamba_rows(),
        "RecurrentGemma" => vec![
            honoured("attention_window_size", json!(9)),
            honoured("block_types", json!(["recurrent"])),
            honoured("block_types", json!(["attention", "recurrent"])),
            honoured("lru_width", json!(32)),
            honoured("conv1d_width", json!(3)),
            honoured("logits_soft_cap", json!(7.0)),
            honoured("hidden_activation", json!("relu")),
            honoured("partial_rotary_factor", json!(1.0)),
            honoured("attention_bias", json!(true)),
            honoured("num_key_value_heads", json!(1)),
            refused("block_types", json!(["mamba"])),
            refused("block_types", json!([])),
            refused("lru_width", json!(30)),
            refused("conv1d_width", json!(2_000)),
            refused("embeddings_scale_by_sqrt_dim", json!(false)),
            refused("rope_parameters", json!({ "rope_type": "linear", "factor": 2.0 })),
        ],
        "FalconMamba" => {
            let mut rows = mamba_rows();
            rows.push(honoured("mixer_rms_eps", json!(0.5)));
            rows
        }
        "Mamba2" => vec![
            honoured("state_size", json!(8)),
            honoured("n_groups", json!(2)),
            honoured("conv_kernel", json!(3)),
            honoured("use_bias", json!(true)),
            honoured("use_conv_bias", json!(false)),
            honoured("hidden_act", json!("gelu")),
            honoured("time_step_limit", json!([0.1, 0.5])),
            honoured("time_step_limit", json!([0.1, {"__float__": "Infinity"}])),
            honoured("layer_norm_epsilon", json!(0.5)),
            refused("hidden_act", json!("xielu")),
            refused("time_step_limit", json!([0.5, 0.1])),
            refused("n_groups", json!(3)),
            refused("num_heads", json!(16)),
            refused("expand", json!(1e-9)),
        ],
        "Jamba" => vec![
            honoured("mamba_d_state", json!(8)),
            honoured("mamba_d_conv", json!(3)),
            honoured("mamba_expand", json!(3)),
            honoured("mamba_dt_rank", json!(7)),
            honoured("mamba_conv_bias", json!(false)),
            honoured("mamba_proj_bias", json!(true)),
            honoured("attn_layer_offset", json!(1)),
            honoured("attn_layer_period", json!(5)),
            honoured("expert_layer_offset", json!(0)),
            honoured("expert_layer_period", json!(3)),
            honoured("num_experts", json!(1)),
            honoured("num_local_experts", json!(1)),
            honoured("num_experts_per_tok", json!(3)),
            refused("attn_layer_offset", json!(8)),
            refused("expert_layer_offset", json!(2)),
        ],
        "Bamba" => {
            let mut rows = mamba2_rows();
            rows.extend([
                honoured("attn_layer_indices", json!([1])),
                honoured("attention_bias", json!(true)),
                honoured("mlp_bias", json!(true)),
                honoured("rms_norm_eps", json!(0.5)),
            ]);
            rows
        }
        "GraniteMoeHybrid" => {
            let mut rows = mamba2_rows();
            rows.extend([
                honoured("layer_types", json!(["mamba", "attention"])),
                honoured("layers_block_type", json!(["attention", "mamba"])),
                honoured("num_local_experts", json!(0)),
                honoured("num_experts_per_tok", json!(3)),
                honoured("shared_intermediate_size", json!(8)),
                honoured("residual_multiplier", json!(2.0)),
                honoured("embedding_multiplier", json!(2.0)),
                honoured("logits_scaling", json!(2.0)),
                refused("layer_types", json!(["mamba", "moe"])),
                refused("layer_types", json!(["mamba"])),
                refused("position_embedding_type", json!("alibi")),
            ]);
            rows
        }
        "FalconH1" => {
            let mut rows = mamba2_rows();
            rows.retain(|(field, ..)| *field != "mamba_expand");
            rows.extend([
                honoured("mamba_d_ssm", json!(512)),
                honoured("mamba_d_ssm", json!(null)),
                honoured("mamba_rms_norm", json!(true)),
                honoured("projectors_bias", json!(true)),
                honoured("key_multiplier", json!(2.0)),
                honoured("attention_in_multiplier", json!(2.0)),
                honoured("attention_out_multiplier", json!(2.0)),
                honoured("ssm_in_multiplier", json!(2.0)),
                honoured("ssm_out_multiplier", json!(2.0)),
                honoured("ssm_multipliers", json!([1, 2, 1, 1, 1])),
                honoured("mlp_multipliers", json!([1, 2])),
                honoured("embedding_multiplier", json!(2.0)),
                honoured("lm_head_multiplier", json!(2.0)),
                honoured("attention_bias", json!(true)),
                honoured("mlp_bias", json!(true)),
                refused("ssm_multipliers", json!([1, 2])),
            ]);
            rows
        }
        "NemotronH" => vec![
            honoured("layers_block_type", json!(["mlp", "attention"])),
            honoured("mamba_num_heads", json!(64)),
            honoured("mamba_head_dim", json!(8)),
            honoured("ssm_state_size", json!(8)),
            honoured("n_groups", json!(4)),
            honoured("conv_kernel", json!(3)),
            honoured("use_bias", json!(true)),
            honoured("use_conv_bias", json!(false)),
            honoured("mlp_bias", json!(true)),
            honoured("mamba_hidden_act", json!("gelu")),
            honoured("mlp_hidden_act", json!("gelu")),
            honoured("time_step_min", json!(0.5)),
            honoured("layer_norm_epsilon", json!(0.5)),
            honoured("layers_block_type", json!(["mamba", "moe"])),
            refused("layers_block_type", json!(["mamba", "conv"])),
            ("attention_bias", json!(true), Unchanged),
            refused("tie_word_embeddings", json!(true)),
            refused("time_step_limit", json!([0.1, 0.2])),
        ],
        "Qwen4Exp" => qwen4_exp_rows(),
        // `layer::recurrent::tests` has their fields, from recorded models.
        "Qwen3Next" | "Qwen3_5" | "Qwen3_5Moe" | "Lfm2" | "Lfm2Moe" | "MiniMax" => Vec::new(),
        _ => return None,
    })
}

/// The fields of Qwen4-Exp. The second layer has attention.
fn qwen4_exp_rows() -> Vec<Row> {
    vec![
        ("hc_count", json!(2), Honoured),
        ("hc_lowrank", json!(8), Honoured),
        ("ple_layer_ids", json!(null), Honoured),
        ("ple_embed_dim", json!(32), Honoured),
        ("ple_conv_kernel_size", json!(2), Honoured),
        ("ngram_size", json!(2), Honoured),
        ("heads_per_ngram", json!(4), Honoured),
        ("ngram_vocab_size_base", json!(98), Honoured),
        ("make_ngram_vocab_size_divisible_by", json!(9), Honoured),
        ("seed", json!(-5), Honoured),
        ("split_ngram_parts", json!(3), Honoured),
        ("eos_token_id", json!([3, 2]), Honoured),
        ("indexer_budget", json!(72), Honoured),
        ("indexer_compress_ratio", json!(4), Honoured),
        ("output_gate_type", json!("sigmoid"), Honoured),
        ("layer_types", json!(["linear_attention", "linear_attention"]), Honoured),
        ("partial_rotary_factor", json!(0.5), Honoured),
        ("attention_bias", json!(true), Honoured),
        ("linear_num_key_heads", json!(4), Honoured),
        ("linear_conv_kernel_dim", json!(2), Honoured),
        ("num_experts", json!(16), Honoured),
        ("num_experts_per_tok", json!(3), Honoured),
        ("moe_intermediate_size", json!(8), Honoured),
        ("shared_expert_intermediate_size", json!(8), Honoured),
        ("norm_topk_prob", json!(false), Honoured),
        ("rms_norm_eps", json!(0.5), Honoured),
        ("layer_types", json!(["linear_attention", "indexed_attention"]), Unchanged),
        ("layer_types", json!(["linear_attention", "qwen_sparse_attention"]), Unchanged),
        ("ple_layer_ids", json!([1, 1]), Unchanged),
        ("output_gate_type", json!("swish"), Unchanged),
        // The indexer is not read.
        ("indexer_n_heads", json!(4), Unchanged),
        ("indexer_head_dim", json!(32), Unchanged),
        ("hc_count", json!(1), Refused),
        ("hc_count", json!(65), Refused),
        ("ple_layer_ids", json!([2]), Refused),
        ("ple_layer_ids", json!([3]), Refused),
        ("ngram_size", json!(1), Refused),
        ("ple_embed_dim", json!(30), Refused),
        ("eos_token_id", json!(null), Refused),
        ("indexer_kv_heads", json!(2), Refused),
        ("indexer_budget", json!(60), Refused),
        ("indexer_head_dim", json!(null), Refused),
        ("output_gate_type", json!("gelu"), Refused),
        ("hidden_act", json!("gelu"), Refused),
        ("use_sliding_window", json!(true), Refused),
        ("layer_types", json!(["linear_attention"]), Refused),
    ]
}

/// A context of more tokens than the indexer chooses is refused, and never the default. The tokens
/// behind the last whole block are always chosen.
#[test]
fn contexts_are_bounded_by_the_choice_of_blocks() {
    let read = |changes: Value, requested| {
        let mut config = base("Qwen4ExpForCausalLM");
        for (field, value) in changes.as_object().unwrap() {
            config[field] = value.clone();
        }
        let config = ModelConfig::of_source(&fields(config).into(), requested);
        config.map(|config| config.max_model_len).map_err(|error| error.to_string())
    };
    assert_eq!(read(json!({}), None), Ok(71));
    assert_eq!(read(json!({}), Some(40)), Ok(40));
    assert!(read(json!({}), Some(72)).unwrap_err().contains("71"));
    let without = json!({
        "indexer_n_heads": null, "indexer_kv_heads": null, "indexer_head_dim": null,
        "indexer_budget": null, "indexer_compress_ratio": null,
    });
    assert_eq!(read(without, None), Ok(1_024));
}

/// The fields of Mamba.
fn mamba_rows() -> Vec<Row> {
    vec![
        ("state_size", json!(8), Honoured),
        ("conv_kernel", json!(3), Honoured),
        ("expand", json!(3), Honoured),
        ("intermediate_size", json!(96), Honoured),
        ("time_step_rank", json!(9), Honoured),
        ("time_step_rank", json!("auto"), Unchanged),
        ("use_bias", json!(true), Honoured),
        ("use_conv_bias", json!(false), Honoured),
        ("hidden_act", json!("gelu"), Honoured),
        ("hidden_act", json!("xielu"), Refused),
        ("layer_norm_epsilon", json!(0.5), Honoured),
        ("tie_word_embeddings", json!(false), Honoured),
    ]
}

/// The fields of Mamba 2 in hybrids.
fn mamba2_rows() -> Vec<Row> {
    vec![
        ("mamba_n_heads", json!(64), Honoured),
        ("mamba_n_groups", json!(2), Honoured),
        ("mamba_d_state", json!(8), Honoured),
        ("mamba_d_conv", json!(3), Honoured),
        ("mamba_expand", json!(4), Honoured),
        ("mamba_conv_bias", json!(false), Honoured),
        ("mamba_proj_bias", json!(true), Honoured),
        ("mamba_d_head", json!("auto"), Unchanged),
        ("time_step_limit", json!([0.1, 0.5]), Honoured),
        ("mamba_n_groups", json!(3), Refused),
    ]
}
