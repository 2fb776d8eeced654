//! `tekken.json`, the tokenizer file of Mistral's own tools, as the `tokenizer.json` that it
//! describes.
//!
//! The file has the bytes of each token by its rank, an expression that cuts texts, and the special
//! tokens, which take the first ids. It has no merges: two pieces become one if their bytes are a
//! token, the token of the lowest rank first. So every way to cut a token into two tokens is a
//! merge, in the order of the ranks.

use std::collections::HashMap;
use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;

use super::decoder::spelled;
use super::error::TextLoadError;
use super::tokenizer_files::TokenizerFiles;
use crate::model_files;

/// The file's name.
pub(super) const FILE: &str = "tekken.json";

/// Most tokens of a vocabulary.
const TOKENS_MAX: usize = 1 << 22;

/// The special tokens of files up to version 7, which do not list them.
const UNLISTED: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

/// The tokens with a role, by their field in `tokenizer_config.json`.
const ROLES: [(&str, &str); 4] =
    [("bos_token", "<s>"), ("eos_token", "</s>"), ("pad_token", "<pad>"), ("unk_token", "<unk>")];

#[derive(Deserialize)]
struct Tekken {
    config: Config,
    vocab: Vec<Token>,
    special_tokens: Option<Vec<SpecialToken>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
    version: String,
}

#[derive(Deserialize)]
struct Token {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct SpecialToken {
    rank: usize,
    token_str: String,
    is_control: bool,
}

/// Reads the file in the folder `model`, and completes the roles in `files`.
pub(super) fn read(model: &Path, files: &mut TokenizerFiles) -> Result<Tokenizer, TextLoadError> {
    let path = model.join(FILE);
    let bytes = model_files::read(&path)
        .map_err(|source| TextLoadError::Read { path: path.clone(), source })?;
    let tekken: Tekken = serde_json::from_slice(&bytes)
        .map_err(|source| TextLoadError::Json { path: path.clone(), source })?;
    let special = tekken.special(&path)?;
    for (field, content) in ROLES {
        if special.iter().any(|(known, _)| known == content) {
            files.named_tokens.entry(field.to_owned()).or_insert_with(|| content.to_owned());
        }
    }
    let failed = |reason: String| TextLoadError::Tokenizer { path: path.clone(), reason };
    let json = tekken.json(&path, &special)?;
    let json = serde_json::to_vec(&json).map_err(|error| failed(error.to_string()))?;
    Tokenizer::from_bytes(json).map_err(|error| failed(error.to_string()))
}

impl Tekken {
    /// Returns the special tokens by their ids, and whether each is left out of texts.
    fn special(&self, path: &Path) -> Result<Vec<(String, bool)>, TextLoadError> {
        const FIELD: &str = "special_tokens";
        let count = self.config.default_num_special_tokens;
        let sizes = count..=TOKENS_MAX;
        if !sizes.contains(&self.config.default_vocab_size) {
            let found = self.config.default_vocab_size.to_string();
            let expected = "at least default_num_special_tokens, and at most 4194304";
            return Err(field(path, "config.default_vocab_size", found, expected));
        }
        let mut tokens: Vec<(String, bool)> =
            (0..count).map(|id| (format!("<SPECIAL_{id}>"), true)).collect();
        let Some(listed) = &self.special_tokens else {
            if !matches!(&*self.config.version, "v1" | "v2" | "v3" | "v7") {
                let found = format!("absent in version {}", self.config.version);
                return Err(field(path, FIELD, found, "the list of special tokens"));
            }
            for (token, content) in tokens.iter_mut().zip(UNLISTED) {
                content.clone_into(&mut token.0);
            }
            return Ok(tokens);
        };
        for SpecialToken { rank, token_str, is_control } in listed {
            let Some(token) = tokens.get_mut(*rank) else {
                let expected = "ranks below default_num_special_tokens";
                return Err(field(path, FIELD, format!("{token_str} with rank {rank}"), expected));
            };
            *token = (token_str.clone(), *is_control);
        }
        Ok(tokens)
    }

