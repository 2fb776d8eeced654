//! Compares tokenizers in GGUF files with their sources: the steps of the models' own
//! `tokenizer.json`, and sentencepiece itself.

use std::fs;
use std::path::{Path, PathBuf};

use playhouse::api::{ChatPrompt, TextCodec};
use playhouse::text::HfTextCodec;
use serde::Deserialize;
use serde_json::json;

use crate::fixture;

#[derive(Deserialize)]
struct Row {
    text: String,
    ids: Vec<u32>,
}

fn check(file: &str, name: &str) {
    check_files(&fixture(file), &fixture(&format!("tokenizers/{name}.json")));
}

fn check_files(model: &Path, rows: &Path) {
    let codec = HfTextCodec::load(model).unwrap();
    let rows: Vec<Row> = serde_json::from_slice(&fs::read(rows).unwrap()).unwrap();
    assert!(rows.len() > 10);
    for Row { text, ids } in rows {
        assert_eq!(codec.encode(&text, true).unwrap(), ids, "{}: {text:?}", model.display());
    }
}

#[test]
fn qwen2() {
    check("qwen3.gguf", "qwen2");
}

macro_rules! byte_level {
    ($($test:ident: $name:literal,)*) => {
        $(#[test] fn $test() { check(concat!("tokenizers/", $name, ".gguf"), $name); })*
    };
}

byte_level! {
    llama3: "llama-bpe",
    smollm: "smollm",
    gpt2: "gpt-2",
    gpt_oss: "gpt-4o",
    bloom: "bloom",
    seed_coder: "seed-coder",
    deepseek_v3: "deepseek-v3",
    falcon: "falcon",
    glm4: "glm4",
    kimi_k2: "kimi-k2",
    jais2: "jais-2",
    exaone_moe: "exaone-moe",
    gemma4: "gemma4",
    roberta: "roberta-bpe",
}

#[test]
fn sentencepiece() {
    check("tokenizers/llama.gguf", "llama");
    let codec = HfTextCodec::load(&fixture("tokenizers/llama.gguf")).unwrap();
    let text = "naïve 東京 🎭  two spaces";
    let ids = codec.encode(text, true).unwrap();
    assert_eq!(codec.decode(&ids, true).unwrap(), text);
}

/// The vocabulary is that of llama.cpp's converter. It has rules for characters.
#[test]
fn unigram() {
    let file = |name: &str| -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/converted_texts").join(name)
    };
    check_files(&file("t5.gguf"), &file("t5.tokens.json"));
    let codec = HfTextCodec::load(&file("t5.gguf")).unwrap();
    let ids = codec.encode("  fine ½", true).unwrap();
    assert_eq!(codec.decode(&ids, true).unwrap(), "fine 1/2");
}

#[test]
fn special_tokens_and_chat_template_come_along() {
    let codec = HfTextCodec::load(&fixture("qwen3.gguf")).unwrap();
    assert_eq!(codec.eos_token(), Some(("<|im_end|>".to_owned(), 284)));
    assert_eq!(codec.bos_token(), Some(("<|endoftext|>".to_owned(), 282)));
    assert!(codec.is_special(284) && !codec.is_special(285), "<tool_call> is text");
    // Entries that only fill up the vocabulary are not tokens.
    assert_eq!(codec.token_piece(287), None);
    let chat = ChatPrompt {
        messages: vec![json!({ "role": "user", "content": "Hi" })],
        add_generation_prompt: true,
        ..ChatPrompt::default()
    };
    let prompt = codec.render_chat(&chat).unwrap();
    assert_eq!(prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    let ids = codec.encode(&prompt, false).unwrap();
    assert_eq!(codec.decode(&ids, true).unwrap(), "user\nHi\nassistant\n");
}
