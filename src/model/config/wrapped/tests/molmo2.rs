//! The config of Molmo 2.

use super::*;

/// Their embedding has more rows than their output layer.
#[test]
fn molmo_2_is_as_qwen_3_or_olmo_3() {
    let config = |text: Value| {
        read(json!({
            "architectures": ["Molmo2ForConditionalGeneration"], "model_type": "molmo2",
            "vit_config": {}, "adapter_config": {}, "text_config": text,
        }))
    };
    let qwen = config(json!({
        "model_type": "molmo2_text", "hidden_size": 2_560, "intermediate_size": 9_728,
        "vocab_size": 151_936, "additional_vocab_size": 128, "layer_norm_eps": 1e-5,
        "qkv_bias": true, "use_qk_norm": true, "qk_norm_type": "qwen3", "rope_theta": 5_000_000.0,
        "rope_scaling_layers": null, "tie_word_embeddings": true,
    }));
    let qwen = qwen.unwrap();
    assert_eq!((qwen.vocab_size, qwen.scored_tokens()), (152_064, 151_936));
    assert_eq!((qwen.tie_word_embeddings, qwen.norm.eps), (false, 1e-5));
    assert!(qwen.layers[0].mixer.attention().unwrap().qkv_bias);
    let olmo = config(json!({
        "num_hidden_layers": 4, "qk_norm_type": "olmo", "norm_after": true,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8_192,
        },
        "rope_scaling_layers": [3],
    }));
    let olmo = olmo.unwrap();
    let norms = [olmo.norms.before_attention, olmo.norms.after_mlp];
    assert_eq!(norms, [None, Some("post_attention_layernorm")]);
    let ropes = olmo.layers.iter().filter_map(|layer| layer.mixer.attention()?.rope.as_ref());
    let is_scaled: Vec<bool> = ropes.map(|rope| rope.scaling != RopeScaling::Default).collect();
    assert_eq!(is_scaled, [false, false, false, true]);
    let why = config(json!({ "qk_norm_type": "none" })).unwrap_err();
    assert!(why.contains("text_config.qk_norm_type"), "{why}");
}
