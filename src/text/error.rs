//! Errors of loading a model's tokenizer and chat template, for the operator at start-up.

use std::path::PathBuf;

use thiserror::Error;

use crate::gguf::GgufError;

/// A fault in the tokenizer files of a model folder.
#[derive(Debug, Error)]
pub enum TextLoadError {
    /// A required file is missing or cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is not JSON (or not UTF-8).
    #[error("{}: not valid JSON: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The place and the reason.
        source: serde_json::Error,
    },
    /// The folder has no `tokenizer.json`, and not all files that its class has instead.
    #[error(
        "{}: no tokenizer.json, and a {class} without it needs {needs}: {missing} is missing",
        folder.display()
    )]
    MissingFiles {
        /// The folder.
        folder: PathBuf,
        /// The class of the tokenizer.
        class: &'static str,
        /// All files that it needs.
        needs: String,
        /// Those that the folder lacks.
        missing: String,
    },
    /// `tokenizer.json` has no `model`.
    #[error("{}: no tokenizer: the object `model` is missing", path.display())]
    NoModel {
        /// The file.
        path: PathBuf,
    },
    /// `tokenizer.json` is JSON, but no tokenizer that this engine can run.
    #[error("{}: not a usable tokenizer: {reason}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The tokenizer library's message.
        reason: String,
    },
    /// A field has a value of the wrong kind.
    #[error("{}: `{field}` is {found}, expected {expected}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The value found, shortened.
        found: String,
        /// The accepted values.
        expected: &'static str,
    },
    /// The tokenizer in a GGUF file is of a kind that is not read.
    #[error(
        "{}: metadata `{key}` is {found:?}; expected {expected}. Give the folder of the model's own \
         tokenizer.json: --tokenizer DIR",
        path.display()
    )]
    UnknownKind {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
        /// The accepted values.
        expected: String,
    },
    /// The file is GGUF, and the file or its metadata has a fault.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The tokenizer knows ids that the model has no embedding for.
    #[error(
        "the tokenizer's token {token:?} has id {id}, but the model's vocab_size is \
         {model_vocab_size}: ids must be below it (is this the tokenizer of another model?)"
    )]
    VocabTooLarge {
        /// The token with the highest id.
        token: String,
        /// That id.
        id: u32,
        /// Rows of the model's embedding.
        model_vocab_size: usize,
    },
}
