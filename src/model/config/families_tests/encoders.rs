//! The fields that only some families of encoders have.

use serde_json::{Value, json};

use super::{Outcome, Row, honoured, refused, unchanged};
use crate::model::config::file::fields;
use crate::model::config::{ConfigError, FeedForward, LayerConfig, ModelConfig};
use crate::model::families::{Entry, encoders};

/// Returns the config of a model of the class `architecture`.
fn read(architecture: &str, config: &Value) -> Result<ModelConfig, ConfigError> {
    let class = encoders::classes().find(|class| class.architecture == architecture).unwrap();
    let source = fields(config.clone()).into();
    ModelConfig::of_entry(&source, Entry::Family(class.family), None)
}

fn with(mut config: Value, more: Value) -> Value {
    for (field, value) in more.as_object().unwrap() {
        config[field] = value.clone();
    }
    config
}

/// Checks the effect of each field on the model of `config`.
fn check(architecture: &str, config: &Value, rows: Vec<Row>) {
    let before = read(architecture, config).unwrap();
    for (field, value, outcome) in rows {
        let changed = with(config.clone(), json!({ field: value.clone() }));
        match (outcome, read(architecture, &changed)) {
            (Outcome::Honoured, Ok(after)) => {
                assert_ne!(after, before, "{architecture}: {field} {value}");
            }
            (Outcome::Unchanged, Ok(after)) => {
                assert_eq!(after, before, "{architecture}: {field} {value}");
            }
            (Outcome::Refused, Err(error)) => {
                let error = error.to_string();
                assert!(error.contains(field), "{architecture}: {field}: {error}");
            }
            (outcome, after) => {
                panic!("{architecture}: {field} {value}: {outcome:?}, {after:?}")
            }
        }
    }
}

/// Fields that the code of Nomic Embed's authors reads.
fn of_nomics_authors() -> Value {
    json!({
        "model_type": "nomic_bert", "vocab_size": 512, "n_embd": 64, "n_inner": 96, "n_layer": 4,
        "n_head": 4, "n_positions": 128, "rotary_emb_fraction": 1.0,
    })
}

#[test]
fn nomic_embed_1() {
    let config = with(of_nomics_authors(), json!({ "activation_function": "swiglu" }));
    let rows = vec![
        honoured("rotary_emb_base", json!(77.0)),
        honoured("layer_norm_epsilon", json!(0.5)),
        honoured("type_vocab_size", json!(0)),
        honoured("qkv_proj_bias", json!(true)),
        honoured("mlp_fc1_bias", json!(true)),
        honoured("mlp_fc2_bias", json!(true)),
        honoured("activation_function", json!("geglu")),
        refused("activation_function", json!("glu")),
        refused("activation_function", json!("gelu_new")),
        refused("num_experts", json!(8)),
        unchanged("num_experts", json!(0)),
        refused("rotary_emb_fraction", json!(0.5)),
        refused("rotary_emb_interleaved", json!(true)),
        refused("rotary_scaling_factor", json!(2.0)),
        refused("rotary_emb_scale_base", json!(512.0)),
        refused("prenorm", json!(true)),
        refused("causal", json!(true)),
        refused("parallel_block", json!(true)),
        refused("use_rms_norm", json!(true)),
    ];
    check("NomicBertModel", &config, rows);
}

