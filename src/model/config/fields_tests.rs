//! Every field of the config classes of transformers 4.57 and 5.24: the effect of a value that is
//! not the default.

use serde_json::{Value, json};

use super::file::fields;
use super::{ConfigError, ModelConfig};

#[derive(Debug)]
enum Outcome {
    /// The config of the model changes.
    Honoured,
    /// An error names the field.
    Refused,
    /// Nothing changes, for this reason.
    Harmless(&'static str),
}
use Outcome::{Harmless, Honoured, Refused};

const FAMILIES: [(&str, &str); 4] = [
    ("llama", "LlamaForCausalLM"),
    ("mistral", "MistralForCausalLM"),
    ("qwen2", "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3ForCausalLM"),
];

/// The fields that `LlamaConfig`, `MistralConfig`, `Qwen2Config` and `Qwen3Config` share. Some
/// classes read `head_dim` without declaring it.
const COMMON: &str = "vocab_size hidden_size intermediate_size num_hidden_layers \
    num_attention_heads num_key_value_heads hidden_act max_position_embeddings initializer_range \
    rms_norm_eps use_cache pad_token_id bos_token_id eos_token_id tie_word_embeddings \
    rope_parameters rope_theta rope_scaling attention_dropout head_dim";
/// The fields of one class only, by `model_type`.
const OWN: [(&str, &str); 4] = [
    ("llama", "pretraining_tp attention_bias mlp_bias"),
    ("mistral", "sliding_window"),
    ("qwen2", "use_sliding_window sliding_window max_window_layers layer_types"),
    ("qwen3", "attention_bias use_sliding_window sliding_window max_window_layers layer_types"),
];

/// The fields of `PretrainedConfig`, and those that its masks and rotary embeddings read.
const BASE: &str = "output_hidden_states output_attentions return_dict torchscript dtype \
    torch_dtype pruned_heads chunk_size_feed_forward is_encoder_decoder is_decoder \
    cross_attention_hidden_size add_cross_attention tie_encoder_decoder architectures \
    finetuning_task id2label label2id num_labels task_specific_params problem_type \
    tokenizer_class prefix sep_token_id decoder_start_token_id name_or_path _name_or_path \
    _commit_hash attn_implementation experts_implementation transformers_version model_type \
    per_layer_config tie_last_hidden_states auto_map quantization_config is_causal \
    partial_rotary_factor original_max_position_embeddings";

/// Sampling defaults, which transformers 4 also reads from `config.json`.
const GENERATION: &str = "max_length min_length do_sample early_stopping num_beams temperature \
    top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size \
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores \
    return_dict_in_generate forced_bos_token_id forced_eos_token_id remove_invalid_values \
    exponential_decay_length_penalty suppress_tokens begin_suppress_tokens num_beam_groups \
    diversity_penalty";

/// Returns a value of `field` that is not its default, other fields to set, and the outcome.
fn row(field: &str, family: &str) -> Option<(Value, Value, Outcome)> {
    let none = json!({});
    let windows =
        json!({ "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 1 });
    let honoured = |value: Value| Some((value, none.clone(), Honoured));
    let refused = |value: Value| Some((value, none.clone(), Refused));
    let harmless = |value: Value, reason| Some((value, none.clone(), Harmless(reason)));
    let classifier = "an output layer of another task, or a name for the log";
    let returned = "what a call returns beside the logits";
    let encoder = "only models with an encoder read it";
    let writer = "tells where the file comes from";
    match field {
        "vocab_size" => honoured(json!(600)),
        "hidden_size" => honoured(json!(128)),
        "intermediate_size" => honoured(json!(100)),
        "num_hidden_layers" => honoured(json!(3)),
        "num_attention_heads" => honoured(json!(8)),
        "num_key_value_heads" => honoured(json!(2)),
        "max_position_embeddings" => honoured(json!(777)),
        "rms_norm_eps" => honoured(json!(0.5)),
        "bos_token_id" => honoured(json!(5)),
        "eos_token_id" => honoured(json!([6, 7])),
        "tie_word_embeddings" => honoured(json!(true)),
        "rope_theta" => honoured(json!(7.0)),
        "rope_scaling" => honoured(json!({ "type": "linear", "factor": 2.0 })),
        "rope_parameters" => honoured(json!({ "rope_type": "default", "rope_theta": 7.0 })),
        "head_dim" => honoured(json!(32)),
        "attention_bias" | "mlp_bias" => honoured(json!(true)),
        "dtype" | "torch_dtype" => honoured(json!("float16")),
        "sliding_window" if family == "mistral" => honoured(json!(24)),
        "sliding_window" => Some((json!(24), windows, Honoured)),
        "use_sliding_window" => Some((json!(false), windows, Honoured)),
        "max_window_layers" => Some((json!(0), windows, Honoured)),
        "layer_types" => Some((json!(["sliding_attention", "full_attention"]), windows, Honoured)),
        "original_max_position_embeddings" => {
            let yarn = json!({ "rope_scaling": { "type": "yarn", "factor": 2.0 } });
            Some((json!(300), yarn, Honoured))
        }
        "hidden_act" => honoured(json!("gelu")),
        // Mistral has a window by default.
        "is_causal" => Some((json!(false), json!({ "sliding_window": null }), Honoured)),
        "is_encoder_decoder" | "add_cross_attention" => refused(json!(true)),
        "pruned_heads" => refused(json!({ "0": [1] })),
        "per_layer_config" => refused(json!({ "0": { "sliding_window": 4 } })),
        "partial_rotary_factor" => refused(json!(0.5)),
        "quantization_config" => refused(json!({ "quant_method": "hqq" })),
        "architectures" => refused(json!(["LlamaForCausalLM", "Qwen2ForCausalLM"])),
        "model_type" => refused(json!("gemma")),
        "initializer_range" => harmless(json!(0.5), "weights are read, not drawn"),
        "attention_dropout" => harmless(json!(0.5), "dropout belongs to training"),
        "use_cache" => harmless(json!(false), "a cache changes no result"),
        "pad_token_id" => harmless(json!(3), "nothing is padded"),
        "pretraining_tp" => harmless(json!(2), "the same products, in parts"),
        "chunk_size_feed_forward" => harmless(json!(8), "none of the four decoders reads it"),
        "tie_last_hidden_states" => harmless(json!(false), returned),
        "output_hidden_states" | "output_attentions" => harmless(json!(true), returned),
        "return_dict" | "torchscript" => harmless(json!(true), returned),
        "is_decoder" | "tie_encoder_decoder" => harmless(json!(true), encoder),
        "cross_attention_hidden_size" | "decoder_start_token_id" => harmless(json!(4), encoder),
        "finetuning_task" | "problem_type" => harmless(json!("regression"), classifier),
        "id2label" | "label2id" | "task_specific_params" => harmless(json!({ "0": 1 }), classifier),
        "num_labels" => harmless(json!(3), classifier),
        "tokenizer_class" | "prefix" => harmless(json!("x"), "the tokenizer's files tell"),
        "sep_token_id" => harmless(json!(3), "the tokenizer's files tell"),
        "name_or_path" | "_name_or_path" | "_commit_hash" => harmless(json!("x"), writer),
        "transformers_version" => harmless(json!("4.1"), writer),
        "attn_implementation" | "experts_implementation" => {
            harmless(json!("eager"), "another way to the same result")
        }
        "auto_map" => harmless(json!({ "AutoConfig": "x.Y" }), "code in a folder never runs"),
        _ if GENERATION.split(' ').any(|name| name == field) => {
            harmless(json!(3), "transformers 5 drops it; generation_config.json has it")
        }
        _ => None,
    }
}

fn read(config: &Value) -> Result<ModelConfig, ConfigError> {
    ModelConfig::of_source(&fields(config.clone()).into(), None)
}

fn add(config: &mut Value, more: Value) {
    let Value::Object(more) = more else { panic!("no object") };
    more.into_iter().for_each(|(field, value)| config[field] = value);
}

#[test]
fn every_field_is_honoured_refused_or_harmless() {
    for ((family, architecture), (_, own)) in FAMILIES.into_iter().zip(OWN) {
        let names = [COMMON, own, BASE, GENERATION].map(|names| names.split_whitespace());
        for field in names.into_iter().flatten() {
            let (value, beside, outcome) =
                row(field, family).unwrap_or_else(|| panic!("{family}: no row for {field}"));
            let mut config = json!({
                "architectures": [architecture], "model_type": family, "vocab_size": 512,
                "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
                "max_position_embeddings": 1024,
            });
            add(&mut config, beside);
            let before = read(&config).unwrap();
            config[field] = value;
            let after = read(&config);
            match (outcome, after) {
                (Honoured, Ok(after)) => assert_ne!(after, before, "{family}: {field}"),
                (Refused, Err(error)) => {
                    let error = error.to_string();
                    assert!(error.contains(field), "{family}: {field}: {error}");
                }
                (Harmless(reason), Ok(after)) => {
                    assert_eq!(after, before, "{family}: {field}: {reason}");
                }
                (outcome, after) => panic!("{family}: {field}: {outcome:?}, but {after:?}"),
            }
        }
    }
}

/// Fields that are refused have values that change nothing. These are accepted.
#[test]
fn values_that_change_nothing_are_accepted() {
    let mut config = json!({
        "architectures": ["LlamaForCausalLM", "LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4,
    });
    let before = read(&config).unwrap();
    add(
        &mut config,
        json!({
            "is_causal": true, "is_encoder_decoder": false, "add_cross_attention": false,
            "pruned_heads": {}, "per_layer_config": {}, "partial_rotary_factor": 1.0,
            "hidden_act": "silu", "quantization_config": null,
        }),
    );
    assert_eq!(read(&config).unwrap(), before);
}

#[test]
fn a_longer_context_than_the_longest_one_is_served_in_part() {
    let config = |positions: u64, factor: f64| {
        fields(json!({
            "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "max_position_embeddings": positions,
            "rope_scaling": { "type": "linear", "factor": factor },
        }))
    };
    let served = |positions, factor, requested| {
        let source = config(positions, factor).into();
        let config = ModelConfig::of_source(&source, requested).map_err(|error| error.to_string());
        config.map(|config| config.max_model_len)
    };
    assert_eq!(served(1 << 22, 2.0, None), Ok(1 << 23));
    // Llama 4 Scout, MiniMax-Text-01, and lengths that scaling makes too long.
    for (positions, factor) in [(10_485_760, 1.0), (10_240_000, 1.0), (1 << 22, 3.0)] {
        assert_eq!(served(positions, factor, None), Ok(1 << 23));
        assert_eq!(served(positions, factor, Some(4096)), Ok(4096));
        let refused = served(positions, factor, Some(9_000_000)).unwrap_err();
        let expected =
            "max_model_len is 9000000; expected 1 to 8388608, the longest context served";
        assert_eq!(refused, expected);
    }
    let refused = served(1 << 33, 1.0, None).unwrap_err();
    assert!(refused.contains("expected an integer from 1 to 4294967295"), "{refused}");
}
