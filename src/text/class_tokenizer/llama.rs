//! HF `LlamaTokenizer`: a sentencepiece model of the kind BPE. The order of its pieces gives the
//! order of merges.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;

use super::super::sentencepiece::{ModelFile, PieceType, SentencePiece};
use super::super::tokenizer_files::TokenizerFiles;
use super::vocabulary::{Takes, Vocabulary, roles};
use super::{ClassFolder, TextLoadError};

/// Longer pieces are not cut, so that a file cannot make this slow. Sentencepiece's own have 16
/// characters at most, unless a training sets `max_sentencepiece_length`.
const PIECE_BYTES_MAX: usize = 512;

/// Reads the tokenizer.
pub(super) fn read(
    folder: &ClassFolder,
    files: &mut TokenizerFiles,
) -> Result<Tokenizer, TextLoadError> {
    let model = SentencePiece::read(&folder.bytes(0)?).map_err(|error| {
        TextLoadError::Tokenizer { path: folder.path(0), reason: error.to_string() }
    })?;
    let mut vocabulary = Vocabulary::new(Map::new());
    for (id, piece) in (0u32..).zip(&model.file().pieces) {
        vocabulary.push(&piece.text, id);
    }
    let named = roles(files, [("unk_token", "<unk>"), ("bos_token", "<s>"), ("eos_token", "</s>")]);
    for token in &named {
        vocabulary.push_last(token);
        vocabulary.mark_special(token, Takes::Nothing);
    }
    for piece in &model.file().pieces {
        match piece.kind {
            PieceType::Control => vocabulary.mark_special(&piece.text, Takes::Nothing),
            PieceType::UserDefined => vocabulary.mark_user_defined(&piece.text),
            _ => {}
        }
    }
    // Without the field there is no BOS in transformers 5. Version 4 had one.
    let around = super::ends(folder, files, false)?;
    let has_prefix = folder.flag_or("add_prefix_space", true)?;
    let scheme = match (has_prefix, folder.flag("legacy")?) {
        (false, _) => "never",
        (true, true) => "always",
        (true, false) => "first",
    };
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if has_prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    let parts = json!({
        "pre_tokenizer": {
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false,
        },
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": {
            "type": "BPE", "merges": merges(model.file()), "byte_fallback": true,
            "fuse_unk": true,
        },
    });
    vocabulary.tokenizer(folder, parts, &around.as_around())
}

/// Returns the pairs of pieces that make a piece. Pairs that are joined first come first.
fn merges(file: &ModelFile) -> Vec<Value> {
    let pieces = || (0u32..).zip(&file.pieces).map(|(id, piece)| (piece.text.as_str(), id));
    let ids: HashMap<&str, u32> = pieces().collect();
    let mut merges = Vec::new();
    for (piece, id) in pieces().filter(|(piece, _)| piece.len() <= PIECE_BYTES_MAX) {
        let cuts = piece.char_indices().skip(1).filter_map(|(at, _)| {
            let (left, right) = piece.split_at(at);
            let lengths = (left.chars().count(), right.chars().count());
            Some((id, lengths, (*ids.get(left)?, *ids.get(right)?), left, right))
        });
        merges.extend(cuts);
    }
    merges.sort();
    merges.into_iter().map(|(.., left, right)| json!([left, right])).collect()
}