#[test]
fn nomic_embed_2() {
    let experts = json!({
        "activation_function": "gelu", "num_experts": 8, "moe_top_k": 2, "moe_every_n_layers": 2,
    });
    let config = with(of_nomics_authors(), experts);
    let rows = vec![
        honoured("num_experts", json!(4)),
        honoured("num_experts", json!(0)),
        honoured("moe_top_k", json!(3)),
        honoured("moe_every_n_layers", json!(3)),
        honoured("n_inner", json!(80)),
        honoured("qkv_proj_bias", json!(false)),
        honoured("mlp_fc1_bias", json!(false)),
        honoured("mlp_fc2_bias", json!(false)),
        honoured("rotary_emb_base", json!(77.0)),
        honoured("layer_norm_epsilon", json!(0.5)),
        honoured("type_vocab_size", json!(1)),
        refused("moe_top_k", json!(9)),
        refused("moe_top_k", json!(null)),
        refused("moe_every_n_layers", json!(1)),
        refused("moe_every_n_layers", json!(null)),
        refused("moe_normalize_expert_weights", json!(true)),
        unchanged("moe_normalize_expert_weights", json!(false)),
        refused("expert_choice_router", json!(true)),
        refused("num_shared_experts", json!(1)),
        unchanged("num_shared_experts", json!(0)),
        refused("ffn_div", json!(2)),
        refused("rotary_emb_fraction", json!(null)),
        refused("rotary_emb_fraction", json!(0.5)),
        refused("rotary_scaling_factor", json!(2.0)),
        refused("prenorm", json!(true)),
    ];
    check("NomicBertModel", &config, rows);
    let model = read("NomicBertModel", &config).unwrap();
    let has_experts = |layer: &LayerConfig| matches!(layer.feed_forward, FeedForward::Moe(_));
    assert_eq!(Vec::from_iter(model.layers.iter().map(has_experts)), [false, true, false, true]);
}

/// The fields of models in BERT's shape, with further ones.
fn of_bert(more: Value) -> Value {
    let config = json!({
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 128,
    });
    with(config, more)
}

#[test]
fn jina_embeddings_2() {
    let own = json!({
        "model_type": "bert", "position_embedding_type": "alibi", "feed_forward_type": "geglu",
    });
    let rows = vec![
        honoured("feed_forward_type", json!("reglu")),
        refused("feed_forward_type", json!("original")),
        refused("feed_forward_type", json!(null)),
        honoured("num_attention_heads", json!(8)),
        honoured("type_vocab_size", json!(3)),
        honoured("layer_norm_eps", json!(0.5)),
        refused("position_embedding_type", json!("absolute")),
        refused("position_embedding_type", json!(null)),
        refused("is_decoder", json!(true)),
        refused("model_type", json!("roberta")),
    ];
    check("JinaBertModel", &of_bert(own.clone()), rows);
    // The class of ColBERT's authors, and BERT's, have the family that the field names.
    let named = read("JinaBertModel", &of_bert(own.clone())).unwrap();
    assert_eq!(read("HF_ColBERT", &of_bert(own)).unwrap(), named);
    assert_ne!(read("HF_ColBERT", &of_bert(json!({}))).unwrap(), named);
}

#[test]
fn jina_colbert_2() {
    let own = json!({ "model_type": "xlm-roberta", "position_embedding_type": "rotary" });
    let rows = vec![
        honoured("rotary_emb_base", json!(77.0)),
        honoured("hidden_act", json!("gelu_new")),
        honoured("type_vocab_size", json!(1)),
        honoured("layer_norm_eps", json!(0.5)),
        refused("position_embedding_type", json!("absolute")),
        refused("position_embedding_type", json!(null)),
        refused("rotary_emb_interleaved", json!(true)),
        refused("rotary_emb_scale_base", json!(512.0)),
        refused("rotary_emb_dim", json!(8)),
        unchanged("rotary_emb_dim", json!(16)),
        refused("hidden_act", json!("relu")),
        honoured("lora_adaptations", json!(["text-matching"])),
        unchanged("lora_adaptations", json!([])),
        refused("lora_adaptations", json!([1])),
        refused("default_task", json!("text-matching")),
    ];
    check("ColBERTJinaRobertaModel", &of_bert(own.clone()), rows);
    let named = read("ColBERTJinaRobertaModel", &of_bert(own.clone())).unwrap();
    let tasks = with(own.clone(), json!({ "lora_adaptations": ["separation", "text-matching"] }));
    let rows = vec![
        honoured("default_task", json!("text-matching")),
        refused("default_task", json!("retrieval")),
        honoured("lora_rank", json!(2)),
        honoured("lora_alpha", json!(3)),
        refused("lora_alpha", json!(0)),
    ];
    check("XLMRobertaModel", &of_bert(tasks), rows);
    for other in ["HF_ColBERT", "XLMRobertaModel"] {
        assert_eq!(read(other, &of_bert(own.clone())).unwrap(), named, "{other}");
    }
}

