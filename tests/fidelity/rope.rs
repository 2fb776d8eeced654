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
