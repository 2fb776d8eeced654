//! The files of the demo model, as parts of the program. They are a crate of their own, because
//! crates.io takes 10 MiB.

/// A stricter alignment than reading the tensors of a safetensors file as numbers needs.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

static WEIGHTS: &Aligned<[u8]> = &Aligned(*include_bytes!("model.safetensors"));
static DENSE_2: &Aligned<[u8]> = &Aligned(*include_bytes!("embedder/2_Dense/model.safetensors"));
static DENSE_3: &Aligned<[u8]> = &Aligned(*include_bytes!("embedder/3_Dense/model.safetensors"));

/// The files with their names: those of the model, and those that the embedder has by itself.
pub static FILES: &[(&str, &[u8])] = &[
    ("config.json", include_bytes!("config.json")),
    ("generation_config.json", include_bytes!("generation_config.json")),
    ("model.safetensors", &WEIGHTS.0),
    ("tokenizer.json", include_bytes!("tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("tokenizer_config.json")),
    ("chat_template.jinja", include_bytes!("chat_template.jinja")),
    ("embedder/modules.json", include_bytes!("embedder/modules.json")),
    ("embedder/sentence_bert_config.json", include_bytes!("embedder/sentence_bert_config.json")),
    ("embedder/1_Pooling/config.json", include_bytes!("embedder/1_Pooling/config.json")),
    ("embedder/2_Dense/config.json", include_bytes!("embedder/2_Dense/config.json")),
    ("embedder/2_Dense/model.safetensors", &DENSE_2.0),
    ("embedder/3_Dense/config.json", include_bytes!("embedder/3_Dense/config.json")),
    ("embedder/3_Dense/model.safetensors", &DENSE_3.0),
];
