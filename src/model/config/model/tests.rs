//! Whole `config.json` files in the spellings of both versions of transformers, and invalid ones.

use serde_json::{Value, json};

use super::super::file::fields;
use super::super::{AttentionConfig, FeedForward, MlpConfig};
use super::*;

fn llama() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    })
}

/// Returns `llama()` with some fields replaced.
fn with(changes: Value) -> Value {
    let mut config = llama();
    for (field, value) in changes.as_object().unwrap() {
        config[field] = value.clone();
    }
    config
}

fn read(json: Value) -> Result<ModelConfig, String> {
    ModelConfig::of_source(&fields(json).into(), None).map_err(|error| error.to_string())
}

fn error(changes: Value) -> String {
    read(with(changes)).unwrap_err()
}

/// Returns the attention of a layer, and the MLP after it.
fn parts(config: &ModelConfig, layer: usize) -> (&AttentionConfig, &MlpConfig) {
    let attention = config.layers[layer].mixer.attention().unwrap();
    let FeedForward::Mlp(mlp) = &config.layers[layer].feed_forward else {
        panic!("the layer is dense")
    };
    (attention, mlp)
}

/// The expected values are those of HF config classes built without arguments.
#[test]
fn absent_fields_take_the_defaults_of_transformers() {
    let config = read(llama()).unwrap();
    let (attention, mlp) = parts(&config, 0);
    assert_eq!((attention.num_kv_heads, attention.head_dim), (4, 16));
    assert_eq!((config.max_position_embeddings, config.max_model_len), (2048, 2048));
    assert_eq!((config.norm.eps, config.tie_word_embeddings), (1e-6, false));
    assert_eq!((attention.qkv_bias, attention.o_bias, mlp.bias), (false, false, false));
    assert_eq!(attention.rope.as_ref().unwrap().theta, 10_000.0);

    let mistral = json!({ "architectures": ["MistralForCausalLM"], "num_attention_heads": 32,
        "hidden_size": 128 });
    let config = read(with(mistral)).unwrap();
    let (attention, _) = parts(&config, 1);
    assert_eq!((attention.num_kv_heads, attention.head_dim), (8, 4));
    assert_eq!(config.max_position_embeddings, 131_072);
    assert_eq!(attention.sliding_window, Some(4096));

    let qwen2 = json!({ "architectures": ["Qwen2ForCausalLM"], "num_key_value_heads": null });
    let config = read(with(qwen2)).unwrap();
    let (attention, _) = parts(&config, 1);
    assert_eq!((attention.num_kv_heads, config.max_position_embeddings), (4, 32_768));
    assert_eq!((attention.qkv_bias, attention.o_bias), (true, false));
    assert_eq!(attention.sliding_window, None);

    let qwen3 = json!({ "architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 32,
        "attention_bias": true });
    let config = read(with(qwen3)).unwrap();
    let (attention, mlp) = parts(&config, 0);
    assert_eq!((attention.num_kv_heads, attention.head_dim), (32, 128));
    assert_eq!((attention.qkv_bias, attention.o_bias, mlp.bias), (true, true, false));
}

#[test]
fn reads_both_spellings() {
    let old = read(with(json!({
        "torch_dtype": "bfloat16", "eos_token_id": 2, "bos_token_id": 1, "rms_norm_eps": 1e-5,
        "rope_theta": 5e5, "rope_scaling": { "type": "linear", "factor": 2 },
    })));
    let new = read(with(json!({
        "dtype": "bfloat16", "eos_token_id": [2], "bos_token_id": 1, "rms_norm_eps": 1e-5,
        "rope_parameters": { "rope_type": "linear", "factor": 2.0, "rope_theta": 500000 },
    })));
    assert_eq!(old, new);
    let config = new.unwrap();
    assert_eq!((config.dtype, config.max_model_len), (Some(StoredDtype::Bf16), 4096));
    assert_eq!((config.bos_token_id, config.eos_token_ids), (Some(1), vec![2]));
}

#[test]
fn errors_name_the_field_its_value_and_the_accepted_values() {
    for (changes, expected) in [
        (
            json!({ "architectures": ["LlamasForCausalLM"] }),
            "config.json: a model with `architectures` \"LlamasForCausalLM\" is not supported; \
             supported are LlamaForCausalLM, ",
        ),
        (
            json!({ "architectures": ["QWenLMHeadModel"], "auto_map": { "AutoConfig": "x.Y" } }),
            "its `auto_map` names code in the folder, which is never run; supported are ",
        ),
        (json!({ "architectures": null }), "config.json: `architectures` is missing; expected a"),
        (
            json!({ "architectures": "Llama" }),
            "config.json: `architectures` is \"Llama\"; expected",
        ),
        (
            json!({ "vocab_size": null }),
            "config.json: `vocab_size` is missing; expected a positive integer",
        ),
        (
            json!({ "hidden_size": -64 }),
            "config.json: `hidden_size` is -64; expected an integer from 1 to 16777216",
        ),
        (json!({ "hidden_size": "64" }), "`hidden_size` is \"64\"; expected an integer"),
        (json!({ "hidden_size": 66 }), "`hidden_size` is 66; expected a multiple of num_attention"),
        (json!({ "num_key_value_heads": 3 }), "`num_key_value_heads` is 3; expected a divisor of"),
        (json!({ "head_dim": 15 }), "`head_dim` is 15; expected an even number"),
        (
            json!({ "hidden_size": 60 }),
            "`hidden_size` is 60; expected an even multiple of num_attention_heads, 4: rotary",
        ),
        (json!({ "hidden_act": "elu" }), "`hidden_act` is \"elu\"; expected one of silu, swish"),
        (json!({ "hidden_act": "xielu" }), "`hidden_act` is \"xielu\"; expected one of silu"),
        (
            json!({ "quantization_config": { "quant_method": "hqq" } }),
            "`quantization_config.quant_method` is \"hqq\"; expected \"gptq\", \"awq\", ",
        ),
        (json!({ "dtype": "float8" }), "`dtype` is \"float8\"; expected \"float32\", \"float16\""),
        (json!({ "torch_dtype": 16 }), "`torch_dtype` is 16; expected a string"),
        (json!({ "rms_norm_eps": 0 }), "`rms_norm_eps` is 0; expected a number above 0"),
        (
            json!({ "max_position_embeddings": 1e12 }),
            "`max_position_embeddings` is 1000000000000.0",
        ),
    ] {
        let message = error(changes);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_broken_file_is_named() {
    let folder = tempfile::TempDir::new().unwrap();
    let read = || ModelConfig::from_dir(folder.path(), None).unwrap_err().to_string();
    assert!(read().contains("config.json: cannot be read"), "{}", read());
    let nested = "[".repeat(100_000);
    for text in ["", "{", "[]", "null", "{\"a\":1} x", "\u{feff}{}", &nested] {
        std::fs::write(folder.path().join("config.json"), text).unwrap();
        assert!(read().contains("config.json: not a JSON object"), "{}", read());
    }
}
