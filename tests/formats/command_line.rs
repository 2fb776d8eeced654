//! GGUF files and quantized folders as the model of a command.

use std::process::Command;

use crate::fixture;

fn playhouse(arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_playhouse")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_gguf_file_generates_and_tokenizes_as_a_folder_does() {
    let model = fixture("qwen3.gguf");
    let model = model.to_str().unwrap();
    let (ok, ids, stderr) = playhouse(&["tokenize", "-m", model, "Hello<|im_end|>"]);
    assert!(ok && ids.trim_end().ends_with(" 284"), "{ids}{stderr}");
    let arguments = ["generate", "-m", model, "--max-tokens", "4", "--temperature", "0", "Hello"];
    let (ok, text, stderr) = playhouse(&arguments);
    assert!(ok && !text.is_empty(), "{stderr}");
}

#[test]
fn a_tokenizer_of_ones_own_replaces_that_of_the_file() {
    let (model, tokenizer) = (fixture("llama.gguf"), fixture("tokenizers/llama.gguf"));
    let model = model.to_str().unwrap();
    let arguments = ["generate", "-m", model, "--max-tokens", "2", "Hello"];
    let (ok, _, stderr) = playhouse(&arguments);
    assert!(!ok && stderr.contains("metadata `tokenizer.ggml.model` is missing"), "{stderr}");
    // The tokenizer has more tokens than this model has embeddings, so it is rejected. The message
    // shows that it was read.
    let tokenizer = ["--tokenizer", tokenizer.to_str().unwrap()];
    let (ok, _, stderr) = playhouse(&[&arguments[..], &tokenizer].concat());
    assert!(!ok && stderr.contains("the model's vocab_size is 32"), "{stderr}");
}
