//! One token at a time compared with the whole sequence, over tokenizers built here.

use std::sync::Arc;

use playhouse_actors::ports::DecodeOptions;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizers::Tokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::{Family, decode, incremental};

const WORDS: [&str; 12] =
    ["▁Hello", "▁", "▁▁", "world", "é", "终", "🦀", "▁你好", "a", ".", "<0x", "\u{FFFD}"];
/// Bytes that form characters, and some that do not.
const BYTES: &[u8] = b"\x20a\xc3\xa9\xe5\x8f\xab\xf0\x9f\xa6\x80\xff\xed\xa0";

const SPECIAL: &str = "<|end|>";
const ADDED: &str = "<tool call>";

fn tokenizer(model: Value, decoder: Value) -> Arc<Tokenizer> {
    let vocab_len = model["vocab"].as_object().map_or(0, serde_json::Map::len);
    let added = |offset: usize, content: &str, special: bool| {
        json!({
            "id": vocab_len + offset, "content": content, "special": special, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        })
    };
    let file = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": decoder, "model": model,
        "added_tokens": [added(0, SPECIAL, true), added(1, ADDED, false)],
    });
    Arc::new(Tokenizer::from_bytes(file.to_string()).unwrap())
}

fn bpe(vocab: impl IntoIterator<Item = String>, byte_fallback: bool) -> Value {
    let vocab: Value =
        vocab.into_iter().enumerate().map(|(id, token)| (token, json!(id))).collect();
    json!({"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": byte_fallback})
}

/// Returns a tokenizer with every byte, and some longer tokens that begin and end inside
/// characters.
fn byte_level() -> Arc<Tokenizer> {
    let mut alphabet: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    alphabet.sort_unstable();
    let longer = ["Ġworld", "ä½ł", "å¥", "½ð", "ŁĤ", "ðŁ", "¦Ģ", "Ã©Ã"].map(str::to_owned);
    let vocab = alphabet.into_iter().map(String::from).chain(longer);
    let decoder = json!({
        "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
    });
    tokenizer(bpe(vocab, false), decoder)
}

