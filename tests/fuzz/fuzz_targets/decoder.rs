//! Tokens to text: for all tokens, the pieces joined are the whole text.
//!
//! An input is a byte of options, a byte with the number of prompt tokens, and two bytes a token.
#![no_main]

use std::{path::Path, sync::LazyLock};

use libfuzzer_sys::fuzz_target;
use playhouse::text::HfTextCodec;
use playhouse_actors::ports::{DecodeOptions, TextCodec};

static CODEC: LazyLock<HfTextCodec> = LazyLock::new(|| {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/demo-model"));
    HfTextCodec::load(folder).unwrap()
});

/// Returns the text of `output`, decoded one token at a time.
fn streamed(prompt: &[u32], output: &[u32], options: DecodeOptions) -> String {
    let mut decoder = CODEC.decoder(prompt, options);
    let mut text = String::new();
    for &token in output {
        text.push_str(&decoder.push(token).unwrap());
    }
    text.push_str(&decoder.flush());
    text
}

fuzz_target!(|data: &[u8]| {
    let Some(([options, prompt_len], tokens)) = data.split_first_chunk::<2>() else { return };
    let skip_special_tokens = options & 1 != 0;
    let options = DecodeOptions { skip_special_tokens, ..DecodeOptions::default() };
    let pairs = tokens.as_chunks::<2>().0;
    let tokens: Vec<u32> = pairs.iter().map(|pair| u16::from_le_bytes(*pair).into()).collect();
    let whole = CODEC.decode(&tokens, skip_special_tokens).unwrap();
    assert_eq!(streamed(&[], &tokens, options), whole);
    // The same after a prompt. The text before the output belongs to the prompt, except a character
    // that the prompt left unfinished.
    let (prompt, output) = tokens.split_at((*prompt_len as usize).min(tokens.len()));
    let text = streamed(prompt, output, options);
    assert!(whole.ends_with(&text), "{text:?} does not end {whole:?}");
});
