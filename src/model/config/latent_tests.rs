//! The fields of families with latent attention.

use serde_json::{Value, json};

use super::families_tests::{Row, base, honoured, read, refused, unchanged};
use super::file::fields;
use super::{FeedForward, LatentConfig, Mixer, ModelConfig};

/// Returns the fields that a config of `architecture` needs for each row to have an effect.
pub(super) fn needed(architecture: &str) -> Value {
    match architecture {
        "DeepseekV2ForCausalLM" => json!({ "num_experts_per_tok": 6 }),
        "DeepseekV3ForCausalLM" | "DeepseekV32ForCausalLM" | "GlmMoeDsaForCausalLM" => {
            json!({ "first_k_dense_replace": 0 })
        }
        // It follows from `qk_rope_head_dim`.
        "LongcatFlashForCausalLM" => json!({ "head_dim": null }),
        _ => json!({}),
    }
}

/// Returns the fields of `architecture` that most families do not have.
pub(super) fn rows(architecture: &str) -> Vec<Row> {
    let mut rows = vec![
        honoured("q_lora_rank", json!(24)),
        honoured("q_lora_rank", json!(null)),
        honoured("kv_lora_rank", json!(24)),
        honoured("qk_nope_head_dim", json!(12)),
        honoured("qk_rope_head_dim", json!(12)),
        honoured("v_head_dim", json!(12)),
        honoured("attention_bias", json!(true)),
        honoured("hidden_act", json!("gelu")),
        honoured("rope_scaling", scaled(0.7)),
        honoured("rope_theta", json!(77.0)),
        refused("kv_lora_rank", json!(25)),
        refused("qk_rope_head_dim", json!(7)),
        refused("num_key_value_heads", json!(2)),
        refused("partial_rotary_factor", json!(0.5)),
        refused("layer_types", json!(["full_attention", "sliding_attention"])),
    ];
    let experts = || {
        vec![
            honoured("n_routed_experts", json!(32)),
            honoured("num_experts_per_tok", json!(3)),
            honoured("moe_intermediate_size", json!(8)),
            honoured("n_shared_experts", json!(3)),
            honoured("n_shared_experts", json!(null)),
            honoured("routed_scaling_factor", json!(7.0)),
            refused("num_experts_per_tok", json!(500)),
            refused("n_routed_experts", json!(1_025)),
        ]
    };
    let of_v3 = || {
        let mut rows = experts();
        rows.extend([
            honoured("norm_topk_prob", json!(false)),
            honoured("num_nextn_predict_layers", json!(0)),
            honoured("n_group", json!(16)),
            refused("topk_group", json!(17)),
            refused("topk_method", json!("greedy")),
            refused("scoring_func", json!("softmax")),
        ]);
        rows
    };
    match architecture.trim_end_matches("ForCausalLM") {
        "DeepseekV2" => {
            rows.extend(experts());
            rows.extend([
                honoured("first_k_dense_replace", json!(1)),
                honoured("moe_layer_freq", json!(2)),
                honoured("mlp_bias", json!(true)),
                refused("topk_method", json!("noaux_tc")),
                refused("scoring_func", json!("sigmoid")),
                refused("rope_interleave", json!(false)),
            ]);
        }
        "DeepseekV3" => {
            rows.extend(of_v3());
            rows.extend([
                honoured("first_k_dense_replace", json!(1)),
                honoured("moe_layer_freq", json!(2)),
                honoured("rope_interleave", json!(false)),
                honoured("rope_interleave", json!(null)),
            ]);
        }
        "Glm4MoeLite" => {
            // The configs of these tests have `head_dim`, the other name, which wins.
            rows.retain(|(field, _, _)| *field != "qk_rope_head_dim");
            rows.extend(of_v3());
            rows.extend([
                honoured("head_dim", json!(12)),
                refused("head_dim", json!(7)),
                unchanged("qk_rope_head_dim", json!(12)),
                honoured("mlp_layer_types", json!(["sparse", "dense"])),
                honoured("first_k_dense_replace", json!(0)),
                honoured("rope_interleave", json!(false)),
                refused("mlp_layer_types", json!(["sparse", "none"])),
                refused("mlp_layer_types", json!(["sparse"])),
            ]);
        }
        "AXK1" => {
            rows.extend(of_v3().into_iter().filter(|(field, ..)| *field != "topk_method"));
            rows.extend([
                unchanged("topk_method", json!("greedy")),
                honoured("mlp_layer_types", json!(["sparse", "dense"])),
                honoured("first_k_dense_replace", json!(0)),
                honoured("rope_interleave", json!(false)),
                refused("mlp_layer_types", json!(["sparse"])),
            ]);
        }
        "Mistral4" => {
            // Its default parameters have a base, which wins.
            rows.retain(|(field, ..)| !["rope_theta", "partial_rotary_factor"].contains(field));
            rows.extend(experts());
            let rope = |changes: Value| {
                let mut rope = json!({ "rope_type": "default" });
                for (field, value) in changes.as_object().into_iter().flatten() {
                    rope[field] = value.clone();
                }
                ("rope_parameters", rope)
            };
            let (field, cooled) = rope(json!({ "llama_4_scaling_beta": 0.5 }));
            let (_, parted) = rope(json!({ "partial_rotary_factor": 0.9 }));
            rows.extend([
                honoured(field, cooled),
                unchanged("partial_rotary_factor", json!(0.5)),
                refused("partial_rotary_factor", json!(0.9)),
                honoured("norm_topk_prob", json!(false)),
                honoured("n_group", json!(16)),
                honoured("first_k_dense_replace", json!(1)),
                honoured("rope_interleave", json!(false)),
                unchanged("rope_theta", json!(77.0)),
                refused(field, parted),
                refused("topk_group", json!(17)),
            ]);
        }
        "DeepseekV32" | "GlmMoeDsa" => {
            rows.extend(of_v3());
            rows.extend([
                honoured("first_k_dense_replace", json!(1)),
                honoured("mlp_layer_types", json!(["dense", "sparse"])),
                honoured("index_topk", json!(99)),
                unchanged("layer_types", json!(["indexed_attention", "indexed_attention"])),
                refused("rope_interleave", json!(false)),
            ]);
        }
        "LongcatFlash" => {
            rows.retain(|(field, value, _)| *field != "q_lora_rank" || !value.is_null());
            rows.extend([
                honoured("num_layers", json!(3)),
                honoured("n_routed_experts", json!(32)),
                honoured("moe_topk", json!(3)),
                honoured("expert_ffn_hidden_size", json!(8)),
                honoured("ffn_hidden_size", json!(8)),
                honoured("zero_expert_num", json!(3)),
                honoured("zero_expert_num", json!(null)),
                honoured("routed_scaling_factor", json!(7.0)),
                refused("q_lora_rank", json!(null)),
                refused("head_dim", json!(12)),
                refused("qk_head_dim", json!(12)),
                refused("moe_topk", json!(800)),
                refused("mla_scale_q_lora", json!(false)),
                refused("mla_scale_kv_lora", json!(false)),
                refused("router_bias", json!(true)),
                refused("norm_topk_prob", json!(true)),
                refused("zero_expert_type", json!("copy")),
                refused("attention_method", json!("GQA")),
                refused("rope_interleave", json!(false)),
            ]);
        }
        "MiniCPM3" => rows.extend([
            honoured("scale_emb", json!(3)),
            honoured("scale_depth", json!(3.0)),
            honoured("scale_depth", json!(null)),
            honoured("dim_model_base", json!(9)),
            honoured("dim_model_base", json!(null)),
            honoured("mlp_bias", json!(true)),
            refused("rope_interleave", json!(true)),
        ]),
        _ => rows.push(honoured("rope_interleave", json!(false))),
    }
    rows
}

