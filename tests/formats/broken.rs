//! GGUF files that are cut or changed. They are rejected with a message or read as something else.
//! They never cause a panic or a huge allocation.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use playhouse::model::{Dtype, LoadOptions, Model, ModelError, load_model};
use playhouse::text::HfTextCodec;
use tempfile::TempDir;

use crate::fixture;

fn load(model: &Path) -> Result<Arc<Model>, ModelError> {
    let options =
        LoadOptions { dtype: Dtype::Auto, max_model_len: Some(64), ..LoadOptions::default() };
    load_model(model, &options, &mut |_| {})
}

/// Returns the place where the data of the tensors begins: within 32 bytes after the last tensor's
/// description.
fn header_len(file: &[u8]) -> usize {
    let name = b"output_norm.weight";
    let at = file.windows(name.len()).position(|window| window == name).unwrap();
    at + name.len() + 4 + 8 + 4 + 8
}

#[test]
fn a_cut_file_is_refused_wherever_it_is_cut() {
    let whole = fs::read(fixture("llama.gguf")).unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cut.gguf");
    let header = header_len(&whole);
    assert!((500..5_000).contains(&header), "{header}");
    for length in (0..header).chain((header..whole.len() - 32).step_by(997)) {
        fs::write(&path, &whole[..length]).unwrap();
        let error = load(&path).err().unwrap_or_else(|| panic!("{length} bytes are enough"));
        let message = error.to_string();
        assert!(message.contains("cut.gguf: "), "{length} bytes: {message}");
        assert!(message.contains("truncated") || length < 4, "{length} bytes: {message}");
    }
}

#[test]
fn changed_bytes_of_the_header_are_refused_or_harmless() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("changed.gguf");
    for name in ["llama.gguf", "tokenizers/llama.gguf", "tokenizers/gpt-2.gguf"] {
        let whole = fs::read(fixture(name)).unwrap();
        let is_model = name == "llama.gguf";
        let header = if is_model { header_len(&whole) } else { whole.len() };
        let mut refused = 0;
        // The step over the positions is a prime, and the change differs from position to position.
        let step = if is_model { 3 } else { 37 };
        for (round, position) in (0..header).step_by(step).enumerate() {
            let mut changed = whole.clone();
            changed[position] = match round % 4 {
                0 => 0xFF,
                1 => 0,
                2 => changed[position].wrapping_add(1),
                _ => changed[position] ^ 0x80,
            };
            fs::write(&path, &changed).unwrap();
            let outcome = match is_model {
                true => load(&path).map(drop).map_err(|error| error.to_string()),
                false => HfTextCodec::load(&path).map(drop).map_err(|error| error.to_string()),
            };
            refused += usize::from(outcome.is_err());
        }
        assert!(refused > 10, "{name}: {refused}");
    }
}

#[test]
fn a_file_that_lies_about_its_model_is_rejected_by_key() {
    let whole = fs::read(fixture("llama.gguf")).unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("lies.gguf");
    // Writes a u32 after its key and its type.
    let with = |key: &str, value: u32| {
        let mut changed = whole.clone();
        let at = changed.windows(key.len()).position(|window| window == key.as_bytes()).unwrap();
        let at = at + key.len() + 4;
        changed[at..at + 4].copy_from_slice(&value.to_le_bytes());
        fs::write(&path, &changed).unwrap();
        load(&path).err().unwrap().to_string()
    };
    for (key, value, expected) in [
        ("llama.block_count", 0, "`llama.block_count` is 0; expected an integer from 1"),
        ("llama.block_count", 4_000_000_000, "`llama.block_count` is 4000000000; expected"),
        ("llama.block_count", 2, "tensor `blk.1.attn_norm.weight` of shape [64] is missing"),
        ("llama.embedding_length", 96, "`the tensor rope_freqs.weight` is [1.0"),
        ("llama.feed_forward_length", 64, "`blk.0.ffn_gate.weight` has shape [32, 64], but by the"),
        ("llama.attention.head_count", 3, "`llama.attention.head_count` is 3; expected a divisor"),
        ("llama.attention.head_count_kv", 0, "`llama.attention.head_count_kv` is 0; expected"),
        ("llama.rope.freq_base", 0, "`llama.rope.freq_base` is 0.0; expected a number above 0"),
    ] {
        let message = with(key, value);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn files_of_other_kinds_are_named() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("other.gguf");
    let message = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        load(&path).err().unwrap().to_string()
    };
    let expected = "not a valid GGUF file: it does not begin with `GGUF`";
    assert!(message(b"safetensors, perhaps").contains(expected));
    assert!(message(b"GGUF\x01\0\0\0").contains("version 1; versions 2 to 3 are read"));
    assert!(message(b"GGUF\0\0\0\x03").contains("big-endian"));
    let blocks = load(&fixture("blocks.gguf")).err().unwrap().to_string();
    assert!(blocks.contains("metadata `llama.embedding_length` is missing"), "{blocks}");
}
