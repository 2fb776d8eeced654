//! The tokenizer in a GGUF file, as the `tokenizer.json` that it describes.
//!
//! The metadata has the vocabulary with a type for each token, and merges (`gpt2`, `gemma4`) or
//! scores (`llama`, `t5`), or neither (`bert`). Except for `t5`, it lacks the normalization and the
//! cutting of a text before that. Both follow from the names under `tokenizer.ggml.model` and
//! `tokenizer.ggml.pre`, as in llama.cpp.

mod byte_level;
mod expressions;
mod pre_tokenizer;
mod sentencepiece;
mod unigram;
mod vocabulary;
mod word_piece;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tokenizers::Tokenizer;

use super::class_tokenizer::PieceTokenizer;
use super::error::TextLoadError;
use super::tokenizer_files::TokenizerFiles;
use crate::gguf::GgufFile;
pub(super) use expressions::QWEN2;
use vocabulary::Vocabulary;

const ARCHITECTURE: &str = "general.architecture";
const MODEL: &str = "tokenizer.ggml.model";
const CHAT_TEMPLATE: &str = "tokenizer.chat_template";
const CHAT_TEMPLATES: &str = "tokenizer.chat_templates";

/// The fields of `tokenizer_config.json` that name a token, with the keys that give its id.
const NAMED_TOKENS: [(&str, &str); 4] = [
    ("bos_token", "tokenizer.ggml.bos_token_id"),
    ("eos_token", "tokenizer.ggml.eos_token_id"),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
];

/// Whether tokens stand before and after a text, unless the metadata says otherwise.
#[derive(Debug, Clone, Copy)]
struct Surround {
    bos: bool,
    eos: bool,
}

/// How two texts become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joint {
    /// Each has the tokens around it that one text has.
    Apart,
    /// As in BERT: BOS stands before the first text alone. Its other name is CLS, and that of EOS
    /// is SEP.
    Bert,
    /// As in RoBERTa: the same, with EOS before the second text, too. All types are 0.
    Roberta,
}

impl Joint {
    /// Returns that of the models of `architecture`, with a tokenizer of this kind.
    fn of(architecture: Option<&str>, kind: &str) -> Self {
        match (architecture, kind) {
            (_, "bert") | (Some("modern-bert"), _) => Self::Bert,
            // The tokenizers of RoBERTa and XLM-RoBERTa.
            (Some("bert" | "jina-bert-v2"), _) => Self::Roberta,
            _ => Self::Apart,
        }
    }
}

/// Reads the tokenizer of `file`, and the sentencepiece model that cuts texts in its place, if
/// there is one. The rest is the data that a model folder has beside them.
pub(super) fn read(
    file: &GgufFile,
) -> Result<(Tokenizer, Option<PieceTokenizer>, TokenizerFiles), TextLoadError> {
    const ACCEPTED: &str = "\"gpt2\", \"llama\", \"t5\", \"bert\" or \"gemma4\"";
    let kind = file.text(MODEL)?.ok_or_else(|| file.missing(MODEL, ACCEPTED))?;
    let vocabulary = Vocabulary::read(file)?;
    let mut pieces = None;
    let (mut json, surround) = match kind {
        "gpt2" => byte_level::read(file, &vocabulary)?,
        "llama" => sentencepiece::read(file, &vocabulary)?,
        "t5" => {
            let (json, model, surround) = unigram::read(file, &vocabulary)?;
            pieces = Some(model);
            (json, surround)
        }
        "bert" => word_piece::read(file, &vocabulary)?,
        "gemma4" => sentencepiece::read_with_merges(file, &vocabulary)?,
        _ => {
            return Err(TextLoadError::UnknownKind {
                path: file.path().to_owned(),
                key: MODEL,
                found: kind.to_owned(),
                expected: ACCEPTED.to_owned(),
            });
        }
    };
    json.insert("version".to_owned(), "1.0".into());
    json.insert("added_tokens".to_owned(), vocabulary.added_tokens());
    let joint = Joint::of(file.text(ARCHITECTURE)?, kind);
    let around = post_processor(file, &vocabulary, surround, joint)?;
    json.insert("post_processor".to_owned(), around);
    let failed = |reason: String| TextLoadError::Tokenizer { path: file.path().to_owned(), reason };
    let text = serde_json::to_vec(&json).map_err(|error| failed(error.to_string()))?;
    let tokenizer = Tokenizer::from_bytes(text).map_err(|error| failed(error.to_string()))?;
    let files = TokenizerFiles {
        named_tokens: named_tokens(file, &vocabulary)?,
        chat_templates: chat_templates(file)?,
        ..TokenizerFiles::default()
    };
    Ok((tokenizer, pieces, files))
}

