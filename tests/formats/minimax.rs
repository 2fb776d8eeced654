//! The metadata of GGUF files of MiniMax-Text-01, with changes.

use playhouse::model::ModelConfig;

use crate::metadata::{Entry, changed, config, place, without};

/// The rules are those of `llama_model_minimax_01` in llama.cpp.
#[test]
fn attention_of_minimax_is_where_llama_cpp_has_it() {
    let with = |entries: &[Entry]| config("../converted/minimax.gguf", entries);
    let layers = |config: ModelConfig| -> Vec<usize> {
        let layers = config.layers.iter().enumerate();
        let attention = layers.filter(|(_, layer)| layer.mixer.attention().is_some());
        attention.map(|(index, _)| index).collect()
    };
    assert_eq!(layers(with(&[]).unwrap()), [7]);
    let interval = "minimax-01.full_attention_interval";
    assert_eq!(layers(with(&[Entry::Integer(interval, 3)]).unwrap()), [2, 5, 8]);
    let error = with(&[Entry::Integer(interval, 0)]).unwrap_err();
    assert!(error.contains(&format!("`{interval}` is 0; expected a positive integer")), "{error}");
}

/// Published models have heads of 128 elements, of which 64 rotate.
#[test]
fn a_part_of_the_heads_of_minimax_rotates() {
    let key = "minimax-01.rope.dimension_count";
    let half = changed("minimax.gguf", |file| {
        let at = place(file, key) + key.len() + 4;
        file[at..at + 4].copy_from_slice(&4u32.to_le_bytes());
    });
    let half = half.unwrap();
    let rope = half.layers[7].mixer.attention().unwrap().rope.as_ref().unwrap();
    assert_eq!((rope.rotary_dim, rope.frequency_dim), (4, 4));
}

#[test]
fn a_file_of_minimax_without_the_factor_of_its_stream_is_refused() {
    let key = "minimax-01.residual_scale";
    let error = without("minimax.gguf", key).map(|_| ()).unwrap_err();
    assert!(error.contains(&format!("`{key}` is missing; expected a number")), "{error}");
}
