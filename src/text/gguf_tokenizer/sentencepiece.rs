//! `llama`: a sentencepiece BPE model, which has scores where others have merges.
//!
//! Two pieces may be joined if their text is a piece. The one with the highest score comes first.
//! As merges, these are all ways to cut each piece in two pieces, in the order of scores
//! (`generate_merges` of `transformers/convert_slow_tokenizer.py`).

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::byte_level::{self, object};
use super::vocabulary::{TokenType, Vocabulary};
use super::{Surround, TextLoadError};
use crate::gguf::GgufFile;

const SCORES: &str = "tokenizer.ggml.scores";
pub(super) const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
const SPACE_PREFIX: &str = "tokenizer.ggml.add_space_prefix";
/// Longer pieces are not cut, so that a file cannot make this slow. Sentencepiece's own have 16
/// characters at most, unless a training sets `max_sentencepiece_length`.
const PIECE_BYTES_MAX: usize = 512;

/// Returns the `tokenizer.json` that the metadata describes.
pub(super) fn read(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
) -> Result<(Map<String, Value>, Surround), TextLoadError> {
    let merges = merges(vocabulary, &scores(file, vocabulary)?);
    let prefix = file.flag(SPACE_PREFIX)?.unwrap_or(true);
    Ok((json_of(file, vocabulary, merges, prefix)?, Surround { bos: true, eos: false }))
}

/// Returns the score of each token.
pub(super) fn scores(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
) -> Result<Vec<f32>, TextLoadError> {
    let count = vocabulary.tokens.len();
    let expected = || format!("a number for each of {count} tokens");
    let scores = file.numbers(SCORES)?.ok_or_else(|| file.missing(SCORES, expected()))?;
    match scores.len() != count || scores.iter().any(|score| score.is_nan()) {
        true => Err(file.unexpected(SCORES, expected()).into()),
        false => Ok(scores),
    }
}

/// Returns the same of a file of Gemma 4, which has the merges.
pub(super) fn read_with_merges(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
) -> Result<(Map<String, Value>, Surround), TextLoadError> {
    let merges = byte_level::merges(file)?;
    let prefix = file.flag(SPACE_PREFIX)?.unwrap_or(false);
    Ok((json_of(file, vocabulary, merges, prefix)?, Surround { bos: true, eos: false }))
}

fn json_of(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
    merges: Vec<Value>,
    prefix: bool,
) -> Result<Map<String, Value>, TextLoadError> {
    let unknown = vocabulary.token_under(file, UNKNOWN)?;
    let unknown = unknown.map(|(_, content)| content).or_else(|| {
        let marked = vocabulary.iter().find(|(.., kind)| *kind == TokenType::Unknown);
        marked.map(|(_, content, _)| content.to_owned())
    });
    let has_bytes = vocabulary.iter().any(|(.., kind)| kind == TokenType::Byte);
    let mut normalizers = vec![json!({
        "type": "Replace", "pattern": { "String": " " }, "content": "▁",
    })];
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if prefix {
        normalizers.insert(0, json!({ "type": "Prepend", "prepend": "▁" }));
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    let json = json!({
        "normalizer": { "type": "Sequence", "normalizers": normalizers },
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": {
            "type": "BPE", "vocab": vocabulary.json(), "merges": merges,
            "unk_token": unknown, "byte_fallback": has_bytes, "fuse_unk": true,
        },
    });
    Ok(object(json))
}

/// Returns the pairs of pieces that make a piece. Pairs that are joined first come first.
fn merges(vocabulary: &Vocabulary<'_>, scores: &[f32]) -> Vec<Value> {
    let is_piece = |kind| matches!(kind, TokenType::Normal | TokenType::UserDefined);
    let pieces: HashMap<&str, u32> = vocabulary
        .iter()
        .filter(|(.., kind)| is_piece(*kind))
        .map(|(id, text, _)| (text, id))
        .collect();
    let mut merges = Vec::new();
    for (id, piece, kind) in vocabulary.iter() {
        if kind != TokenType::Normal || piece.len() > PIECE_BYTES_MAX {
            continue;
        }
        let mut cuts = Vec::new();
        for (at, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(at);
            if let (Some(first), Some(second)) = (pieces.get(left), pieces.get(right)) {
                cuts.push((*first, *second, left, right));
            }
        }
        cuts.sort_by_key(|(first, second, ..)| (*first, *second));
        let score = scores[id as usize];
        merges.extend(cuts.into_iter().map(|(.., left, right)| (score, left, right)));
    }
    // The sort is stable. Equal scores are ordered by the lengths of the parts, the longer first.
    let chars = |text: &str| Reverse(text.chars().count());
    merges.sort_by(|(a, a_left, a_right), (b, b_left, b_right)| {
        let lengths = (chars(a_left), chars(a_right)).cmp(&(chars(b_left), chars(b_right)));
        b.total_cmp(a).then(lengths)
    });
    merges.into_iter().map(|(_, left, right)| json!([left, right])).collect()
}