/// Puts BOS and EOS around a text where the metadata asks for them.
fn post_processor(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
    surround: Surround,
    joint: Joint,
) -> Result<Value, TextLoadError> {
    type Token = Option<(u32, String)>;
    let is_wanted = |name: &str| file.flag(&format!("tokenizer.ggml.add_{name}_token"));
    let under = |name: &str| {
        let key = format!("tokenizer.ggml.{name}_token_id");
        vocabulary.token_under(file, &key)
    };
    let has_other_names = joint == Joint::Bert;
    let token = |wanted, name: &str, [flag, other]: [&str; 2]| -> Result<Token, TextLoadError> {
        let is_also = has_other_names && is_wanted(flag)?.unwrap_or(false);
        if !(is_wanted(name)?.unwrap_or(wanted) || is_also) {
            return Ok(None);
        }
        match under(name)? {
            None if has_other_names => under(other),
            found => Ok(found),
        }
    };
    let bos = token(surround.bos, "bos", ["cls", "cls"])?;
    // The name of the key has this spelling.
    let eos = token(surround.eos, "eos", ["sep", "seperator"])?;
    let piece = |token: &Token, type_id: u32| {
        let special = |(_, content): &(u32, String)| {
            let token = json!({ "id": content, "type_id": type_id });
            json!({ "SpecialToken": token })
        };
        token.as_ref().map(special)
    };
    let sequence = |id: &str, before: &Token, type_id: u32| {
        let text = json!({ "Sequence": { "id": id, "type_id": type_id } });
        [piece(before, type_id), Some(text), piece(&eos, type_id)].into_iter().flatten()
    };
    let single: Vec<Value> = sequence("A", &bos, 0).collect();
    let second = match joint {
        Joint::Apart => sequence("B", &bos, 1),
        Joint::Bert => sequence("B", &None, 1),
        Joint::Roberta => sequence("B", &eos, 0),
    };
    let pair: Vec<Value> = single.iter().cloned().chain(second).collect();
    let special: Map<String, Value> = [&bos, &eos]
        .into_iter()
        .flatten()
        .map(|(id, content)| {
            (content.clone(), json!({ "id": content, "ids": [id], "tokens": [content] }))
        })
        .collect();
    Ok(json!({
        "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special,
    }))
}

fn named_tokens(
    file: &GgufFile,
    vocabulary: &Vocabulary<'_>,
) -> Result<BTreeMap<String, String>, TextLoadError> {
    let mut named = BTreeMap::new();
    for (name, key) in NAMED_TOKENS {
        if let Some((_, content)) = vocabulary.token_under(file, key)? {
            named.insert(name.to_owned(), content);
        }
    }
    Ok(named)
}

/// Returns the default chat template, and the named ones.
fn chat_templates(file: &GgufFile) -> Result<BTreeMap<String, String>, TextLoadError> {
    let mut templates = BTreeMap::new();
    if let Some(template) = file.text(CHAT_TEMPLATE)? {
        templates.insert("default".to_owned(), template.to_owned());
    }
    for name in file.texts(CHAT_TEMPLATES)?.unwrap_or_default() {
        if let Some(template) = file.text(&format!("{CHAT_TEMPLATE}.{name}"))? {
            templates.insert(name.to_owned(), template.to_owned());
        }
    }
    Ok(templates)
}
