//! The fields that only some families have: the effect of a value that is not the default.
//! `fields_tests` has the fields of all families.

mod authors;
mod encoders;
mod falcon;
mod more;
mod newer;
mod newest;
mod states;

use serde_json::{Value, json};

use super::file::fields;
use super::{ConfigError, ModelConfig, kinds, latent_tests};
use crate::model::families::{FAMILIES, text_family};

/// The effect of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome {
    /// The config of the model changes.
    Honoured,
    /// An error names the field.
    Refused,
    /// It is the default.
    Unchanged,
}
use Outcome::{Honoured, Refused, Unchanged};

pub(super) type Row = (&'static str, Value, Outcome);

pub(super) fn honoured(field: &'static str, value: Value) -> Row {
    (field, value, Honoured)
}

pub(super) fn refused(field: &'static str, value: Value) -> Row {
    (field, value, Refused)
}

pub(super) fn unchanged(field: &'static str, value: Value) -> Row {
    (field, value, Unchanged)
}

/// Returns the fields of the families that `fields_tests` does not have.
fn rows(architecture: &str) -> Vec<Row> {
    let sizes = |names: [&'static str; 4]| {
        names.map(|name| honoured(name, if name.contains("layer") { json!(3) } else { json!(8) }))
    };
    match architecture.trim_end_matches("ForCausalLM").trim_end_matches("LMHeadModel") {
        "Llama" | "Mistral" | "Qwen2" | "Qwen3" => Vec::new(),
        "Apertus" => vec![
            honoured("attention_bias", json!(true)),
            honoured("hidden_act", json!("relu")),
            refused("hidden_act", json!("elu")),
        ],
        "Arcee" => vec![
            honoured("attention_bias", json!(true)),
            honoured("mlp_bias", json!(true)),
            honoured("hidden_act", json!("relu")),
        ],
        "Bloom" => vec![
            honoured("layer_norm_epsilon", json!(0.5)),
            honoured("seq_length", json!(99)),
            honoured("apply_residual_connection_post_layernorm", json!(true)),
            honoured("n_layer", json!(3)),
            honoured("n_head", json!(8)),
            unchanged("activation_function", json!("relu")),
        ],
        "Cohere" => vec![
            honoured("logit_scale", json!(2.0)),
            honoured("use_qk_norm", json!(true)),
            honoured("layer_norm_eps", json!(0.5)),
            honoured("attention_bias", json!(true)),
        ],
        "Cohere2" => vec![
            honoured("logit_scale", json!(2.0)),
            honoured("sliding_window", json!(9)),
            honoured("sliding_window_pattern", json!(2)),
            honoured("layer_types", json!(["full_attention", "sliding_attention"])),
        ],
        "Ernie4_5" => vec![honoured("use_bias", json!(true))],
        "Exaone4" => vec![
            honoured("sliding_window", json!(9)),
            honoured("sliding_window", json!(null)),
            honoured("sliding_window_pattern", json!(2)),
        ],
        "Falcon" => vec![
            honoured("multi_query", json!(false)),
            honoured("new_decoder_architecture", json!(true)),
            honoured("parallel_attn", json!(false)),
            honoured("bias", json!(true)),
            honoured("ffn_hidden_size", json!(99)),
            honoured("activation", json!("relu")),
            honoured("layer_norm_epsilon", json!(0.5)),
            honoured("alibi", json!(true)),
        ],
        "Gemma" => vec![
            honoured("attention_bias", json!(true)),
            honoured("hidden_act", json!("relu")),
            refused("use_bidirectional_attention", json!(true)),
        ],
        "Gemma2" | "Gemma3" => {
            let mut rows = vec![
                honoured("query_pre_attn_scalar", json!(7)),
                honoured("final_logit_softcapping", json!(7.0)),
                honoured("sliding_window", json!(9)),
                honoured("hidden_activation", json!("relu")),
                honoured("layer_types", json!(["full_attention", "sliding_attention"])),
            ];
            if architecture == "Gemma2ForCausalLM" {
                rows.push(honoured("attn_logit_softcapping", json!(7.0)));
                rows.push(refused("use_bidirectional_attention", json!(true)));
            } else {
                rows.push(honoured("use_bidirectional_attention", json!(true)));
            }
            rows
        }
        "Glm" | "Glm4" => vec![
            honoured("attention_bias", json!(false)),
            honoured("partial_rotary_factor", json!(1.0)),
            // HF `GlmConfig` has these for null.
            unchanged("eos_token_id", json!([151_329, 151_336, 151_338])),
            unchanged("eos_token_id", json!(null)),
            honoured("eos_token_id", json!(5)),
        ],
        "GPT2" => {
            let mut rows = vec![
                honoured("activation_function", json!("relu")),
                honoured("layer_norm_epsilon", json!(0.5)),
                honoured("scale_attn_weights", json!(false)),
                honoured("scale_attn_by_inverse_layer_idx", json!(true)),
                refused("add_cross_attention", json!(true)),
            ];
            rows.extend(sizes(["n_embd", "n_layer", "n_inner", "n_positions"]));
            rows
        }
        "GPTNeoX" => vec![
            honoured("use_parallel_residual", json!(false)),
            honoured("attention_bias", json!(false)),
            honoured("rotary_pct", json!(1.0)),
            honoured("rotary_emb_base", json!(77.0)),
            honoured("hidden_act", json!("relu")),
            honoured("layer_norm_eps", json!(0.5)),
        ],
        "Granite" => vec![
            honoured("embedding_multiplier", json!(2.0)),
            honoured("attention_multiplier", json!(2.0)),
            honoured("residual_multiplier", json!(2.0)),
            honoured("logits_scaling", json!(2.0)),
            honoured("mlp_bias", json!(true)),
        ],
        "HunYuanDenseV1" => vec![honoured(
            "rope_scaling",
            json!({ "type": "dynamic", "alpha": 9.0, "factor": 1.0 }),
        )],
        "InternLM2" => vec![honoured("bias", json!(true))],
        "InternLM3" => vec![honoured("qkv_bias", json!(true)), honoured("bias", json!(true))],
        "Mpt" => vec![
            honoured("attn_config", json!({ "clip_qkv": 2.0 })),
            honoured("attn_config", json!({ "softmax_scale": 2.0 })),
            honoured("attn_config", json!({ "alibi_bias_max": 4 })),
            refused("attn_config", json!({ "alibi": false })),
            refused("attn_config", json!({ "prefix_lm": true })),
            refused("attn_config", json!({ "qk_ln": true })),
            refused("attn_config", json!({ "attn_type": "multiquery_attention" })),
            unchanged("activation_function", json!("relu")),
            unchanged("no_bias", json!(false)),
            refused("expansion_ratio", json!(2)),
            refused("logit_scale", json!("inv_sqrt_d_model")),
        ],
        "Nemotron" => vec![
            honoured("attention_bias", json!(true)),
            honoured("mlp_bias", json!(true)),
            honoured("norm_eps", json!(0.5)),
            honoured("partial_rotary_factor", json!(1.0)),
            honoured("hidden_act", json!("relu")),
        ],
        "Olmo2" => vec![honoured("attention_bias", json!(true))],
        "Olmo3" => vec![
            honoured("sliding_window", json!(9)),
            honoured("layer_types", json!(["full_attention", "sliding_attention"])),
        ],
        "Phi3" => vec![
            honoured("sliding_window", json!(9)),
            honoured("partial_rotary_factor", json!(0.5)),
            refused("rope_scaling", json!({ "type": "yarn", "factor": 2.0 })),
        ],
        "SeedOss" => vec![
            honoured("attention_bias", json!(false)),
            honoured("attention_out_bias", json!(true)),
            honoured("mlp_bias", json!(true)),
        ],
        "SmolLM3" => vec![
            honoured("no_rope_layers", json!([0, 1])),
            honoured("no_rope_layer_interval", json!(2)),
            refused("no_rope_layers", json!([0])),
        ],
        "StableLm" => vec![
            honoured("use_qkv_bias", json!(true)),
            honoured("qk_layernorm", json!(true)),
            honoured("use_parallel_residual", json!(true)),
            honoured("partial_rotary_factor", json!(1.0)),
            honoured("layer_norm_eps", json!(0.5)),
        ],
        "Starcoder2" => vec![
            honoured("use_bias", json!(false)),
            honoured("sliding_window", json!(9)),
            honoured("norm_epsilon", json!(0.5)),
            honoured("hidden_act", json!("relu")),
        ],
        "Mixtral" | "GraniteMoe" => vec![
            honoured("num_local_experts", json!(5)),
            honoured("num_experts_per_tok", json!(3)),
            refused("num_experts_per_tok", json!(50)),
            refused("num_local_experts", json!(1_025)),
        ],
        "Qwen2Moe" => vec![
            honoured("num_experts", json!(9)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("shared_expert_intermediate_size", json!(8)),
            honoured("norm_topk_prob", json!(true)),
            honoured("decoder_sparse_step", json!(2)),
            honoured("mlp_only_layers", json!([1])),
            honoured("qkv_bias", json!(false)),
            honoured("use_sliding_window", json!(true)),
            honoured("num_experts", json!(0)),
        ],
        "Qwen3Moe" => vec![
            honoured("num_experts", json!(9)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("norm_topk_prob", json!(true)),
            honoured("mlp_only_layers", json!([1])),
            honoured("use_sliding_window", json!(true)),
            honoured("num_experts", json!(0)),
        ],
        "Olmoe" => vec![
            honoured("num_experts", json!(9)),
            honoured("num_local_experts", json!(9)),
            honoured("norm_topk_prob", json!(true)),
            honoured("clip_qkv", json!(2.0)),
        ],
        "Ernie4_5_Moe" => vec![
            honoured("moe_num_experts", json!(9)),
            honoured("moe_k", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("moe_num_shared_experts", json!(0)),
            honoured("moe_layer_start_index", json!(0)),
            honoured("moe_layer_end_index", json!(0)),
            honoured("moe_layer_interval", json!(3)),
            honoured("moe_norm_min", json!(0.5)),
        ],
        "Glm4Moe" => vec![
            honoured("n_routed_experts", json!(16)),
            honoured("num_local_experts", json!(16)),
            honoured("num_nextn_predict_layers", json!(0)),
            honoured("num_mtp_layers", json!(0)),
            unchanged("num_mtp_layers", json!(1)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("n_shared_experts", json!(2)),
            honoured("norm_topk_prob", json!(false)),
            honoured("routed_scaling_factor", json!(2.0)),
            honoured("n_group", json!(4)),
            honoured("use_qk_norm", json!(true)),
            honoured("first_k_dense_replace", json!(0)),
            refused("topk_group", json!(5)),
        ],
        "HunYuanMoEV1" => vec![
            honoured("num_experts", json!(9)),
            honoured("num_local_experts", json!(9)),
            honoured("num_experts", json!([2, 9])),
            honoured("moe_intermediate_size", json!([8, 16])),
            honoured("num_shared_expert", json!([1, 2])),
            honoured("attention_bias", json!(true)),
            refused("moe_topk", json!([1, 1, 1])),
            refused("moe_topk", json!([1, 50])),
        ],
        "DeepseekV2" | "DeepseekV3" | "DeepseekV32" | "Glm4MoeLite" | "GlmMoeDsa"
        | "LongcatFlash" | "MiniCPM3" | "Youtu" => latent_tests::rows(architecture),
        other => {
            let rows = more::rows(other).or_else(|| states::rows(other));
            let rows = rows.or_else(|| authors::rows(other)).or_else(|| newer::rows(other));
            rows.unwrap_or_else(|| panic!("no rows for {other}"))
        }
    }
}

pub(super) fn base(architecture: &str) -> Value {
    let mut config = plain_base(architecture);
    match architecture {
        // The field is the width of the scan. `expand` gives it otherwise.
        "MambaForCausalLM" | "FalconMambaForCausalLM" => config["intermediate_size"] = Value::Null,
        "Mamba2ForCausalLM" => config["num_heads"] = json!(8),
        "NemotronHForCausalLM" => config["layers_block_type"] = json!(["mamba", "mlp"]),
        // Periods of layers show in more layers than one period has.
        "BambaForCausalLM" => config["attn_layer_indices"] = json!([0]),
        "JambaForCausalLM" => config["num_hidden_layers"] = json!(14),
        "RecurrentGemmaForCausalLM" => config["num_hidden_layers"] = json!(3),
        _ => {}
    }
    config
}

fn plain_base(architecture: &str) -> Value {
    let mut config = json!({
        "architectures": [architecture], "vocab_size": 512, "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 4, "head_dim": 16, "max_position_embeddings": 1024,
    });
    for needed in [latent_tests::needed(architecture), authors::needed(architecture)] {
        for (field, value) in needed.as_object().into_iter().flatten() {
            config[field] = value.clone();
        }
    }
    if architecture == "Llama4ForCausalLM" {
        // One layer has rotary embeddings and an MLP, and one has experts.
        config["no_rope_layer_interval"] = json!(2);
        config["interleave_moe_layer_step"] = json!(2);
    }
    if architecture == "Gemma3nForCausalLM" {
        config["num_kv_shared_layers"] = json!(0);
    }
    if architecture == "Gemma4ForCausalLM" {
        // These fields count only with experts.
        config["num_experts"] = json!(8);
        config["num_experts_per_tok"] = json!(2);
        config["moe_intermediate_size"] = json!(8);
    }
    if ["GPTJForCausalLM", "CodeGenForCausalLM"].contains(&architecture) {
        config["rotary_dim"] = json!(16);
    }
    if architecture == "Dots1ForCausalLM" {
        // These fields have no default.
        config["num_experts"] = json!(8);
        config["num_experts_per_tok"] = json!(2);
        config["n_shared_experts"] = json!(1);
    }
    config
}

pub(super) fn read(config: &Value) -> Result<ModelConfig, ConfigError> {
    ModelConfig::of_source(&fields(config.clone()).into(), None)
}

#[test]
fn every_field_of_a_family_is_honoured_or_refused() {
    for family in FAMILIES {
        let architecture = family.architecture;
        let mut config = base(architecture);
        // Fields of other names replace the usual ones.
        for (alias, usual) in family.aliases {
            let value = config.as_object_mut().unwrap().remove(*usual);
            if let Some(value) = value {
                config[*alias] = value;
            }
        }
        let before = read(&config).unwrap_or_else(|error| panic!("{architecture}: {error}"));
        for (field, value, outcome) in rows(architecture) {
            let mut config = config.clone();
            config[field] = value.clone();
            match (outcome, read(&config)) {
                (Honoured, Ok(after)) => {
                    assert_ne!(after, before, "{architecture}: {field} {value}")
                }
                (Unchanged, Ok(after)) => {
                    assert_eq!(after, before, "{architecture}: {field} {value}");
                }
                (Refused, Err(error)) => {
                    let error = error.to_string();
                    assert!(error.contains(field), "{architecture}: {field}: {error}");
                }
                (outcome, after) => {
                    panic!("{architecture}: {field} {value}: {outcome:?}, {after:?}")
                }
            }
        }
    }
}

/// `playhouse models` names the mixers of a family. The program refuses a GPU by those of a model.
#[test]
fn the_mixers_of_a_family_are_those_of_its_models() {
    for family in FAMILIES {
        let architecture = family.architecture;
        // Periods of layers show in many layers.
        let mut long = base(architecture);
        long["num_hidden_layers"] = json!(14);
        let of_rows = rows(architecture).into_iter().map(|(field, value, _)| {
            let mut config = base(architecture);
            config[field] = value;
            config
        });
        // Without a list, all layers of LFM2 have attention. Other families refuse this one.
        let mut mixed = base(architecture);
        mixed["layer_types"] = json!(["conv", "full_attention"]);
        let configs = [base(architecture), long, mixed].into_iter().chain(of_rows);
        let mut found = Vec::new();
        for config in configs.filter_map(|config| read(&config).ok()) {
            for kind in kinds(&config.layers) {
                assert!(family.mixers.contains(&kind), "{architecture} has {kind:?}");
                found.push(kind);
            }
        }
        let has_all = family.mixers.iter().all(|kind| found.contains(kind));
        assert!(has_all, "{architecture} should have {:?}, and has {found:?}", family.mixers);
    }
}

/// Other names of an architecture give the config of its family.
#[test]
fn other_spellings_are_read_as_their_family() {
    for (name, model_type, same) in [
        ("LLaMAForCausalLM", "llama", "LlamaForCausalLM"),
        ("AquilaForCausalLM", "aquila", "LlamaForCausalLM"),
        ("AquilaModel", "aquila", "LlamaForCausalLM"),
        ("XverseForCausalLM", "xverse", "LlamaForCausalLM"),
        ("MPTForCausalLM", "mpt", "MptForCausalLM"),
        ("PhiMoEForCausalLM", "phimoe", "PhimoeForCausalLM"),
        ("ExaoneMoEForCausalLM", "exaone_moe", "ExaoneMoeForCausalLM"),
        ("StableLMEpochForCausalLM", "stablelm_epoch", "StableLmForCausalLM"),
        ("Ernie4_5_ForCausalLM", "ernie4_5", "Ernie4_5ForCausalLM"),
        ("RWForCausalLM", "RefinedWebModel", "FalconForCausalLM"),
        ("TeleChat3ForCausalLM", "telechat3", "LlamaForCausalLM"),
        ("MiMoV2ForCausalLM", "mimo_v2", "MiMoV2FlashForCausalLM"),
        ("ChatGLMModel", "chatglm", "ChatGLMForConditionalGeneration"),
        ("MiniMaxM1ForCausalLM", "minimax_m1", "MiniMaxText01ForCausalLM"),
        ("Glm4MoeForCausalLM", "sarvam_moe", "SarvamMoEForCausalLM"),
        ("LlamaForCausalLM", "internlm3", "InternLM3ForCausalLM"),
        ("LlamaForCausalLM", "exaone", "ExaoneForCausalLM"),
    ] {
        let mut other = base(name);
        other["model_type"] = json!(model_type);
        // The code in such a folder is not run, as the weights are those of the family.
        other["auto_map"] = json!({ "AutoModelForCausalLM": "modeling.Model" });
        let mut own = base(same);
        if same == "MptForCausalLM" {
            for (alias, usual) in text_family(same).unwrap().aliases {
                for config in [&mut other, &mut own] {
                    let value = config.as_object_mut().unwrap().remove(*usual);
                    config[*alias] = value.unwrap_or_default();
                }
            }
        }
        assert_eq!(read(&other).unwrap(), read(&own).unwrap(), "{name}");
        other["model_type"] = json!("gemma");
        assert!(read(&other).unwrap_err().to_string().contains("model_type"), "{name}");
    }
}

/// Each number is accepted alone.
#[test]
fn sizes_that_no_model_has_are_refused_before_rows_are_listed() {
    for (field, value) in [("num_attention_heads", 4_097), ("head_dim", 1 << 24)] {
        let mut config = base("BloomForCausalLM");
        config["num_key_value_heads"] = Value::Null;
        config[field] = json!(value);
        let error = read(&config).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}