/// Returns a tokenizer like that of Llama 2 and Mistral (`strip`) or of Gemma (without).
fn sentencepiece(strip: bool) -> Arc<Tokenizer> {
    let bytes = BYTES.iter().map(|byte| format!("<0x{byte:02X}>"));
    let vocab = bytes.chain(WORDS.map(str::to_owned));
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if strip {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    tokenizer(bpe(vocab, true), json!({"type": "Sequence", "decoders": steps}))
}

fn metaspace() -> Arc<Tokenizer> {
    let vocab = WORDS.map(str::to_owned);
    let decoder = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"});
    tokenizer(bpe(vocab, false), decoder)
}

fn wordpiece() -> Arc<Tokenizer> {
    let words = ["[UNK]", "hello", "##ing", "wor", "##ld", "##é", "终", "!", "it", "'", "s"];
    let vocab: Value =
        words.iter().enumerate().map(|(id, &word)| (word.to_owned(), json!(id))).collect();
    let model = json!({
        "type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]",
        "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
    });
    tokenizer(model, json!({"type": "WordPiece", "prefix": "##", "cleanup": true}))
}

fn suffix_bpe() -> Arc<Tokenizer> {
    let vocab = ["hel", "lo</w>", "world</w>", "终</w>", "a"].map(str::to_owned);
    tokenizer(bpe(vocab, false), json!({"type": "BPEDecoder", "suffix": "</w>"}))
}

fn no_decoder() -> Arc<Tokenizer> {
    tokenizer(bpe(["ab", "c", "终"].map(str::to_owned), false), Value::Null)
}

fn options(skip_special_tokens: bool) -> DecodeOptions {
    DecodeOptions { skip_special_tokens, ..DecodeOptions::default() }
}

/// Returns the text of all pushes and the flush, and that of the pushes alone.
fn streamed(tokenizer: &Arc<Tokenizer>, prompt: &[u32], output: &[u32], skip: bool) -> [String; 2] {
    let family = Family::of(tokenizer);
    let mut decoder = incremental(tokenizer, &family, prompt, options(skip));
    let pushed: String = output.iter().map(|&token| decoder.push(token).unwrap()).collect();
    [format!("{pushed}{}", decoder.flush()), pushed]
}

fn ids(tokenizer: &Tokenizer, tokens: &[&str]) -> Vec<u32> {
    tokens.iter().map(|token| tokenizer.token_to_id(token).unwrap()).collect()
}

/// Returns tokens of `tokenizer`, and one id past its end.
fn tokens(
    tokenizer: &Tokenizer,
    len: std::ops::Range<usize>,
) -> impl Strategy<Value = Vec<u32>> + use<> {
    let unknown = u32::try_from(tokenizer.get_vocab_size(true)).unwrap();
    prop::collection::vec(0..=unknown, len)
}

/// Returns the bytes of runs of byte tokens, split at the texts between them.
fn byte_runs(tokenizer: &Tokenizer, tokens: &[u32], skip: bool) -> Vec<Vec<u8>> {
    let mut runs = vec![Vec::new()];
    for &token in tokens {
        let Some(piece) = super::visible_piece(tokenizer, skip, token) else { continue };
        match super::byte_fallback::byte(&piece) {
            Some(byte) => runs.last_mut().unwrap().push(byte),
            None => runs.push(Vec::new()),
        }
    }
    runs
}

#[test]
fn the_families_are_recognised() {
    assert!(matches!(Family::of(&byte_level()), Family::ByteLevel));
    assert!(matches!(Family::of(&sentencepiece(true)), Family::ByteFallback(_)));
    assert!(matches!(Family::of(&sentencepiece(false)), Family::ByteFallback(_)));
    for other in [metaspace(), wordpiece(), suffix_bpe(), no_decoder()] {
        assert!(matches!(Family::of(&other), Family::Other));
    }
}

#[test]
fn half_a_character_is_held_back_and_comes_out_whole() {
    let byte_level = byte_level();
    let crab = ids(&byte_level, &["ð", "Ł", "¦", "Ģ"]);
    let mut decoder = incremental(&byte_level, &Family::ByteLevel, &[], options(true));
    let pushed: Vec<String> = crab.iter().map(|&token| decoder.push(token).unwrap()).collect();
    assert_eq!(pushed, ["", "", "", "🦀"]);
    assert_eq!(streamed(&byte_level, &[], &crab[..3], true), ["\u{FFFD}", ""]);

    let sentencepiece = sentencepiece(true);
    let crab = ids(&sentencepiece, &["<0xF0>", "<0x9F>", "<0xA6>", "<0x80>"]);
    assert_eq!(streamed(&sentencepiece, &[], &crab, true), ["🦀", "🦀"]);
    assert_eq!(streamed(&sentencepiece, &[], &crab[..3], true), ["\u{FFFD}\u{FFFD}\u{FFFD}", ""]);
    assert_eq!(streamed(&sentencepiece, &crab[..2], &crab[2..], true), ["🦀", "🦀"]);
}

#[test]
fn a_leading_space_is_stripped_at_the_very_start_only() {
    for tokenizer in [sentencepiece(true), metaspace()] {
        let hello = ids(&tokenizer, &["▁Hello"]);
        let end = ids(&tokenizer, &[SPECIAL]);
        assert_eq!(streamed(&tokenizer, &[], &hello, true)[0], "Hello");
        assert_eq!(streamed(&tokenizer, &end, &hello, true)[0], "Hello", "the prompt has no text");
        assert_eq!(streamed(&tokenizer, &hello, &hello, true)[0], " Hello");
        assert_eq!(streamed(&tokenizer, &hello, &end, false)[0], SPECIAL);
    }
    let gemma = sentencepiece(false);
    assert_eq!(streamed(&gemma, &[], &ids(&gemma, &["▁Hello"]), true)[0], " Hello");
}

#[test]
fn a_run_that_breaks_late_keeps_what_was_shown() {
    let tokenizer = sentencepiece(true);
    let run = ids(&tokenizer, &["<0xE5>", "<0x8F>", "<0xAB>", "<0xFF>", "<0x61>", "a"]);
    assert_eq!(streamed(&tokenizer, &[], &run, true)[0], "叫\u{FFFD}\u{FFFD}a");
}

#[test]
fn unknown_ids_have_no_text() {
    for tokenizer in [byte_level(), sentencepiece(true), suffix_bpe(), no_decoder()] {
        assert_eq!(streamed(&tokenizer, &[70_000], &[80_000, 90_000], false)[0], "");
        assert_eq!(decode(&tokenizer, &[80_000], true).unwrap(), "");
        assert_eq!(Family::of(&tokenizer).token_bytes(&tokenizer, 80_000), b"");
    }
}

#[test]
fn added_tokens_are_joined_where_asked() {
    let tokenizer = wordpiece();
    let output = ids(&tokenizer, &["hello", ADDED, ADDED, SPECIAL, "wor", "##ld"]);
    let joined = DecodeOptions { skip_special_tokens: false, spaces_between_special_tokens: false };
    let mut decoder = incremental(&tokenizer, &Family::Other, &[], joined);
    let text: String = output.iter().map(|&token| decoder.push(token).unwrap()).collect();
    assert_eq!(text, "hello <tool call><tool call><|end|> world");
    let spaced = streamed(&tokenizer, &[], &output, false);
    assert_eq!(spaced[0], "hello <tool call> <tool call> <|end|> world");
}

#[test]
fn the_bytes_of_tokens_are_those_of_the_text() {
    let exact = |tokenizer: &Tokenizer, token: &str| {
        let id = tokenizer.token_to_id(token).unwrap();
        Family::of(tokenizer).token_bytes(tokenizer, id)
    };
    assert_eq!(exact(&byte_level(), "ðŁ"), b"\xf0\x9f");
    assert_eq!(exact(&byte_level(), "Ġworld"), b" world");
    assert_eq!(exact(&byte_level(), ADDED), ADDED.as_bytes());
    assert_eq!(exact(&sentencepiece(true), "<0xE5>"), b"\xe5");
    assert_eq!(exact(&sentencepiece(true), "▁Hello"), b" Hello");
    assert_eq!(exact(&metaspace(), "▁Hello"), b" Hello");
    assert_eq!(exact(&wordpiece(), "##ing"), b"ing");
    assert_eq!(exact(&wordpiece(), "hello"), b" hello");
}

#[test]
fn held_text_is_bounded_and_no_push_is_slow() {
    // Sixty thousand bytes that are not UTF-8: a window over them would take minutes.
    let byte_level = byte_level();
    let invalid = ids(&byte_level, &["ÿ"]).repeat(60_000);
    assert_eq!(streamed(&byte_level, &[], &invalid, true)[1].chars().count(), 60_000);
    let other = metaspace();
    let invalid = ids(&other, &["\u{FFFD}"]).repeat(10_000);
    assert_eq!(streamed(&other, &[], &invalid, true)[0].chars().count(), 10_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn byte_level_equals_the_whole_decode(
        prompt in tokens(&byte_level(), 0..6),
        output in tokens(&byte_level(), 0..40),
        skip: bool,
    ) {
        let tokenizer = byte_level();
        let [text, pushed] = streamed(&tokenizer, &prompt, &output, skip);
        let whole = decode(&tokenizer, &[&prompt[..], &output].concat(), skip).unwrap();
        prop_assert!(whole.ends_with(&text), "{text:?} does not end {whole:?}");
        // The text before it is the prompt's, without a character that the prompt left unfinished.
        let before = &whole[..whole.len() - text.len()];
        let prompt_text = decode(&tokenizer, &prompt, skip).unwrap();
        let unfinished = format!("{before}\u{FFFD}");
        prop_assert!(prompt_text == before || prompt_text == unfinished);
        prop_assert!(text.starts_with(&pushed));
    }

    #[test]
    fn sentencepiece_equals_the_whole_decode(
        output in tokens(&sentencepiece(true), 0..24),
        strip: bool,
        skip: bool,
    ) {
        let tokenizer = sentencepiece(strip);
        let text = &streamed(&tokenizer, &[], &output, skip)[0];
        // Runs that break after a complete character differ by design.
        let breaks_late = byte_runs(&tokenizer, &output, skip).iter().any(|run| {
            std::str::from_utf8(run).is_err_and(|error| error.valid_up_to() > 0)
        });
        let whole = decode(&tokenizer, &output, skip).unwrap();
        if breaks_late {
            prop_assert!(text.chars().count() <= whole.chars().count());
        } else {
            prop_assert_eq!(text, &whole);
        }
    }

    #[test]
    fn a_sentencepiece_prompt_is_context(
        prompt in tokens(&sentencepiece(true), 0..8),
        output in tokens(&sentencepiece(true), 0..16),
        skip: bool,
    ) {
        let tokenizer = sentencepiece(true);
        let all = [&prompt[..], &output].concat();
        let text = &streamed(&tokenizer, &prompt, &output, skip)[0];
        let whole = &streamed(&tokenizer, &[], &all, skip)[0];
        prop_assert!(whole.ends_with(text), "{text:?} does not end {whole:?}");
        let prompt_shown = &streamed(&tokenizer, &[], &prompt, skip)[1];
        prop_assert_eq!(&whole[..whole.len() - text.len()], prompt_shown);
    }

    #[test]
    fn other_decoders_equal_the_whole_decode(
        which in 0usize..4,
        picks in prop::collection::vec(0u32..64, 0..24),
        prompt_len in 0usize..6,
        skip: bool,
    ) {
        let tokenizer = [metaspace(), wordpiece(), suffix_bpe(), no_decoder()][which].clone();
        // U+FFFD in the vocabulary itself looks like half a character, so it is left out here.
        let count = u32::try_from(tokenizer.get_vocab_size(true)).unwrap() + 1;
        let replacement = tokenizer.token_to_id("\u{FFFD}");
        let all: Vec<u32> =
            picks.iter().map(|pick| pick % count).filter(|&id| Some(id) != replacement).collect();
        let (prompt, output) = all.split_at(prompt_len.min(all.len()));
        let text = &streamed(&tokenizer, prompt, output, skip)[0];
        let whole = decode(&tokenizer, &all, skip).unwrap();
        let prompt_text = decode(&tokenizer, prompt, skip).unwrap();
        prop_assert_eq!(format!("{prompt_text}{text}"), whole);
    }
}
