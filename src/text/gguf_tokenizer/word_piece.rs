//! `bert`: WordPiece. The file has `▁` before words, and nothing before pieces that go on.

use serde_json::{Map, Value, json};

use super::byte_level::object;
use super::sentencepiece::UNKNOWN;
use super::vocabulary::{TokenType, Vocabulary};
use super::{Surround, TextLoadError};
use crate::gguf::GgufFile;

const LOWERCASE: &str = "tokenizer.ggml.normalizer.lowercase";
const STRIP_ACCENTS: &str = "tokenizer.ggml.normalizer.strip_accents";
/// The characters before pieces that go on, in a `tokenizer.json`.
const GOES_ON: &str = "##";

/// Returns the `tokenizer.json` that the metadata describes.
pub(super) fn read(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
) -> Result<(Map<String, Value>, Surround), TextLoadError> {
    let Some((_, unknown)) = vocabulary.token_under(file, UNKNOWN)? else {
        return Err(file.missing(UNKNOWN, "the token of unknown words").into());
    };
    // llama.cpp's defaults.
    let lowercase = file.flag(LOWERCASE)?.unwrap_or(true);
    let strip_accents = file.flag(STRIP_ACCENTS)?.unwrap_or(lowercase);
    let used = vocabulary.iter().filter(|(.., kind)| *kind != TokenType::Unused);
    let pieces: Map<String, Value> =
        used.map(|(id, text, kind)| (piece(text, kind), id.into())).collect();
    let json = json!({
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": strip_accents, "lowercase": lowercase,
        },
        "pre_tokenizer": { "type": "BertPreTokenizer" },
        "decoder": { "type": "WordPiece", "prefix": GOES_ON, "cleanup": true },
        "model": {
            "type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": GOES_ON,
            "max_input_chars_per_word": 100, "vocab": pieces,
        },
    });
    Ok((object(json), Surround { bos: true, eos: true }))
}

/// Returns the text of a token in a `tokenizer.json`.
fn piece(text: &str, kind: TokenType) -> String {
    match (kind, text.strip_prefix('▁')) {
        (TokenType::Normal, Some(word)) if !word.is_empty() => word.to_owned(),
        (TokenType::Normal, None) => format!("{GOES_ON}{text}"),
        _ => text.to_owned(),
    }
}
