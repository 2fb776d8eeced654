//! `t5`: a sentencepiece unigram model, with the rules that bring a text into its form.

use serde_json::{Map, Value};

use super::byte_level::object;
use super::sentencepiece::{UNKNOWN, scores};
use super::vocabulary::{TokenType, Vocabulary};
use super::{Surround, TextLoadError};
use crate::gguf::{GgufError, GgufFile};
use crate::text::class_tokenizer::PieceTokenizer;
use crate::text::sentencepiece::{ModelFile, PieceType, SentencePiece, VocabularyPiece};

const SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
const EXTRA_SPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";
const RULES: &str = "tokenizer.ggml.precompiled_charsmap";
const EOS: &str = "tokenizer.ggml.eos_token_id";

/// Returns the `tokenizer.json` of the vocabulary, and the model that cuts texts.
pub(super) fn read(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
) -> Result<(Map<String, Value>, PieceTokenizer, Surround), TextLoadError> {
    let scores = scores(file, vocabulary)?;
    let marked = || vocabulary.iter().find(|(.., kind)| *kind == TokenType::Unknown);
    let unknown = match vocabulary.token_under(file, UNKNOWN)? {
        Some(token) => Some(token),
        None => marked().map(|(id, text, _)| (id, text.to_owned())),
    };
    let Some((unknown, text_of_unknown)) = unknown else {
        return Err(file.missing(UNKNOWN, "the token of unknown text").into());
    };
    if !file.has(EOS) {
        return Err(file.missing(EOS, "the token behind a text").into());
    }
    let pieces = vocabulary.tokens.iter().zip(scores).map(|((text, kind), score)| {
        // No text has an empty piece.
        let kind = if text.is_empty() { PieceType::Control } else { piece_type(*kind) };
        VocabularyPiece { text: (*text).to_owned(), score, kind }
    });
    let has_bytes = vocabulary.iter().any(|(.., kind)| kind == TokenType::Byte);
    let flag = |key: &str| Ok::<_, GgufError>(file.flag(key)?.unwrap_or(false));
    let model = ModelFile {
        pieces: pieces.collect(),
        has_byte_fallback: has_bytes,
        precompiled_charsmap: rules(file)?,
        add_dummy_prefix: flag(SPACE_PREFIX)?,
        remove_extra_whitespaces: flag(EXTRA_SPACES)?,
        ..ModelFile::default()
    };
    let model = SentencePiece::of(model).map_err(|error| TextLoadError::Tokenizer {
        path: file.path().to_owned(),
        reason: error.to_string(),
    })?;
    let mut json = PieceTokenizer::parts(&model, &text_of_unknown);
    json["model"]["vocab"] = vocabulary.json().into();
    let surround = Surround { bos: false, eos: true };
    Ok((object(json), PieceTokenizer::of_pieces(model, unknown), surround))
}

/// Returns the replacements of characters: bytes, with or without a sign.
fn rules(file: &GgufFile) -> Result<Vec<u8>, GgufError> {
    let byte = |number: i64| {
        let signed = || i8::try_from(number).ok().map(i8::cast_unsigned);
        u8::try_from(number).ok().or_else(signed)
    };
    let numbers = file.integers(RULES)?.unwrap_or_default();
    let bytes = numbers.into_iter().map(byte).collect::<Option<_>>();
    bytes.ok_or_else(|| file.unexpected(RULES, "a list of bytes"))
}

fn piece_type(kind: TokenType) -> PieceType {
    match kind {
        TokenType::Normal => PieceType::Normal,
        TokenType::Unknown => PieceType::Unknown,
        TokenType::Control => PieceType::Control,
        TokenType::UserDefined => PieceType::UserDefined,
        TokenType::Unused => PieceType::Unused,
        TokenType::Byte => PieceType::Byte,
    }
}