    /// Returns the bytes of all other tokens by their ranks.
    fn tokens(&self, path: &Path) -> Result<Vec<Vec<u8>>, TextLoadError> {
        let count = self.config.default_vocab_size - self.config.default_num_special_tokens;
        if self.vocab.len() < count {
            let found = format!("a list of {} tokens", self.vocab.len());
            let expected = "default_vocab_size tokens, less the special ones";
            return Err(field(path, "vocab", found, expected));
        }
        let bytes = |(at, token): (usize, &Token)| {
            let bytes = STANDARD.decode(&token.token_bytes).ok();
            bytes.filter(|bytes| token.rank == at && !bytes.is_empty()).ok_or_else(|| {
                let found = format!("{:?} with rank {}", token.token_bytes, token.rank);
                field(
                    path,
                    &format!("vocab[{at}]"),
                    found,
                    "base64 of bytes, in the order of ranks",
                )
            })
        };
        self.vocab.iter().take(count).enumerate().map(bytes).collect()
    }

    /// Returns the `tokenizer.json`.
    fn json(&self, path: &Path, special: &[(String, bool)]) -> Result<Value, TextLoadError> {
        let tokens = self.tokens(path)?;
        let mut vocab: Map<String, Value> = special
            .iter()
            .enumerate()
            .map(|(id, (content, _))| (content.clone(), id.into()))
            .collect();
        if vocab.len() != special.len() {
            let found = "a name twice".to_owned();
            return Err(field(path, "special_tokens", found, "a name for each token"));
        }
        for (rank, bytes) in tokens.iter().enumerate() {
            // A text that spells a special token is that token, so the other cannot occur.
            vocab.entry(spelled(bytes)).or_insert_with(|| (special.len() + rank).into());
        }
        let added = special.iter().enumerate().map(|(id, (content, is_control))| {
            json!({
                "id": id, "content": content, "special": is_control, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            })
        });
        Ok(json!({
            "version": "1.0",
            "added_tokens": added.collect::<Vec<_>>(),
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {
                        "type": "Split", "pattern": { "Regex": self.config.pattern },
                        "behavior": "Isolated", "invert": false,
                    },
                    {
                        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                        "use_regex": false,
                    },
                ],
            },
            "post_processor": post_processor(special),
            "decoder": {
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false,
                "use_regex": false,
            },
            "model": {
                "type": "BPE", "vocab": vocab, "merges": merges(&tokens), "byte_fallback": false,
                "fuse_unk": false, "ignore_merges": true,
            },
        }))
    }
}

/// Returns the merges: each token's cuts into two tokens, in the order of ranks.
fn merges(tokens: &[Vec<u8>]) -> Vec<Value> {
    let ranks: HashMap<&[u8], usize> =
        tokens.iter().enumerate().map(|(rank, bytes)| (&**bytes, rank)).collect();
    let mut merges = Vec::new();
    for bytes in tokens {
        let cut = |at: usize| {
            let (left, right) = bytes.split_at(at);
            Some(([*ranks.get(left)?, *ranks.get(right)?], left, right))
        };
        let mut cuts: Vec<_> = (1..bytes.len()).filter_map(cut).collect();
        cuts.sort_by_key(|(ranks, ..)| *ranks);
        merges.extend(cuts.iter().map(|(_, left, right)| json!([spelled(left), spelled(right)])));
    }
    merges
}

/// Puts BOS before a text.
fn post_processor(special: &[(String, bool)]) -> Value {
    let Some(id) = special.iter().position(|(content, _)| content == "<s>") else {
        return Value::Null;
    };
    let text = |id: &str, kind: u32| json!({ "Sequence": { "id": id, "type_id": kind } });
    let bos = json!({ "SpecialToken": { "id": "<s>", "type_id": 0 } });
    json!({
        "type": "TemplateProcessing",
        "single": [bos, text("A", 0)],
        "pair": [bos, text("A", 0), text("B", 1)],
        "special_tokens": { "<s>": { "id": "<s>", "ids": [id], "tokens": ["<s>"] } },
    })
}

fn field(path: &Path, name: &str, found: String, expected: &'static str) -> TextLoadError {
    TextLoadError::Field { path: path.to_owned(), field: name.to_owned(), found, expected }
}

#[cfg(test)]
#[path = "tekken_tests.rs"]
mod tests;
