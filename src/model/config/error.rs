//! Errors of a model's configuration, for the operator.

use std::path::PathBuf;

use crate::gguf::GgufError;
use crate::model_files::ModelFileError;

/// The fault of a configuration that cannot be served. Each message names the file, the field, its
/// value and the accepted values.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// The file is not a JSON object.
    #[error("{}: not a JSON object: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        reason: String,
    },
    /// A field that has no default is absent.
    #[error("{}: `{field}` is missing; expected {expected}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The field, with dots for nesting.
        field: String,
        /// The accepted values.
        expected: String,
    },
    /// A field has a value that is malformed or not supported.
    #[error("{}: `{field}` is {value}; expected {expected}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The field, with dots for nesting.
        field: String,
        /// Its value as JSON.
        value: String,
        /// The accepted values.
        expected: String,
    },
    /// The model is of a family that this program does not know.
    #[error(
        "{}: a model with `{field}` {value} is not supported; supported are {supported}",
        path.display()
    )]
    UnsupportedFamily {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// Its value as JSON.
        value: String,
        /// The supported families.
        supported: String,
    },
    /// The folder has code of its own for an architecture that this program does not know.
    #[error(
        "{}: a model with `architectures` {value} is not supported, and its `auto_map` names code \
         in the folder, which is never run; supported are {supported}",
        path.display()
    )]
    CustomCode {
        /// The file.
        path: PathBuf,
        /// The architecture.
        value: String,
        /// The supported families.
        supported: String,
    },
    /// The setting `max_model_len` is longer than the longest supported context.
    #[error("max_model_len is {requested}; expected 1 to {accepted}, the longest context served")]
    Positions {
        /// The setting, in tokens.
        requested: usize,
        /// The longest supported context, in tokens.
        accepted: usize,
    },
    /// The setting `max_model_len` is longer than the model's context.
    #[error(
        "max_model_len is {requested}; expected 1 to {limit}, the longest context by {}",
        path.display()
    )]
    MaxModelLen {
        /// `config.json`.
        path: PathBuf,
        /// The setting, in tokens.
        requested: usize,
        /// The longest accepted context, in tokens.
        limit: usize,
    },
    /// The GGUF file or its metadata has a fault.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}
