//! Tokenizers of folders without `tokenizer.json`, by their class of transformers: the files of a
//! sentencepiece model, of a byte-level BPE or of word pieces, with the special tokens that the
//! class adds.
//!
//! | class | files | tokens around a text |
//! |---|---|---|
//! | `MarianTokenizer` | source.spm, vocab.json | text `</s>` |
//! | `M2M100Tokenizer` | sentencepiece.bpe.model, vocab.json | language text `</s>` |
//! | `MBartTokenizer` | sentencepiece.bpe.model | text `</s>` language |
//! | `MBart50Tokenizer`, `NllbTokenizer` | sentencepiece.bpe.model | language text `</s>` |
//! | `T5Tokenizer`, `MT5Tokenizer`, `PegasusTokenizer` | spiece.model | text `</s>` |
//! | `BartTokenizer`, `RobertaTokenizer` | vocab.json, merges.txt | `<s>` text `</s>` |
//! | `XLMRobertaTokenizer` | sentencepiece.bpe.model | `<s>` text `</s>` |
//! | `BertTokenizer`, `DistilBertTokenizer` | vocab.txt | `[CLS]` text `[SEP]` |
//! | `ElectraTokenizer` | vocab.txt | `[CLS]` text `[SEP]` |
//! | `MPNetTokenizer` | vocab.txt | `<s>` text `</s>` |
//! | `BlenderbotTokenizer` | vocab.json, merges.txt | text `</s>` |
//! | `GPT2Tokenizer`, `Qwen2Tokenizer` | vocab.json, merges.txt | those that the config adds |
//! | `LlamaTokenizer` | tokenizer.model | those that the config adds |
//! | `InternLM2Tokenizer`, `InternLMTokenizer` | tokenizer.model | `<s>` text, by default |
//! | `BaichuanTokenizer`, `BaiChuanTokenizer` | tokenizer.model | `<s>` text, by default |

mod byte_level;
mod languages;
mod llama;
mod pieces;
#[cfg(test)]
mod tests;
mod vocabulary;
mod word_piece;

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokenizers::Tokenizer;

pub(super) use self::pieces::PieceTokenizer;
use self::vocabulary::Around;
use super::error::TextLoadError;
use super::tokenizer_files::{TOKENIZER_CONFIG, TokenizerFiles, field_error, read_object};
use crate::model_files;

/// A class of tokenizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Marian,
    M2m100,
    MBart,
    MBart50,
    Nllb,
    T5,
    Pegasus,
    Bart,
    Blenderbot,
    Gpt2,
    Qwen2,
    Llama,
    InternLm,
    XlmRoberta,
    Bert,
    MpNet,
}

/// The classes with their names, their `model_type`, and the files that they need.
const CLASSES: [(Class, &str, &str, &[&str]); 26] = [
    (Class::Marian, "MarianTokenizer", "marian", &["source.spm", VOCAB]),
    (Class::M2m100, "M2M100Tokenizer", "m2m_100", &[BPE_MODEL, VOCAB]),
    (Class::MBart, "MBartTokenizer", "mbart", &[BPE_MODEL]),
    (Class::MBart50, "MBart50Tokenizer", "", &[BPE_MODEL]),
    (Class::Nllb, "NllbTokenizer", "", &[BPE_MODEL]),
    (Class::T5, "T5Tokenizer", "t5", &[UNIGRAM_MODEL]),
    (Class::T5, "MT5Tokenizer", "mt5", &[UNIGRAM_MODEL]),
    (Class::Pegasus, "PegasusTokenizer", "pegasus", &[UNIGRAM_MODEL]),
    (Class::Bart, "BartTokenizer", "bart", &[VOCAB, MERGES]),
    (Class::Bart, "RobertaTokenizer", "roberta", &[VOCAB, MERGES]),
    (Class::Blenderbot, "BlenderbotTokenizer", "blenderbot", &[VOCAB, MERGES]),
    (Class::Gpt2, "GPT2Tokenizer", "gpt2", &[VOCAB, MERGES]),
    (Class::Qwen2, "Qwen2Tokenizer", "qwen2", &[VOCAB, MERGES]),
    (Class::Llama, "LlamaTokenizer", "llama", &[LLAMA_MODEL]),
    (Class::InternLm, "InternLM2Tokenizer", "internlm2", &[LLAMA_MODEL]),
    (Class::InternLm, "InternLMTokenizer", "internlm", &[LLAMA_MODEL]),
    (Class::InternLm, "BaichuanTokenizer", "baichuan", &[LLAMA_MODEL]),
    (Class::InternLm, "BaiChuanTokenizer", "", &[LLAMA_MODEL]),
    (Class::XlmRoberta, "XLMRobertaTokenizer", "xlm-roberta", &[BPE_MODEL]),
    (Class::XlmRoberta, "XLMRobertaTokenizer", "xlm-roberta-xl", &[BPE_MODEL]),
    (Class::Bert, "BertTokenizer", "bert", &[WORDS]),
    (Class::Bert, "BertTokenizer", "ernie", &[WORDS]),
    (Class::Bert, "BertTokenizer", "nomic_bert", &[WORDS]),
    (Class::Bert, "DistilBertTokenizer", "distilbert", &[WORDS]),
    (Class::Bert, "ElectraTokenizer", "electra", &[WORDS]),
    (Class::MpNet, "MPNetTokenizer", "mpnet", &[WORDS]),
];
const VOCAB: &str = "vocab.json";
const MERGES: &str = "merges.txt";
const BPE_MODEL: &str = "sentencepiece.bpe.model";
const UNIGRAM_MODEL: &str = "spiece.model";
const LLAMA_MODEL: &str = "tokenizer.model";
const WORDS: &str = "vocab.txt";

