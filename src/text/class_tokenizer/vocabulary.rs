//! The `tokenizer.json` that files and the special tokens of a class describe.

use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;

use super::super::tokenizer_files::TokenizerFiles;
use super::{ClassFolder, TextLoadError};

/// Tokens with their ids, and the special ones among them.
#[derive(Debug, Default)]
pub(super) struct Vocabulary {
    tokens: Map<String, Value>,
    added: Vec<Value>,
}

/// The white space that a special token takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Takes {
    Nothing,
    Before,
    BothSides,
}

impl Vocabulary {
    /// Returns a vocabulary with these tokens.
    pub(super) fn new(tokens: Map<String, Value>) -> Self {
        Self { tokens, added: Vec::new() }
    }

    /// Adds a token, unless an earlier one has its text.
    pub(super) fn push(&mut self, token: &str, id: u32) {
        self.tokens.entry(token.to_owned()).or_insert_with(|| id.into());
    }

    /// Returns the id of a token.
    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.tokens.get(token)?.as_u64().and_then(|id| u32::try_from(id).ok())
    }

    /// Adds a token behind all others, unless there is one with its text. Some configs name an
    /// empty token, which no text has.
    pub(super) fn push_last(&mut self, token: &str) {
        if !token.is_empty() {
            self.push(token, self.tokens.len() as u32);
        }
    }

    /// Makes a token special, if it exists.
    pub(super) fn mark_special(&mut self, token: &str, takes: Takes) {
        self.mark(token, true, takes);
    }

    /// Makes a token that is found in texts before they are cut of one that exists.
    pub(super) fn mark_user_defined(&mut self, token: &str) {
        self.mark(token, false, Takes::Nothing);
    }

    fn mark(&mut self, token: &str, is_special: bool, takes: Takes) {
        let Some(id) = self.id(token) else { return };
        if self.added.iter().any(|added| added["id"] == id) {
            return;
        }
        let (lstrip, rstrip) = match takes {
            Takes::Nothing => (false, false),
            Takes::Before => (true, false),
            Takes::BothSides => (true, true),
        };
        self.added.push(json!({
            "id": id, "content": token, "special": is_special, "normalized": false,
            "single_word": false, "lstrip": lstrip, "rstrip": rstrip,
        }));
    }

    /// Returns a tokenizer with these tokens, and with `parts` of a `tokenizer.json`. The model in
    /// them lacks the vocabulary.
    ///
    /// # Errors
    /// [`TextLoadError::Tokenizer`] if the library refuses the result.
    pub(super) fn tokenizer(
        mut self,
        folder: &ClassFolder,
        mut parts: Value,
        around: &Around<'_>,
    ) -> Result<Tokenizer, TextLoadError> {
        let path = folder.vocab_path();
        let failed = |reason: String| TextLoadError::Tokenizer { path: path.clone(), reason };
        let id = |token: &str| {
            let id = self.id(token);
            id.ok_or_else(|| failed(format!("the vocabulary lacks the special token {token}")))
        };
        parts["post_processor"] = around.post_processor(id)?;
        self.added.sort_by_key(|added| added["id"].as_u64());
        parts["version"] = "1.0".into();
        parts["added_tokens"] = self.added.into();
        parts["model"]["vocab"] = self.tokens.into();
        let json = serde_json::to_vec(&parts).map_err(|error| failed(error.to_string()))?;
        Tokenizer::from_bytes(json).map_err(|error| failed(error.to_string()))
    }
}

/// The special tokens around a text, and between two.
#[derive(Debug, Default)]
pub(super) struct Around<'a> {
    pub(super) before: Vec<&'a str>,
    pub(super) between: Vec<&'a str>,
    pub(super) after: Vec<&'a str>,
    /// The type of the second text and of the tokens behind it. All others have 0.
    pub(super) second_type: u32,
}

impl Around<'_> {
    fn post_processor(
        &self,
        id: impl Fn(&str) -> Result<u32, TextLoadError>,
    ) -> Result<Value, TextLoadError> {
        let special = |tokens: &[&str], kind: u32| {
            let one = |token: &&str| json!({ "SpecialToken": { "id": token, "type_id": kind } });
            tokens.iter().map(one).collect::<Vec<_>>()
        };
        let text =
            |name: &str, kind: u32| vec![json!({ "Sequence": { "id": name, "type_id": kind } })];
        let (before, between) = (special(&self.before, 0), special(&self.between, 0));
        let second = [text("B", self.second_type), special(&self.after, self.second_type)];
        let single = [before.clone(), text("A", 0), special(&self.after, 0)].concat();
        let pair = [before, text("A", 0), between, second.concat()].concat();
        let mut ids = Map::new();
        for token in self.before.iter().chain(&self.between).chain(&self.after) {
            let entry = json!({ "id": token, "ids": [id(token)?], "tokens": [token] });
            ids.insert((*token).to_owned(), entry);
        }
        Ok(json!({
            "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": ids,
        }))
    }
}

/// Gives each role its token unless a file has named another. Returns the tokens in this order.
pub(super) fn roles<const N: usize>(
    files: &mut TokenizerFiles,
    defaults: [(&str, &str); N],
) -> [String; N] {
    defaults.map(|(role, token)| {
        let named = files.named_tokens.entry(role.to_owned());
        named.or_insert_with(|| token.to_owned()).clone()
    })
}