#[test]
fn llama_nemotron() {
    let rows = vec![
        honoured("attention_bias", json!(true)),
        honoured("rms_norm_eps", json!(0.5)),
        honoured("num_key_value_heads", json!(2)),
        honoured("rope_scaling", json!({ "rope_type": "linear", "factor": 2.0 })),
        unchanged("is_causal", json!(false)),
        refused("is_causal", json!(true)),
        refused("model_type", json!("llama")),
    ];
    let config = of_bert(json!({ "model_type": "llama_bidirec" }));
    check("LlamaBidirectionalModel", &config, rows);
    let mut model = read("LlamaBidirectionalModel", &config).unwrap();
    assert!(model.attentions().all(|attention| !attention.is_causal));
}

#[test]
fn jina_embeddings_5() {
    let why = |task: Value| {
        let own = json!({
            "model_type": "jina_embeddings_v5", "num_key_value_heads": 2, "jina_task": task,
        });
        read("JinaEmbeddingsV5Model", &of_bert(own)).unwrap_err().to_string()
    };
    let other = why(json!("translation"));
    assert!(other.contains("jina_task") && other.contains("clustering"), "{other}");
    // The folder of the task's adapter is beside the config.
    let task = why(json!("clustering"));
    assert!(task.contains("adapters/clustering/adapter_config.json"), "{task}");
    let default = why(Value::Null);
    assert!(default.contains("adapters/retrieval/adapter_config.json"), "{default}");
}

#[test]
fn electra() {
    let config = of_bert(json!({ "model_type": "electra", "embedding_size": 32 }));
    let rows = vec![
        honoured("embedding_size", json!(48)),
        honoured("embedding_size", json!(64)),
        honoured("type_vocab_size", json!(3)),
        honoured("layer_norm_eps", json!(0.5)),
        honoured("hidden_act", json!("relu")),
        refused("embedding_size", json!(0)),
        refused("is_decoder", json!(true)),
        refused("model_type", json!("bert")),
        unchanged("summary_type", json!("mean")),
    ];
    check("ElectraModel", &config, rows);
    let widths = |more: Value| {
        let model = read("ElectraModel", &with(config.clone(), more)).unwrap();
        [model.table_width(), model.summed_width(), model.embedding_width()]
    };
    assert_eq!(widths(json!({})), [32, 32, 64]);
    assert_eq!(widths(json!({ "embedding_size": 64 })), [64; 3]);
    assert_eq!(widths(json!({ "embedding_size": null })), [128, 128, 64], "as the HF class");
}

#[test]
fn ernie() {
    let rows = vec![
        honoured("use_task_id", json!(true)),
        unchanged("use_task_id", json!(false)),
        unchanged("task_type_vocab_size", json!(16)),
        honoured("type_vocab_size", json!(4)),
        refused("use_task_id", json!("yes")),
        refused("model_type", json!("bert")),
    ];
    check("ErnieModel", &of_bert(json!({ "model_type": "ernie" })), rows);
}

#[test]
fn xlm_roberta_xl() {
    let own = json!({ "model_type": "xlm-roberta-xl", "pad_token_id": 1 });
    let rows = vec![
        honoured("layer_norm_eps", json!(0.5)),
        honoured("type_vocab_size", json!(2)),
        honoured("pad_token_id", json!(3)),
        refused("is_decoder", json!(true)),
        refused("position_embedding_type", json!("relative_key")),
        refused("model_type", json!("xlm-roberta")),
    ];
    let config = of_bert(own);
    check("XLMRobertaXLModel", &config, rows);
    let model = read("XLMRobertaXLModel", &config).unwrap();
    assert!(!model.is_post_norm && model.has_final_norm && !model.embedding.has_norm);
}

#[test]
fn eurobert() {
    let rows = vec![
        honoured("attention_bias", json!(true)),
        honoured("mlp_bias", json!(true)),
        honoured("hidden_act", json!("gelu")),
        honoured("rms_norm_eps", json!(0.5)),
        honoured("num_key_value_heads", json!(2)),
        honoured("head_dim", json!(8)),
        honoured("rope_theta", json!(77.0)),
        unchanged("is_causal", json!(false)),
        unchanged("clf_pooling", json!("late")),
        refused("clf_pooling", json!("mean")),
    ];
    check("EuroBertModel", &of_bert(json!({ "model_type": "eurobert" })), rows);
    let both = json!({ "classifier_pooling": "mean", "clf_pooling": "mean" });
    assert!(read("EuroBertModel", &of_bert(both)).is_ok());
}

