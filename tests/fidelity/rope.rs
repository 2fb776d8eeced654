//! Inverse frequencies alone, in more variants than there are models. `rope.json` has the results
//! of transformers' `ROPE_INIT_FUNCTIONS`.

use playhouse::model::{ModelConfig, inverse_frequencies};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    rope_parameters: Value,
    max_model_len: usize,
    inv_freq: Vec<f32>,
    attention_factor: f32,
}

#[test]
fn frequencies_are_those_of_transformers() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("rope.json")).unwrap();
    assert!(cases.len() >= 12);
    for case in cases {
        let folder = tempfile::TempDir::new().unwrap();
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "vocab_size": 1, "hidden_size": 256,
            "intermediate_size": 1, "num_hidden_layers": 1, "num_attention_heads": 4,
            "max_position_embeddings": 1024, "rope_parameters": case.rope_parameters,
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let config = ModelConfig::from_dir(folder.path(), Some(case.max_model_len)).unwrap();
        let attention = config.layers[0].mixer.attention().unwrap();
        let rope = attention.rope.as_ref().unwrap();
        let ours = inverse_frequencies(rope, 1024, case.max_model_len);
        assert_eq!(ours.inv_freq.len(), case.inv_freq.len());
        for (ours, theirs) in ours.inv_freq.iter().zip(&case.inv_freq) {
            assert!((ours / theirs - 1.0).abs() < 1e-6, "{rope:?}: {ours} and {theirs}");
        }
        assert!((ours.attention_factor / case.attention_factor - 1.0).abs() < 1e-6, "{rope:?}");
    }
}

/// The numbers are those of vLLM's `NTKScalingRotaryEmbedding`, computed in float32. Transformers
/// does not have this scaling.
#[test]
fn frequencies_of_gtes_authors_are_those_of_vllm() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = |scaling: Value| {
        let config = json!({
            "architectures": ["NewModel"], "model_type": "new", "vocab_size": 1, "hidden_size": 8,
            "intermediate_size": 1, "num_hidden_layers": 1, "num_attention_heads": 1,
            "max_position_embeddings": 1024, "rope_theta": 160_000.0, "rope_scaling": scaling,
        });
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        ModelConfig::from_dir(folder.path(), None)
    };
    let found = config(json!({"type": "ntk", "factor": 8.0})).unwrap();
    assert_eq!(found.max_model_len, 8 * 1024);
    let rope = found.layers[0].mixer.attention().unwrap().rope.as_ref().unwrap();
    let ours = inverse_frequencies(rope, 1024, found.max_model_len).inv_freq;
    let theirs = [0.594_603_54_f32, 0.017_677_67, 0.000_525_560_3, 1.562_499_9e-5];
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!((ours / theirs - 1.0).abs() < 1e-6, "{ours} and {theirs}");
    }
    let mixed = config(json!({"type": "ntk", "factor": 8.0, "mixed_b": 0.5})).unwrap_err();
    assert!(mixed.to_string().contains("mixed_b"), "{mixed}");
}