/// Returns YaRN with factors of scores.
fn scaled(mscale_all_dim: f64) -> Value {
    json!({ "type": "yarn", "factor": 40, "original_max_position_embeddings": 256,
        "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": mscale_all_dim })
}

fn latent(config: &ModelConfig) -> &LatentConfig {
    let Mixer::Latent(latent) = &config.layers[0].mixer else { panic!("no latents") };
    latent
}

/// The sizes and scales of DeepSeek V3's own `config.json`.
#[test]
fn a_published_config_is_read() {
    let config = json!({
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
        "vocab_size": 129_280, "hidden_size": 7_168, "intermediate_size": 18_432,
        "moe_intermediate_size": 2_048, "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
        "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 1_536,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
        "topk_method": "noaux_tc", "n_group": 8, "topk_group": 4, "num_experts_per_tok": 8,
        "moe_layer_freq": 1, "first_k_dense_replace": 3, "norm_topk_prob": true,
        "scoring_func": "sigmoid", "num_nextn_predict_layers": 1, "ep_size": 1,
        "max_position_embeddings": 163_840, "rope_theta": 10_000,
        "rope_scaling": { "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 4_096, "type": "yarn" },
        "quantization_config": { "activation_scheme": "dynamic", "fmt": "e4m3",
            "quant_method": "fp8", "weight_block_size": [128, 128] },
        "torch_dtype": "bfloat16",
    });
    let config = read(&config).unwrap();
    let latent = latent(&config);
    assert_eq!((latent.cached_size(), latent.q_size(), latent.kv_size()), (576, 24_576, 32_768));
    let mscale = 0.1 * 40f64.ln() + 1.0;
    assert!((f64::from(latent.scale) - mscale.powi(2) / 192f64.sqrt()).abs() < 1e-7);
    assert_eq!((config.max_model_len, config.num_nextn_layers), (163_840, 1));
}

/// A context of more tokens than the indexer chooses is refused, and never the default.
#[test]
fn contexts_are_bounded_by_the_choice_of_an_indexer() {
    for architecture in ["DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"] {
        let mut config = base(architecture);
        config["index_topk"] = json!(99);
        let read = |requested| ModelConfig::of_source(&fields(config.clone()).into(), requested);
        assert_eq!(read(None).unwrap().max_model_len, 99);
        assert_eq!(read(Some(40)).unwrap().max_model_len, 40);
        let error = read(Some(100)).unwrap_err().to_string();
        assert!(error.contains("99"), "{error}");
    }
}

/// The outcomes of transformers 5.24's config classes, in any order of the fields.
#[test]
fn the_number_of_experts_has_several_names() {
    let of = |architecture: &str, numbers: Value| {
        let mut config = base(architecture);
        numbers.as_object().unwrap().iter().for_each(|(name, number)| {
            config[name] = number.clone();
        });
        let config = read(&config).map_err(|error| error.to_string())?;
        let experts = config.layers.iter().find_map(|layer| match &layer.feed_forward {
            FeedForward::Moe(moe) => Some(moe.num_experts),
            FeedForward::Mlp(_) | FeedForward::None => None,
        });
        experts.ok_or_else(|| "no experts".to_owned())
    };
    let (v2, v3) = ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM");
    let (v32, dsa) = ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM");
    let both = json!({ "n_routed_experts": 32, "num_experts": 64 });
    for (architecture, expected) in [(v2, 64), (v3, 32), (v32, 64), (dsa, 64)] {
        assert_eq!(of(architecture, both.clone()), Ok(expected), "{architecture}");
    }
    let null = json!({ "n_routed_experts": 32, "num_experts": null });
    let local = json!({ "num_local_experts": 16, "n_routed_experts": 32, "num_experts": 64 });
    for architecture in [v32, dsa] {
        assert_eq!(of(architecture, null.clone()), Ok(32));
        assert_eq!(of(architecture, local.clone()), Ok(16));
    }
    let error = of(v32, json!({ "n_routed_experts": 32, "num_experts": -1 })).unwrap_err();
    assert!(error.contains("`num_experts`"), "{error}");
}

/// Kimi K2 names the class of DeepSeek V3, and a `model_type` of its own.
#[test]
fn a_model_type_of_other_code_is_accepted_where_it_is_known() {
    let with = |model_type: &str| {
        let mut config = base("DeepseekV3ForCausalLM");
        config["model_type"] = json!(model_type);
        read(&config).map_err(|error| error.to_string())
    };
    assert!(with("kimi_k2").is_ok() && with("deepseek_v3").is_ok());
    assert!(with("deepseek_v2").unwrap_err().contains("model_type"));
}

/// The scores of every kind of scaling have the factor, as in transformers.
#[test]
fn scores_have_the_factor_of_yarn() {
    let scale = |rope: Value| {
        let mut config = base("DeepseekV3ForCausalLM");
        config["rope_parameters"] = rope;
        f64::from(latent(&read(&config).unwrap()).scale) * 192f64.sqrt()
    };
    let factor = (0.1 * 0.8 * 4f64.ln() + 1.0).powi(2);
    let llama3 = json!({ "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "mscale_all_dim": 0.8 });
    for (rope, expected) in [
        (json!({ "rope_type": "default", "mscale_all_dim": 0.8 }), 1.0),
        (json!({ "rope_type": "linear", "factor": 4.0, "mscale_all_dim": 0.8 }), factor),
        (json!({ "rope_type": "yarn", "factor": 4.0, "mscale_all_dim": 0.8 }), factor),
        (llama3, factor),
        (json!({ "rope_type": "yarn", "factor": 4.0, "mscale_all_dim": 0 }), 1.0),
        (json!({ "rope_type": "yarn", "factor": 0.5, "mscale_all_dim": 0.8 }), 1.0),
        (json!({ "rope_type": "yarn", "factor": 4.0 }), 1.0),
    ] {
        assert!((scale(rope.clone()) - expected).abs() < 1e-6, "{rope}");
    }
}
