//! What can be wrong with a GGUF file, told to the operator.

use std::path::PathBuf;

use crate::model_files::ModelFileError;

/// A GGUF file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file is not what a GGUF file should be.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// A key that is needed is absent.
    #[error("{}: metadata `{key}` is missing; expected {expected}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What would be accepted.
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
        /// What would be accepted.
        expected: String,
    },
}
