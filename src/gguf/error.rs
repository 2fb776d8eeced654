//! Faults of a GGUF file, for the operator.

use std::path::PathBuf;

use crate::model_files::ModelFileError;

/// A GGUF file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file is not a valid GGUF file.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// A required key is absent.
    #[error("{}: metadata `{key}` is missing; expected {expected}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The accepted values.
        expected: String,
    },
    /// A key has a value that is malformed or not supported.
    #[error("{}: metadata `{key}` is {found}; expected {expected}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value, shortened.
        found: String,
        /// The accepted values.
        expected: String,
    },
}
