//! Writes the folder of a parrot: `config.json`, weights, tokenizer. A real program would have a
//! checkpoint instead.

use std::{collections::BTreeMap, error::Error, fs, path::Path};

use safetensors::{Dtype, serialize_to_file, tensor::TensorView};
use serde_json::json;

use crate::model::ARCHITECTURE;

/// The vocabulary. A text is words with white space between them. Other words are `<unk>`.
const WORDS: [&str; 16] = [
    "<unk>", "<end>", "you:", "me:", "hmm", "so", "look", "paris", "oslo", ".", "what", "is",
    "the", "weather", "?", "!",
];

/// Pairs of words, and the score of the second one after the first.
const SUCCESSORS: [(&str, &str, f32); 8] = [
    ("me:", "hmm", 3.0),
    ("hmm", "hmm", 3.0),
    ("hmm", "so", 2.0),
    ("so", "look", 3.0),
    ("look", "paris", 3.0),
    ("look", "oslo", 2.0),
    ("paris", ".", 3.0),
    ("oslo", ".", 3.0),
];

/// The score that a word loses if the whole text is that word.
const BOREDOM: f32 = 4.0;

/// Writes the files of the model into a new folder.
pub(crate) fn write(folder: &Path) -> Result<(), Box<dyn Error>> {
    let size = WORDS.len();
    let place = |word: &str| WORDS.iter().position(|known| *known == word).unwrap_or(0);
    let diagonal = |value: f32| {
        let mut matrix = vec![0.0; size * size];
        (0..size).for_each(|i| matrix[i * size + i] = value);
        matrix
    };
    // The row is the next word, the column is the last word. All texts end after a full stop.
    let mut successors = vec![0.0; size * size];
    for (last, next, score) in SUCCESSORS.into_iter().chain([(".", "<end>", 9.0)]) {
        successors[place(next) * size + place(last)] = score;
    }
    let tensors = [
        ("embedding.weight", diagonal(1.0)),
        ("successors.weight", successors),
        ("memory.weight", diagonal(-BOREDOM)),
    ];
    let bytes = tensors.map(|(name, values)| {
        (name, values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>())
    });
    let views = bytes.iter().map(|(name, bytes)| {
        TensorView::new(Dtype::F32, vec![size, size], bytes).map(|view| (*name, view))
    });
    let views = views.collect::<Result<BTreeMap<_, _>, safetensors::SafeTensorError>>()?;

    let config = json!({
        "architectures": [ARCHITECTURE],
        "vocab_size": size,
        "max_position_embeddings": 256,
    });
    let special = |id: usize| {
        json!({"id": id, "content": WORDS[id], "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true})
    };
    let vocab: BTreeMap<&str, usize> = WORDS.into_iter().zip(0..).collect();
    let tokenizer = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(0), special(1)],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null,
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"},
    });
    let chat_template = "{% for message in messages %}you: {{ message.content }} {% endfor %}\
                         {% if add_generation_prompt %}me:{% endif %}";
    let tokenizer_config = json!({"eos_token": "<end>", "chat_template": chat_template});

    fs::create_dir_all(folder)?;
    serialize_to_file(views, None, &folder.join("model.safetensors"))?;
    fs::write(folder.join("config.json"), config.to_string())?;
    fs::write(folder.join("tokenizer.json"), tokenizer.to_string())?;
    fs::write(folder.join("tokenizer_config.json"), tokenizer_config.to_string())?;
    Ok(())
}
