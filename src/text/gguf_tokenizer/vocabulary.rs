//! The tokens of a GGUF file with their types, by id.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::gguf::{GgufError, GgufFile};

const TOKENS: &str = "tokenizer.ggml.tokens";
const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";

/// The purpose of a token (`llama_token_type` of llama.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenType {
    /// A piece of text.
    Normal,
    /// The token for every text that has no piece.
    Unknown,
    /// A token with a meaning instead of a text.
    Control,
    /// Text that is found before anything is cut.
    UserDefined,
    /// A token that only fills the vocabulary.
    Unused,
    /// One byte.
    Byte,
}

/// All tokens.
#[derive(Debug)]
pub(super) struct Vocabulary<'a> {
    /// By id. A token with an empty text is never found in a text.
    pub(super) tokens: Vec<(&'a str, TokenType)>,
}

impl<'a> Vocabulary<'a> {
    pub(super) fn read(file: &'a GgufFile) -> Result<Self, GgufError> {
        let texts = file.texts(TOKENS)?.ok_or_else(|| file.missing(TOKENS, "a list of strings"))?;
        let types = match file.integers(TOKEN_TYPE)? {
            Some(types) if types.len() == texts.len() => {
                let types = types.into_iter().map(TokenType::from_number).collect::<Option<_>>();
                types.ok_or_else(|| file.unexpected(TOKEN_TYPE, "numbers from 0 to 6"))?
            }
            Some(_) => {
                let expected = format!("one for each of {} tokens", texts.len());
                return Err(file.unexpected(TOKEN_TYPE, expected));
            }
            None => vec![TokenType::Normal; texts.len()],
        };
        let mut seen = BTreeSet::new();
        if let Some(twice) = texts.iter().find(|text| !text.is_empty() && !seen.insert(**text)) {
            let shown: String = twice.chars().take(80).collect();
            let expected = format!("each token once; {shown:?} is there twice");
            return Err(file.unexpected(TOKENS, expected));
        }
        Ok(Self { tokens: texts.into_iter().zip(types).collect() })
    }

    /// Returns every token that has a text, with its id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &'a str, TokenType)> {
        let tokens = (0u32..).zip(&self.tokens);
        tokens
            .filter(|(_, (text, _))| !text.is_empty())
            .map(|(id, (text, kind))| (id, *text, *kind))
    }

    /// Returns `model.vocab` of a `tokenizer.json`: all tokens except unused ones.
    pub(super) fn json(&self) -> Map<String, Value> {
        let used = self.iter().filter(|(.., kind)| *kind != TokenType::Unused);
        used.map(|(id, text, _)| (text.to_owned(), id.into())).collect()
    }

    /// Returns `added_tokens` of a `tokenizer.json`: tokens that are found in a text before it is
    /// cut.
    pub(super) fn added_tokens(&self) -> Value {
        let added = self.iter().filter_map(|(id, content, kind)| {
            let special = match kind {
                TokenType::Control | TokenType::Unknown => true,
                TokenType::UserDefined => false,
                TokenType::Normal | TokenType::Unused | TokenType::Byte => return None,
            };
            Some(json!({
                "id": id, "content": content, "special": special, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            }))
        });
        added.collect()
    }

    /// Returns the token whose id stands under `key`, if the key exists and the token has a text.
    pub(super) fn token_under(
        &self,
        file: &GgufFile,
        key: &str,
    ) -> Result<Option<(u32, String)>, super::TextLoadError> {
        let Some(id) = file.unsigned(key)? else { return Ok(None) };
        let token = usize::try_from(id).ok().and_then(|id| self.tokens.get(id));
        let Some((text, _)) = token else {
            let expected = format!("the id of one of {} tokens", self.tokens.len());
            return Err(file.unexpected(key, expected).into());
        };
        // The list is shorter than 2^32, because each token takes bytes of the file.
        Ok((!text.is_empty()).then(|| (id as u32, (*text).to_owned())))
    }
}

impl TokenType {
    fn from_number(number: i64) -> Option<Self> {
        Some(match number {
            // 0 is "undefined", which some writers leave in place of the type.
            0 | 1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}