#[test]
fn openai_privacy_filter() {
    const NAME: &str = "OpenAIPrivacyFilterForTokenClassification";
    let rows = vec![
        honoured("sliding_window", json!(7)),
        honoured("sliding_window", json!(null)),
        honoured("attention_bias", json!(false)),
        honoured("num_local_experts", json!(8)),
        honoured("num_experts_per_tok", json!(3)),
        honoured("swiglu_alpha", json!(1.5)),
        honoured("swiglu_limit", json!(0.5)),
        honoured("rms_norm_eps", json!(0.5)),
        honoured("num_key_value_heads", json!(4)),
        honoured("head_dim", json!(8)),
        unchanged("is_causal", json!(false)),
        refused("hidden_act", json!("gelu")),
        refused("model_type", json!("gpt_oss")),
    ];
    let config = of_bert(json!({ "model_type": "openai_privacy_filter" }));
    check(NAME, &config, rows);
    let model = read(NAME, &config).unwrap();
    let mut attentions = model.layers.iter().filter_map(|layer| layer.mixer.attention());
    assert!(attentions.all(|it| !it.is_causal && it.sliding_window == Some(129)));
}

#[test]
fn lfm2_embedding() {
    let rows = vec![
        honoured("norm_eps", json!(0.5)),
        honoured("num_key_value_heads", json!(2)),
        honoured("conv_L_cache", json!(5)),
        honoured("conv_bias", json!(true)),
        honoured("layer_types", json!(["conv", "conv"])),
        unchanged("is_causal", json!(false)),
        refused("is_causal", json!(true)),
        refused("model_type", json!("llama")),
    ];
    let layer_types = json!(["conv", "full_attention"]);
    let own = json!({
        "model_type": "lfm2", "layer_types": layer_types, "num_key_value_heads": 4,
    });
    check("Lfm2BidirectionalModel", &of_bert(own.clone()), rows);
    // No layer keeps keys or a state.
    let model = read("Lfm2BidirectionalModel", &of_bert(own)).unwrap();
    assert!(model.layers.iter().all(|layer| layer.mixer.num_kv_layers() == 0));
}

#[test]
fn voyage_4() {
    const NAME: &str = "VoyageQwen3BidirectionalEmbedModel";
    let rows = vec![
        honoured("attention_bias", json!(true)),
        honoured("rms_norm_eps", json!(0.5)),
        honoured("num_key_value_heads", json!(2)),
        honoured("head_dim", json!(8)),
        unchanged("is_causal", json!(false)),
        refused("use_sliding_window", json!(true)),
        refused("model_type", json!("qwen2")),
    ];
    // HF's default of 32 key heads does not divide 4 heads.
    let own = json!({ "model_type": "qwen3", "max_window_layers": 0, "num_key_value_heads": 4 });
    check(NAME, &of_bert(own), rows);
}

#[test]
fn giga_embeddings() {
    const NAME: &str = "DeepseekV3BidirectionalModel";
    let rows = vec![
        honoured("rms_norm_eps", json!(0.5)),
        honoured("q_lora_rank", json!(null)),
        honoured("first_k_dense_replace", json!(0)),
        honoured("routed_scaling_factor", json!(2.0)),
        honoured("rope_interleave", json!(false)),
        unchanged("is_causal", json!(false)),
        refused("is_causal", json!(true)),
        refused("model_type", json!("deepseek_v3")),
    ];
    let own = json!({
        "model_type": "deepseek_v3_bidirec", "q_lora_rank": 24, "kv_lora_rank": 16,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1,
    });
    check(NAME, &of_bert(own.clone()), rows);
    // No layer keeps latents.
    let model = read(NAME, &of_bert(own)).unwrap();
    assert!(model.layers.iter().all(|layer| layer.mixer.num_kv_layers() == 0));
}
