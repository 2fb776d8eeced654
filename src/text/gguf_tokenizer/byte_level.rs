//! `gpt2`: byte-level BPE with its merges.

use serde_json::{Map, Value, json};

use super::pre_tokenizer::PreTokenizer;
use super::vocabulary::Vocabulary;
use super::{Surround, TextLoadError};
use crate::gguf::GgufFile;

const PRE: &str = "tokenizer.ggml.pre";
const MERGES: &str = "tokenizer.ggml.merges";

/// Returns the `tokenizer.json` that the metadata describes.
pub(super) fn read(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
) -> Result<(Map<String, Value>, Surround), TextLoadError> {
    let name = file.text(PRE)?.unwrap_or_else(|| {
        tracing::warn!("{}: no `{PRE}`: texts are cut by the default rule", file.path().display());
        "default"
    });
    let pre = PreTokenizer::by_name(name).ok_or_else(|| TextLoadError::UnknownKind {
        path: file.path().to_owned(),
        key: PRE,
        found: name.to_owned(),
        expected: format!("one of {}", PreTokenizer::names()),
    })?;
    let merges = merges(file)?;
    let json = json!({
        "normalizer": pre.nfc.then(|| json!({ "type": "NFC" })),
        "pre_tokenizer": pre.json(),
        "decoder": {
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
            "use_regex": false,
        },
        "model": {
            "type": "BPE", "vocab": vocabulary.json(), "merges": merges, "byte_fallback": false,
            "fuse_unk": false, "ignore_merges": pre.ignore_merges,
        },
    });
    let surround = Surround { bos: pre.add_bos, eos: false };
    Ok((object(json), surround))
}

/// Returns the pairs of tokens that are joined, the first ones first.
pub(super) fn merges(file: &GgufFile) -> Result<Vec<Value>, TextLoadError> {
    let merges = file.texts(MERGES)?.ok_or_else(|| file.missing(MERGES, "a list of strings"))?;
    // The first half may begin with a space of its own. Neither half is empty.
    let pair = |merge: &&str| {
        let second = merge.char_indices().nth(1)?.0;
        let space = second + merge[second..].find(' ')?;
        Some(json!([merge[..space], merge[space + 1..]]))
    };
    let merges: Option<Vec<Value>> = merges.iter().map(pair).collect();
    Ok(merges.ok_or_else(|| file.unexpected(MERGES, "two tokens apart by a space"))?)
}

/// Returns the fields of an object.
pub(super) fn object(json: Value) -> Map<String, Value> {
    match json {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}