/// A folder with a tokenizer of a class.
#[derive(Debug)]
pub(super) struct ClassFolder {
    class: Class,
    name: &'static str,
    files: &'static [&'static str],
    folder: PathBuf,
    /// `tokenizer_config.json`.
    config: Map<String, Value>,
}

impl ClassFolder {
    /// Finds the class in `tokenizer_config.json`, or else in `config.json`, or by the model's type
    /// there. Returns `None` if it is none of the list.
    ///
    /// # Errors
    /// [`TextLoadError`] for a file that is no JSON.
    pub(super) fn find(folder: &Path) -> Result<Option<Self>, TextLoadError> {
        const CLASS: &str = "tokenizer_class";
        let config = read_object(&folder.join(TOKENIZER_CONFIG))?.unwrap_or_default();
        let text = |object: &Map<String, Value>, field: &str| {
            object.get(field).and_then(Value::as_str).map(str::to_owned)
        };
        let model = match text(&config, CLASS) {
            Some(_) => Map::new(),
            None => read_object(&folder.join("config.json"))?.unwrap_or_default(),
        };
        let found = match text(&config, CLASS).or_else(|| text(&model, CLASS)) {
            Some(class) => {
                let class = class.strip_suffix("Fast").unwrap_or(&class);
                CLASSES.iter().find(|(_, name, ..)| *name == class)
            }
            None => {
                let kind = text(&model, "model_type").unwrap_or_default();
                CLASSES.iter().find(|(_, _, model_type, _)| *model_type == kind && !kind.is_empty())
            }
        };
        let folder = folder.to_owned();
        Ok(found.map(|&(class, name, _, files)| Self { class, name, files, folder, config }))
    }

    /// Returns whether all files of the class are in the folder.
    pub(super) fn is_complete(&self) -> bool {
        self.missing().is_empty()
    }

