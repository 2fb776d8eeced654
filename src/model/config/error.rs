//! What can be wrong with a configuration, told to the operator.

use std::path::PathBuf;

use crate::gguf::GgufError;
use crate::model_files::ModelFileError;

/// A configuration that cannot be served. Each message names the file, the field, its value, and
/// what would have been accepted.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The operating system refused the file.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// The file is not a JSON object.
    #[error("{}: not a JSON object: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        reason: String,
    },
    /// A field that has no default is absent.
    #[error("{}: `{field}` is missing; expected {expected}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The field, with dots for nesting.
        field: String,
        /// What would be accepted.
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
        /// What would be accepted.
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
        /// The families that are.
        supported: String,
    },
    /// The scaling of positions makes the context longer than any that is supported.
    #[error(
        "{}: with its scaling the context has {limit} positions; expected at most {accepted}",
        path.display()
    )]
    Positions {
        /// `config.json`.
        path: PathBuf,
        /// The context by the config, in tokens.
        limit: usize,
        /// The longest that is supported, in tokens.
        accepted: usize,
    },
    /// A longer context was asked for than the model's positions reach.
    #[error(
        "max_model_len is {requested}; expected 1 to {limit}, the longest context by {}",
        path.display()
    )]
    MaxModelLen {
        /// `config.json`.
        path: PathBuf,
        /// The length asked for, in tokens.
        requested: usize,
        /// The longest that is accepted, in tokens.
        limit: usize,
    },
    /// The file is GGUF, and something is wrong with it or its metadata.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}