    fn missing(&self) -> Vec<&'static str> {
        let is_absent = |file: &&&str| !model_files::exists(&self.folder.join(file));
        self.files.iter().filter(is_absent).copied().collect()
    }

    /// Reads the tokenizer, and completes the roles in `files`. Returns what cuts texts in the
    /// place of the tokenizer's own model, if the class has a sentencepiece model.
    ///
    /// # Errors
    /// [`TextLoadError`] if a file is missing or has a fault.
    pub(super) fn read(
        &self,
        files: &mut TokenizerFiles,
    ) -> Result<(Tokenizer, Option<PieceTokenizer>), TextLoadError> {
        let missing = self.missing();
        if !missing.is_empty() {
            return Err(TextLoadError::MissingFiles {
                folder: self.folder.clone(),
                class: self.name,
                needs: self.files.join(" and "),
                missing: missing.join(" and "),
            });
        }
        match self.class {
            Class::Bart | Class::Blenderbot => Ok((byte_level::read(self, files)?, None)),
            Class::Bert | Class::MpNet => Ok((word_piece::read(self, files)?, None)),
            Class::Gpt2 | Class::Qwen2 => Ok((byte_level::of_decoder(self, files)?, None)),
            Class::Llama => Ok((llama::read(self, files)?, None)),
            _ => pieces::read(self, files).map(|(tokenizer, pieces)| (tokenizer, Some(pieces))),
        }
    }

    /// Returns the path of a file that the class needs, by its place in the list.
    fn path(&self, index: usize) -> PathBuf {
        self.folder.join(self.files.get(index).unwrap_or(&VOCAB))
    }

    /// Returns the path of the file that has the tokens.
    fn vocab_path(&self) -> PathBuf {
        self.path(self.files.iter().position(|file| *file == VOCAB).unwrap_or(0))
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, TextLoadError> {
        let path = self.path(index);
        let bytes = model_files::read(&path);
        bytes
            .map(std::borrow::Cow::into_owned)
            .map_err(|source| TextLoadError::Read { path, source })
    }

    /// Returns the content of a text file.
    fn file_text(&self, index: usize) -> Result<String, TextLoadError> {
        let text = String::from_utf8(self.bytes(index)?);
        text.map_err(|error| TextLoadError::Read {
            path: self.path(index),
            source: io::Error::other(error.utf8_error()),
        })
    }

    /// Returns the tokens of `vocab.json`, which is the file at `index`.
    fn vocab(&self, index: usize) -> Result<Map<String, Value>, TextLoadError> {
        let path = self.path(index);
        let vocab = read_object(&path)?.unwrap_or_default();
        let is_id = |value: &Value| value.as_u64().is_some_and(|id| u32::try_from(id).is_ok());
        match vocab.iter().find(|(_, value)| !is_id(value)) {
            Some((token, value)) => Err(field_error(&path, token, value, "a token id")),
            None => Ok(vocab),
        }
    }

    /// Returns the text of a field of `tokenizer_config.json`.
    fn text(&self, field: &str) -> Result<Option<&str>, TextLoadError> {
        match self.config.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.refused(field, other, "a string")),
        }
    }

    /// Returns a flag of `tokenizer_config.json`, or false.
    fn flag(&self, field: &str) -> Result<bool, TextLoadError> {
        self.flag_or(field, false)
    }

    /// Returns a flag of `tokenizer_config.json`, or `default`.
    fn flag_or(&self, field: &str, default: bool) -> Result<bool, TextLoadError> {
        match self.config.get(field) {
            None | Some(Value::Null) => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.refused(field, other, "true or false")),
        }
    }

    /// Returns a number of `tokenizer_config.json`, or `default`.
    fn count(&self, field: &str, default: u32) -> Result<u32, TextLoadError> {
        const MOST: u64 = 1 << 16;
        match self.config.get(field) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => match value.as_u64().filter(|count| *count <= MOST) {
                Some(count) => Ok(count as u32),
                None => Err(self.refused(field, value, "a number from 0 to 65536")),
            },
        }
    }

    fn refused(&self, field: &str, found: &Value, expected: &'static str) -> TextLoadError {
        field_error(&self.folder.join(TOKENIZER_CONFIG), field, found, expected)
    }
}

/// The tokens that begin and end a text of a decoder.
#[derive(Debug)]
struct Ends {
    bos: Option<String>,
    eos: Option<String>,
}

impl Ends {
    fn as_around(&self) -> Around<'_> {
        let (bos, eos) = (self.bos.as_deref(), self.eos.as_deref());
        Around {
            before: bos.into_iter().collect(),
            between: eos.into_iter().chain(bos).collect(),
            after: eos.into_iter().collect(),
            second_type: 0,
        }
    }
}

/// Reads whether a text has BOS before it, by default if `has_bos`, and EOS behind it.
fn ends(
    folder: &ClassFolder,
    files: &TokenizerFiles,
    has_bos: bool,
) -> Result<Ends, TextLoadError> {
    let named = |is_added: bool, role: &str| {
        let token = files.named_tokens.get(role).filter(|token| is_added && !token.is_empty());
        token.cloned()
    };
    Ok(Ends {
        bos: named(folder.flag_or("add_bos_token", has_bos)?, "bos_token"),
        eos: named(folder.flag("add_eos_token")?, "eos_token"),
    })
}
